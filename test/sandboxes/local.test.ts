import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { bubblewrap } from '../../src/sandboxes/local/bubblewrap.ts';
import { local, openWith } from '../../src/sandboxes/local/index.ts';
import { NOBODY, works } from '../../src/sandboxes/local/launch.ts';
import { namespaces } from '../../src/sandboxes/local/namespaces.ts';
import { sandboxContract } from '../contracts/sandbox.ts';

// Below /tmp: the sandbox's user must be able to reach it, which it could not in root's home.
const scratch = (): Promise<string> =>
  mkdtemp(join(tmpdir(), 'orchard-scratch-')).then(async (dir) =>
    (await import('node:fs/promises')).chmod(dir, 0o755).then(() => dir),
  );

const owner = process.getuid?.() === 0 ? NOBODY : null;
const BUBBLEWRAP = {
  'a timeout ends processes that left the session too, but not those of other commands':
    'every command has a process namespace of its own',
};

const driver = await local.open(local.config.parse({}), { scratchDir: await scratch() });
const isolated = driver.capabilities.isolation === 'namespace';

if (isolated) sandboxContract(async () => driver);

// The weaker ways of the same driver, which other machines fall back to.
for (const [name, launcher] of [
  ['namespaces around a copy', await namespaces(await scratch(), { owner, overlay: false })],
  ['bubblewrap', bubblewrap(owner)],
] as const) {
  const scratchDir = await scratch();
  const there = await works(launcher, scratchDir);
  describe.runIf(there)(name, () =>
    sandboxContract(
      async () => openWith(launcher, { settings: local.config.parse({}), scratchDir }),
      name === 'bubblewrap' ? BUBBLEWRAP : {},
    ),
  );
}

test.skipIf(isolated)('a machine without namespaces says so and refuses to block the network', async () => {
  expect(driver.capabilities).toEqual({ isolation: 'none', network: 'open' });
});

test.runIf(isolated)('a driver that is killed leaves no process and its folders go at the next start', async () => {
  const scratchDir = await scratch();
  const script = `
    import { local } from '${join(import.meta.dirname, '../../src/sandboxes/local/index.ts')}';
    const driver = await local.open(local.config.parse({}), { scratchDir: '${scratchDir}' });
    const box = await driver.create({ id: 'x', workspace: { kind: 'files', files: {} }, network: 'none', memoryMiB: 64, processes: 16, lifetimeMs: 60000 });
    void box.exec('exec -a orphan-of-${process.pid} sleep 60', { timeoutMs: 60000 });
    setTimeout(() => console.log('started'), 300);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(child.stdout, 'data');
  const find = async (): Promise<number> => {
    const { stdout } = await (await import('execa')).execa('pgrep', ['-fc', `^orphan-of-${process.pid}`], {
      reject: false,
    });
    return Number(stdout);
  };
  expect(await find()).toBe(1);
  child.kill('SIGKILL');
  await once(child, 'exit');
  for (let tries = 0; tries < 50 && (await find()) > 0; tries++) await sleep(50);
  expect(await find()).toBe(0);
  const boxes = async (): Promise<string[]> => (await readdir(scratchDir)).filter((name) => name.startsWith('box-'));
  expect(await boxes()).toHaveLength(1);
  await using _next = await local.open(local.config.parse({}), { scratchDir });
  expect(await boxes()).toEqual([]);
});
