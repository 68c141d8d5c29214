import { forEachLimited } from '../../core/limit.ts';
import type { Benchmark, GradeContext } from '../../ports/benchmark.ts';
import type { Task } from '../../records/task.ts';

/** The gold patch is graded this often: once would not see a flaky test. */
const GOLD_RUNS = 3;

/** A patch that changes nothing the tests see, so that the untouched repository is graded. */
const UNTOUCHED = Buffer.from(
  'diff --git a/.orchard-untouched b/.orchard-untouched\nnew file mode 100644\n--- /dev/null\n+++ b/.orchard-untouched\n@@ -0,0 +1 @@\n+untouched\n',
);

/** Proves that the gold patch resolves each task, several times, and the untouched repository does not. */
export async function checkTasks(
  tasks: Task[],
  {
    benchmark,
    context,
    concurrency,
    onProgress,
  }: { benchmark: Benchmark; context: GradeContext; concurrency: number; onProgress: (done: number) => void },
): Promise<{ task: string; problem: string }[]> {
  const problems: { task: string; problem: string }[] = [];
  let done = 0;
  await forEachLimited(tasks, { concurrency, signal: context.signal }, async (task) => {
    const problem = await problemOf(task, { benchmark, context });
    if (problem) problems.push({ task: task.id, problem });
    onProgress(++done);
  });
  context.signal.throwIfAborted();
  return problems.sort((a, b) => (a.task < b.task ? -1 : 1));
}

async function problemOf(
  task: Task,
  { benchmark, context }: { benchmark: Benchmark; context: GradeContext },
): Promise<string | null> {
  for (let run = 1; run <= GOLD_RUNS; run++) {
    const gold = await benchmark.grade(task, Buffer.from(task.goldPatch), {
      ...context,
      episode: `${task.id}:gold:${run}`,
    });
    if (!gold.resolved) {
      const failing = Object.entries(gold.tests).filter(([, status]) => status !== 'passed');
      const log = gold.log ? (await context.blobs.get(gold.log.sha256)).toString().trim().split('\n') : [];
      return `gold does not resolve it in run ${run}: ${gold.failure?.cause ?? failing.map(([test, status]) => `${status} ${test}`).join(', ')}${
        log.length > 0
          ? `\n  its log:\n${log
              .slice(-12)
              .map((line) => `    ${line}`)
              .join('\n')}`
          : ''
      }`;
    }
  }
  const untouched = await benchmark.grade(task, UNTOUCHED, { ...context, episode: `${task.id}:untouched` });
  if (untouched.failure) return `the untouched repository cannot be graded: ${untouched.failure.cause}`;
  if (untouched.resolved) return 'the untouched repository already resolves it';
  const passing = task.failToPass.filter((test) => untouched.tests[test] === 'passed');
  if (passing.length > 0) return `passes without the patch: ${passing.join(', ')}`;
  const broken = task.passToPass.filter((test) => untouched.tests[test] !== 'passed');
  return broken.length > 0
    ? `fails without the patch, though it should pass before and after: ${broken.join(', ')}`
    : null;
}
