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
}

async function runTests(
  sandbox: Sandbox,
  { task, patch, signal }: { task: Task; patch: Buffer; signal: AbortSignal },
): Promise<Run> {
  const options = { timeoutMs: APPLY_TIMEOUT_MS, signal };
  await sandbox.write('/tmp/model.patch', patch.at(-1) === 10 ? patch : Buffer.concat([patch, Buffer.from('\n')]));
  const model = await sandbox.exec(APPLY.map((way) => `${way} /tmp/model.patch`).join(' || '), options);
  if (model.exitCode !== 0)
    return {
      log: Buffer.concat([Buffer.from('the patch does not apply\n'), model.output]),
      tests: null,
      timedOut: model.timedOut,
    };
  // Files that the test patch brings are the benchmark's: what the model did to them is put back first.
  const tested = [...task.testPatch.matchAll(/^diff --git a\/(\S+) b\/(\S+)$/gm)].map((match) => match[2]!);
  const back = tested
    .map((file) => `git checkout -q -f HEAD -- ${quote(file)} 2>/dev/null || rm -rf -- ${quote(file)}`)
    .join('\n');
  await sandbox.write('/tmp/test.patch', Buffer.from(task.testPatch));
  const tests = await sandbox.exec(`${back}\ngit apply --verbose /tmp/test.patch`, options);
  if (tests.exitCode !== 0) {
    throw new OrchardError({
      owner: 'task',
      code: 'test_patch',
      id: task.id,
      cause: `the test patch of ${task.id} does not apply: ${tests.output.toString().trim().split('\n').at(-1)}`,
      wayOut: 'see `orchard tasks check`; leave the task out',
    });
  }
  // The patch may print what it likes; the log counts only between marks that it cannot know beforehand.
  const mark = randomBytes(12).toString('hex');
  const result = await sandbox.exec(`echo "begin ${mark}"\n(${task.evaluation.script}\n)\necho "end ${mark} $?"`, {
    timeoutMs: task.evaluation.timeoutMs,
    maxOutputBytes: LOG_BYTES,
    signal,
  });
  const text = result.output.toString();
  const begin = text.indexOf(`begin ${mark}\n`);
  const end = text.lastIndexOf(`end ${mark} `);
  const between = begin >= 0 && end >= 0 ? text.slice(begin + mark.length + 7, end) : '';
  if (!result.timedOut && end < 0) {
    throw new OrchardError({
      owner: 'sandbox',
      code: 'log_lost',
      id: task.id,
      cause: `the tests of ${task.id} ended without their closing mark`,
      wayOut: 'the grading is repeated; see `orchard status --failures`',
    });
  }
  return { log: result.output, tests: between, timedOut: result.timedOut };
}

/** The official rule: resolved when every test of FAIL_TO_PASS and PASS_TO_PASS passed. */
function judgeLog(
  task: Task,
  { tests, timedOut }: Run,
): Pick<Verdict, 'class' | 'resolved' | 'tests'> & Partial<Verdict> {
  const named = [...task.failToPass, ...task.passToPass];
  const parse = parsers[task.evaluation.parser];
  if (!parse) {
    return {
      class: 'unknown',
      resolved: false,
      tests: {},
      failure: {
        owner: 'task',
        code: 'log_parser',
        id: task.id,
        cause: `no log parser ${task.evaluation.parser}`,
        wayOut: `known: ${Object.keys(parsers).join(', ')}`,
      },
    };
  }
  const statuses = tests === null || timedOut ? new Map<string, TestStatus>() : parse(tests);
  const seen = Object.fromEntries(named.map((test) => [test, statuses.get(test) ?? 'missing'] as const));
  return { class: 'graded', resolved: named.length > 0 && named.every((test) => seen[test] === 'passed'), tests: seen };
}

const quote = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
