import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { lockFolder, lockHolder } from '../../src/core/lock.ts';

const folder = () => mkdtemp(join(tmpdir(), 'orchard-lock-'));

test('a second driver on a run folder is refused and told who has it', async () => {
  const dir = await folder();
  await using _mine = await lockFolder(dir);
  await expect(lockFolder(dir)).rejects.toMatchObject({
    code: 'run_busy',
    message: expect.stringContaining(String(process.pid)),
  });
});

test('a run folder is free again after its driver gave it back', async () => {
  const dir = await folder();
  {
    await using _first = await lockFolder(dir);
  }
  expect(await lockHolder(dir)).toBeNull();
  await using _second = await lockFolder(dir);
  expect((await lockHolder(dir))?.pid).toBe(process.pid);
});

test('the lock of a driver that was killed does not count', async () => {
  const dir = await folder();
  const script = `import { lockFolder } from '${join(import.meta.dirname, '../../src/core/lock.ts')}'; await lockFolder('${dir}'); console.log('locked'); setInterval(() => {}, 1000);`;
  const driver = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(driver.stdout, 'data');
  expect((await lockHolder(dir))?.pid).toBe(driver.pid);
  driver.kill('SIGKILL');
  await once(driver, 'exit');
  await using _mine = await lockFolder(dir);
});

test('a torn lock file is nobody', async () => {
  const dir = await folder();
  await writeFile(join(dir, 'lock'), '{"pid":');
  await using _mine = await lockFolder(dir);
  expect((await lockHolder(dir))?.pid).toBe(process.pid);
});
