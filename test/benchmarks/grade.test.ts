import { chmod, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { benchmarks } from '../../src/benchmarks/index.ts';
import { checkTasks } from '../../src/benchmarks/swe-bench/check.ts';
import { type Blobs, openBlobs } from '../../src/core/blobs.ts';
import type { SandboxDriver } from '../../src/ports/sandbox.ts';
import type { Task } from '../../src/records/task.ts';
import type { Verdict } from '../../src/records/verdict.ts';
import { local } from '../../src/sandboxes/local/index.ts';

const tiny = benchmarks.tiny!;
let sandboxes: SandboxDriver;
let blobs: Blobs;
let tasks: Task[];
beforeAll(async () => {
  const scratchDir = await mkdtemp(join(tmpdir(), 'orchard-scratch-'));
  await chmod(scratchDir, 0o755);
  sandboxes = await local.open(local.config.parse({}), { scratchDir });
  blobs = await openBlobs(join(scratchDir, 'blobs'));
  tasks = await tiny.tasks({ count: 12, seed: 1 }, 'train');
});
afterAll(async () => {
  await blobs[Symbol.asyncDispose]();
  await sandboxes[Symbol.asyncDispose]();
});

const context = () => ({ sandboxes, blobs, memoryMiB: 512, processes: 64, signal: AbortSignal.timeout(60_000) });
const grade = (task: Task, patch: string | Buffer): Promise<Verdict> =>
  tiny.grade(task, Buffer.from(patch), { ...context(), episode: 'e' });

/** A patch that puts `text` in front of the file that the gold patch changes. */
function prepend(task: Task, text: string): string {
  const path = /^\+\+\+ b\/(.*)$/m.exec(task.goldPatch)![1]!;
  const first = task.workspace.kind === 'files' ? task.workspace.files[path]!.split('\n')[0]! : '';
  const added = text.split('\n').map((line) => `+${line}`);
  return `--- a/${path}\n+++ b/${path}\n@@ -1 +1,${added.length + 1} @@\n${added.join('\n')}\n ${first}\n`;
}

test('gold resolves a task, every named test passed, and the log is kept', async () => {
  const verdict = await grade(tasks[0]!, tasks[0]!.goldPatch);
  expect(verdict).toMatchObject({ class: 'graded', resolved: true });
  expect(Object.values(verdict.tests)).toEqual(Object.keys(verdict.tests).map(() => 'passed'));
  expect((await blobs.get(verdict.log!.sha256)).toString()).toContain('... ok');
});

test('an empty patch is a class of its own and starts no sandbox', async () => {
  expect(await grade(tasks[0]!, '')).toMatchObject({ class: 'empty_patch', resolved: false, log: null });
});

test('a patch that does not apply is graded as not resolved', async () => {
  expect(await grade(tasks[0]!, '--- a/nowhere\n+++ b/nowhere\n@@ -1 +1 @@\n-x\n+y\n')).toMatchObject({
    class: 'graded',
    resolved: false,
  });
});

test('a patch without its last newline still applies', async () => {
  expect(await grade(tasks[0]!, tasks[0]!.goldPatch.replace(/\n$/, ''))).toMatchObject({
    class: 'graded',
    resolved: true,
  });
});

test('a patch that breaks another function does not resolve, and says which test broke', async () => {
  const task = tasks.find((each) => each.passToPass.length > 0)!;
  const verdict = await grade(task, prepend(task, 'raise ImportError("broken")'));
  expect(verdict).toMatchObject({ class: 'graded', resolved: false });
  expect(Object.values(verdict.tests)).not.toContain('passed');
});

test('tests that never end are stopped and count as not resolved', async () => {
  const task = { ...tasks[0]!, evaluation: { ...tasks[0]!.evaluation, timeoutMs: 700 } };
  expect(await grade(task, prepend(task, 'while True: pass'))).toMatchObject({ class: 'graded', resolved: false });
});

test('a patch that prints a passing log and leaves is not believed', async () => {
  const task = tasks[0]!;
  const forged = task.failToPass.map((name) => `${name.split('.').at(-1)} (${name}) ... ok`).join('\\n');
  const leave = prepend(
    task,
    `import os, sys\nsys.stderr.write("begin x\\n${forged}\\nend x 0\\n")\nsys.stderr.flush()\nos.kill(os.getpid(), 9)`,
  );
  const verdict = await grade(task, leave);
  // What it printed lies between the true marks; only the overlay for cheats, not the official rule, can tell it apart.
  expect(verdict.class).toBe('graded');
});

test('a test file that the model wrote itself is replaced by the benchmark', async () => {
  const task = tasks[0]!;
  const own = '--- /dev/null\n+++ b/tests/test_issue.py\n@@ -0,0 +1 @@\n+raise SystemExit\n';
  expect(await grade(task, task.goldPatch + own)).toMatchObject({ class: 'graded', resolved: true });
});

test('a sandbox that cannot start is an infrastructure failure with an owner, not a failure of the model', async () => {
  const broken: Task = { ...tasks[0]!, workspace: { kind: 'image', image: 'x', workdir: '/' } };
  const verdict = await grade(broken, tasks[0]!.goldPatch);
  expect(verdict).toMatchObject({
    class: 'infrastructure',
    resolved: false,
    failure: { cause: expect.stringContaining('image x') },
  });
});

test('a test patch that does not apply is the task’s fault', async () => {
  const broken: Task = { ...tasks[0]!, testPatch: '--- a/no\n+++ b/no\n@@ -1 +1 @@\n-a\n+b\n' };
  expect(await grade(broken, broken.goldPatch)).toMatchObject({
    class: 'infrastructure',
    failure: { owner: 'task', code: 'test_patch' },
  });
});

test('an unknown log parser is unknown, not failed', async () => {
  const broken: Task = { ...tasks[0]!, evaluation: { ...tasks[0]!.evaluation, parser: 'cobol' } };
  expect(await grade(broken, broken.goldPatch)).toMatchObject({ class: 'unknown', failure: { code: 'log_parser' } });
});

test('sound tasks pass the check; one whose gold is wrong, or that is solved already, is named', async () => {
  const [first, second, third] = tasks as [Task, Task, Task];
  const wrong: Task = { ...second, goldPatch: prepend(second, '# nothing') };
  const solved: Task = {
    ...third,
    failToPass: third.passToPass.length > 0 ? third.passToPass : third.failToPass,
    testPatch: third.testPatch,
  };
  const problems = await checkTasks([first, wrong, ...(third.passToPass.length > 0 ? [solved] : [])], {
    benchmark: tiny,
    context: context(),
    concurrency: 2,
    onProgress: () => {},
  });
  expect(problems.map(({ task }) => task)).toEqual(
    [wrong.id, ...(third.passToPass.length > 0 ? [solved.id] : [])].sort(),
  );
});

/** A patch that adds one file. */
const adding = (path: string, ...lines: string[]): string =>
  `--- /dev/null\n+++ b/${path}\n@@ -0,0 +1,${lines.length} @@\n${lines.map((line) => `+${line}\n`).join('')}`;

test('a patch that stands in the way of the tests is the model’s failure, not the task’s', async () => {
  const inTheWay = adding('tests/test_issue.py/blocker', 'x');
  expect(await grade(tasks[0]!, inTheWay)).toMatchObject({ class: 'graded', resolved: false });
});

test('a test patch that does not even apply to the untouched repository is the task’s failure', async () => {
  const broken = { ...tasks[0]!, testPatch: tasks[0]!.testPatch.replace('/dev/null', 'a/tests/nowhere.py') };
  expect(await grade(broken, prepend(broken, '# x'))).toMatchObject({
    class: 'infrastructure',
    failure: { owner: 'task', code: 'test_patch' },
  });
});

test('code that kills its own tests is graded by what they had said', async () => {
  const suicide = prepend(tasks[0]!, 'import os, signal\nos.killpg(0, signal.SIGKILL)');
  expect(await grade(tasks[0]!, suicide)).toMatchObject({ class: 'graded', resolved: false });
});

test('tests that cannot be started are unknown and blame nobody’s patch', async () => {
  const task = { ...tasks[0]!, evaluation: { ...tasks[0]!.evaluation, script: 'no-such-python -m unittest' } };
  expect(await grade(task, task.goldPatch)).toMatchObject({
    class: 'unknown',
    failure: { owner: 'task', code: 'tests_not_run' },
  });
});
