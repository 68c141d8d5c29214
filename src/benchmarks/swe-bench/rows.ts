import { userError } from '../../core/errors.ts';
import type { Task } from '../../records/task.ts';
import { isRefused, readInstance } from './sources.ts';

/**
 * Rows to tasks that are graded here: each needs a workspace, a script that runs its tests, and a parser for its log.
 * @throws OrchardError owner `user`, naming the row and the field that is wrong
 */
export function rowsToTasks(rows: unknown[], { benchmark, source }: { benchmark: string; source: string }): Task[] {
  const seen = new Set<string>();
  return rows.map((row, index) => {
    const instance = readInstance(row, { index });
    const refuse = (cause: string): never => {
      throw userError(
        instance.id,
        `${source}: ${instance.id}: ${cause}`,
        'mend the row or take it out of the data set',
      );
    };
    if (isRefused(instance)) return refuse(`${instance.field}: ${instance.cause}`);
    if (seen.has(instance.id)) return refuse('occurs twice');
    seen.add(instance.id);
    const { workspace, evalScript, logParser } = instance;
    if (evalScript === null) return refuse('eval_script: missing');
    if (logParser === null) return refuse('log_parser: missing');
    if (workspace === null) return refuse('has neither files nor image');
    return {
      v: 'orchard.task/1',
      id: instance.id,
      benchmark,
      repo: instance.repo,
      baseCommit: instance.baseCommit,
      statement: instance.statement,
      workspace,
      goldPatch: instance.goldPatch,
      testPatch: instance.testPatch,
      failToPass: instance.failToPass,
      passToPass: instance.passToPass,
      evaluation: { script: evalScript, parser: logParser, timeoutMs: instance.evalTimeoutMs },
      rowSha256: instance.rowSha256,
    };
  });
}
