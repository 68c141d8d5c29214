import { randomBytes } from 'node:crypto';
import { failureOf, OrchardError } from '../../core/errors.ts';
import type { GradeContext } from '../../ports/benchmark.ts';
import type { Sandbox } from '../../ports/sandbox.ts';
import type { Task } from '../../records/task.ts';
import type { TestStatus, Verdict } from '../../records/verdict.ts';
import { parsers } from './parse.ts';

const APPLY_TIMEOUT_MS = 60_000;
const LOG_BYTES = 16 * 1024 * 1024;

/** From strict to lenient, as SWE-bench's own runner tries them. */
const APPLY = ['git apply --verbose', 'git apply --verbose --reject', 'patch --batch --fuzz=5 -p1 -i'];

/** Grades a patch in a fresh sandbox; see the benchmark port for what it promises. */
export async function gradePatch(
  task: Task,
  patch: Buffer,
  context: GradeContext & { episode: string },
): Promise<Verdict> {
  const started = performance.now();
  const verdict = (rest: Pick<Verdict, 'class' | 'resolved'> & Partial<Verdict>): Verdict => ({
    v: 'orchard.verdict/1',
    episode: context.episode,
    task: task.id,
    tests: {},
    log: null,
    ms: performance.now() - started,
    ...rest,
  });
  if (patch.length === 0) return verdict({ class: 'empty_patch', resolved: false });
  try {
    await using sandbox = await context.sandboxes.create({
      id: context.episode,
      workspace: task.workspace,
      network: context.sandboxes.capabilities.network === 'blockable' ? 'none' : 'open',
      memoryMiB: context.memoryMiB,
      processes: context.processes,
      lifetimeMs: task.evaluation.timeoutMs + 3 * APPLY_TIMEOUT_MS,
    });
    const run = await runTests(sandbox, { task, patch, signal: context.signal });
    const log = await context.blobs.put(run.log);
    return verdict({ ...judgeLog(task, run), log });
  } catch (error) {
    const failure = failureOf(error, {
      owner: 'sandbox',
      code: 'grading',
      id: context.episode,
      wayOut: 'the grading is repeated; see `orchard status --failures`',
    });
    return verdict({ class: 'infrastructure', resolved: false, failure });
  }
}

interface Run {
  log: Buffer;
  /** What the tests printed; null when the patch did not apply, so that none ran. */
  tests: string | null;
  timedOut: boolean;
  /** Exit code of the evaluation script; null when it did not come to its end. */
  exitCode: number | null;
}

async function runTests(
  sandbox: Sandbox,
  { task, patch, signal }: { task: Task; patch: Buffer; signal: AbortSignal },
): Promise<Run> {
  const options = { timeoutMs: APPLY_TIMEOUT_MS, signal };
  await sandbox.write('/tmp/model.patch', patch.at(-1) === 10 ? patch : Buffer.concat([patch, Buffer.from('\n')]));
  const model = await sandbox.exec(APPLY.map((way) => `${way} /tmp/model.patch`).join(' || '), options);
  const refused = (what: string, output: Buffer): Run => ({
    log: Buffer.concat([Buffer.from(`${what}\n`), output]),
    tests: null,
    timedOut: false,
    exitCode: null,
  });
  if (model.exitCode === null) throw stopped(task, 'applying the patch');
  if (model.exitCode !== 0) return refused('the patch does not apply', model.output);
  // Files that the test patch touches are the benchmark's: what the model did to them is put back first.
  const names = [...task.testPatch.matchAll(/^diff --git a\/(\S+) b\/(\S+)$/gm)].flatMap((match) => [
    match[1]!,
    match[2]!,
  ]);
  const back = [...new Set(names)]
    .map((file) => `git checkout -q -f HEAD -- ${quote(file)} 2>/dev/null || rm -rf -- ${quote(file)}`)
    .join('\n');
  await sandbox.write('/tmp/test.patch', Buffer.from(task.testPatch));
  const tests = await sandbox.exec(`${back}\ngit apply --verbose /tmp/test.patch`, options);
  if (tests.exitCode === null) throw stopped(task, 'applying the test patch');
  if (tests.exitCode !== 0) {
    // On the untouched repository it must apply; if it does, the model has put something in its way.
    const clean = 'git reset -q --hard && git clean -qfdx && git apply --check /tmp/test.patch';
    if ((await sandbox.exec(clean, options)).exitCode === 0)
      return refused('the patch is in the way of the tests', tests.output);
    throw new OrchardError({
      owner: 'task',
      code: 'test_patch',
      id: task.id,
      cause: `the test patch of ${task.id} does not apply: ${tests.output.toString().trim().split('\n').at(-1)}`,
      wayOut: 'see `orchard tasks check`; leave the task out',
    });
  }
  // What comes before the tests does not count, nor what daemons of theirs say afterwards.
  const mark = randomBytes(12).toString('hex');
  const result = await sandbox.exec(`echo "begin ${mark}"\n(${task.evaluation.script}\n)\necho "end ${mark} $?"`, {
    timeoutMs: task.evaluation.timeoutMs,
    maxOutputBytes: LOG_BYTES,
    signal,
  });
  const text = result.output.toString();
  const begin = text.indexOf(`begin ${mark}\n`);
  const end = text.lastIndexOf(`end ${mark} `);
  if (begin < 0) throw stopped(task, 'the tests');
  // No closing mark: the tested code has ended its own process group. What the tests said before stands.
  const between = text.slice(begin + mark.length + 7, end < 0 ? undefined : end);
  const exitCode = end < 0 ? null : Number(text.slice(end + mark.length + 5).trim());
  return { log: result.output, tests: between, timedOut: result.timedOut, exitCode };
}

const stopped = (task: Task, what: string): OrchardError =>
  new OrchardError({
    owner: 'sandbox',
    code: 'grading_stopped',
    id: task.id,
    cause: `${what} of ${task.id} did not come to its end`,
    wayOut: 'the grading is repeated; see `orchard status --failures`',
  });

/** The official rule: resolved when every test of FAIL_TO_PASS and PASS_TO_PASS passed. */
function judgeLog(
  task: Task,
  { tests, timedOut, exitCode }: Run,
): Pick<Verdict, 'class' | 'resolved' | 'tests'> & Partial<Verdict> {
  const named = [...task.failToPass, ...task.passToPass];
  const unknown = (code: string, { cause, wayOut }: { cause: string; wayOut: string }) => ({
    class: 'unknown' as const,
    resolved: false,
    tests: {},
    failure: { owner: 'task' as const, code, id: task.id, cause, wayOut },
  });
  const parse = parsers[task.evaluation.parser];
  if (!parse)
    return unknown('log_parser', {
      cause: `no log parser ${task.evaluation.parser}`,
      wayOut: `known: ${Object.keys(parsers).join(', ')}`,
    });
  const statuses = tests === null || timedOut ? new Map<string, TestStatus>() : parse(tests);
  // 126 and 127 are the shell's: what should run the tests is not there, which no patch is to blame for.
  if (statuses.size === 0 && (exitCode === 126 || exitCode === 127))
    return unknown('tests_not_run', {
      cause: `the tests of ${task.id} could not be started: ${tests?.trim().split('\n').at(-1)}`,
      wayOut: 'see `orchard tasks check`',
    });
  const seen = Object.fromEntries(named.map((test) => [test, statuses.get(test) ?? 'missing'] as const));
  return { class: 'graded', resolved: named.length > 0 && named.every((test) => seen[test] === 'passed'), tests: seen };
}

const quote = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
