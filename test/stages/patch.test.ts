import { chmod, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { benchmarks } from '../../src/benchmarks/index.ts';
import type { Sandbox, SandboxDriver } from '../../src/ports/sandbox.ts';
import type { Task } from '../../src/records/task.ts';
import { local } from '../../src/sandboxes/local/index.ts';
import { takePatch } from '../../src/stages/patch.ts';

let driver: SandboxDriver;
let task: Task;
beforeAll(async () => {
  const scratchDir = await mkdtemp(join(tmpdir(), 'orchard-scratch-'));
  await chmod(scratchDir, 0o755);
  driver = await local.open(local.config.parse({}), { scratchDir });
  task = (await benchmarks.tiny!.tasks({ count: 1, seed: 1 }, 'train'))[0]!;
});
afterAll(() => driver[Symbol.asyncDispose]());

async function patchAfter(command: string, files: Record<string, string> = {}): Promise<Buffer> {
  const changed: Task = {
    ...task,
    workspace: { kind: 'files', files: { 'a.txt': 'one\ntwo\n', 'b.txt': 'b\n', ...files } },
  };
  await using box: Sandbox = await driver.create({
    id: 'patch',
    workspace: changed.workspace,
    network: driver.capabilities.network === 'open' ? 'open' : 'none',
    memoryMiB: 512,
    processes: 64,
    lifetimeMs: 60_000,
  });
  const run = await box.exec(command, { timeoutMs: 10_000 });
  expect(run.output.toString()).toBe('');
  expect(run.exitCode).toBe(0);
  return (await takePatch(box, changed))!;
}

test('nothing changed is an empty patch', async () => {
  expect(await patchAfter('true')).toEqual(Buffer.alloc(0));
});

test('changes, new files and removals are all in it', async () => {
  const patch = (
    await patchAfter("sed -i s/two/2/ a.txt; rm b.txt; mkdir -p x/y; echo new >'x/y/with space ä'")
  ).toString();
  expect(patch).toContain('-two\n+2\n');
  expect(patch).toContain('deleted file mode 100644');
  expect(patch).toContain('new file mode 100644');
  expect(patch).toContain('+new\n');
});

test('committing, switching branches or wrecking .git hides nothing', async () => {
  const plain = await patchAfter('echo three >>a.txt');
  expect(
    await patchAfter(
      "echo three >>a.txt; git checkout -q -b other; git -c user.name=x -c user.email=x@x commit -qam 'mine'",
    ),
  ).toEqual(plain);
  expect(await patchAfter('echo three >>a.txt; rm -rf .git')).toEqual(plain);
  expect(
    await patchAfter(
      "echo three >>a.txt; echo garbage >.git/HEAD; mkdir -p .git/info; echo '* -diff' >.git/info/attributes",
    ),
  ).toEqual(plain);
});

test('a full /tmp, a repository inside the repository and folders without rights do not stand in the way', async () => {
  const plain = await patchAfter('echo three >>a.txt');
  expect(await patchAfter('echo three >>a.txt; head -c 100M /dev/zero >/tmp/full 2>/dev/null; true')).toEqual(plain);
  expect((await patchAfter('mkdir sub && cd sub && git init -q && echo inside >file')).toString()).toContain('+inside');
  expect((await patchAfter('mkdir sub && echo inside >sub/file && chmod 000 sub')).toString()).toContain('+inside');
});

test('a change too large for a patch is told apart from none', async () => {
  expect(await patchAfter('head -c 40M /dev/urandom >big')).toBeNull();
  expect((await patchAfter('head -c 1M /dev/urandom >some')).length).toBeGreaterThan(2 ** 20);
});

test('bytes stay bytes: line ends, encodings, binary files, no newline at the end', async () => {
  const patch = await patchAfter(
    "printf 'one\\r\\ntwo\\n' >a.txt; printf '\\377\\376' >b.txt; printf '\\0\\1\\2' >bin",
  );
  const text = patch.toString('latin1');
  expect(text).toContain('+one\r\n');
  expect(text).toContain('+\xff\xfe\n\\ No newline at end of file\n');
  expect(text).toContain('GIT binary patch');
});

test('an attributes file of the agent changes nothing about how differences are taken', async () => {
  const patch = (await patchAfter("echo '* -text -diff' >.gitattributes; echo three >>a.txt")).toString();
  expect(patch).toContain('+three\n');
});

test('ignored files are left out', async () => {
  expect((await patchAfter('mkdir -p cache; echo x >cache/x', { '.gitignore': 'cache/\n' })).length).toBe(0);
});
