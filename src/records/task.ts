import { z } from 'zod';

/** Where the repository of a task comes from. */
export const Workspace = z.discriminatedUnion('kind', [
  /** The files of the base commit, path to text. The driver makes a git repository of them. */
  z.strictObject({ kind: z.literal('files'), files: z.record(z.string(), z.string()) }),
  /** A container image that holds the repository at `workdir`. */
  z.strictObject({ kind: z.literal('image'), image: z.string(), workdir: z.string() }),
]);
export type Workspace = z.infer<typeof Workspace>;

/** One repository task: a row of SWE-bench or a relative, in orchard's own words. */
export const Task = z.strictObject({
  v: z.literal('orchard.task/1'),
  id: z.string(),
  benchmark: z.string(),
  repo: z.string(),
  baseCommit: z.string(),
  statement: z.string(),
  workspace: Workspace,
  goldPatch: z.string(),
  testPatch: z.string(),
  failToPass: z.array(z.string()),
  passToPass: z.array(z.string()),
  evaluation: z.strictObject({
    /** Shell script, run in the workspace after both patches are applied. Its output is the log. */
    script: z.string(),
    /** Name of the log parser, e.g. `unittest`. */
    parser: z.string(),
    timeoutMs: z.number().int().positive(),
  }),
  /** sha256 of the source row: attempts are of the same task only if these agree. */
  rowSha256: z.string(),
});
export type Task = z.infer<typeof Task>;
