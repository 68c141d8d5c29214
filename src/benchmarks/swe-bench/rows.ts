import { z } from 'zod';
import { userError } from '../../core/errors.ts';
import { sha256 } from '../../core/hash.ts';
import type { Task } from '../../records/task.ts';

/** A list, as JSON, as JSON text, or as a Python literal: published data sets have all three. */
const TestList = z.union([z.array(z.string()), z.string()]).transform((value, context): string[] => {
  if (typeof value !== 'string') return value;
  for (const text of [value, pythonToJson(value)]) {
    try {
      const parsed: unknown = JSON.parse(text);
      if (Array.isArray(parsed) && parsed.every((each) => typeof each === 'string')) return parsed;
    } catch {
      // the other reading may fit
    }
  }
  context.addIssue({ code: 'custom', message: 'expected a list of test names' });
  return [];
});

/** A Python list of strings as JSON: quotes exchanged, those inside kept. */
function pythonToJson(text: string): string {
  return text.replaceAll(
    /'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"/g,
    (_, single: string | undefined, double: string | undefined) =>
      JSON.stringify((single ?? double ?? '').replaceAll(/\\(['"\\])/g, '$1')),
  );
}

/** A row in SWE-bench's format with where its repository is and how its tests are run and read. */
const Row = z.looseObject({
  instance_id: z.string().min(1),
  repo: z.string(),
  base_commit: z.string(),
  problem_statement: z.string(),
  patch: z.string(),
  test_patch: z.string(),
  FAIL_TO_PASS: TestList,
  PASS_TO_PASS: TestList,
  files: z.record(z.string(), z.string()).optional(),
  image: z.string().optional(),
  workdir: z.string().default('/testbed'),
  eval_script: z.string().min(1),
  log_parser: z.string().min(1),
  eval_timeout_s: z.number().positive().default(1800),
});

/**
 * Rows to tasks.
 * @throws OrchardError owner `user`, naming the row and the field that is wrong
 */
export function rowsToTasks(rows: unknown[], { benchmark, source }: { benchmark: string; source: string }): Task[] {
  const seen = new Set<string>();
  return rows.map((row, index) => {
    const parsed = Row.safeParse(row);
    const id = String((row as { instance_id?: unknown } | null)?.instance_id ?? `row ${index + 1}`);
    const refuse = (cause: string): never => {
      throw userError(id, `${source}: ${id}: ${cause}`, 'mend the row or take it out of the data set');
    };
    if (!parsed.success) {
      const [issue] = parsed.error.issues;
      return refuse(`${issue?.path.join('.') || 'row'}: ${issue?.message}`);
    }
    const { data } = parsed;
    if (seen.has(data.instance_id)) return refuse('occurs twice');
    seen.add(data.instance_id);
    if (data.FAIL_TO_PASS.length === 0) return refuse('FAIL_TO_PASS: no test that the patch has to make pass');
    if (data.files === undefined && data.image === undefined) return refuse('has neither files nor image');
    return {
      v: 'orchard.task/1',
      id: data.instance_id,
      benchmark,
      repo: data.repo,
      baseCommit: data.base_commit,
      statement: data.problem_statement,
      workspace: data.files
        ? { kind: 'files', files: data.files }
        : { kind: 'image', image: data.image!, workdir: data.workdir },
      goldPatch: data.patch,
      testPatch: data.test_patch,
      failToPass: data.FAIL_TO_PASS,
      passToPass: data.PASS_TO_PASS,
      evaluation: { script: data.eval_script, parser: data.log_parser, timeoutMs: data.eval_timeout_s * 1000 },
      rowSha256: sha256(JSON.stringify(row)),
    };
  });
}
