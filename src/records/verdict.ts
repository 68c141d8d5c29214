import { z } from 'zod';
import { BlobRef, Failure } from './common.ts';

/**
 * What the tests said about a patch. Four classes that are never mixed: only `graded` carries `resolved`,
 * and only a graded attempt may count as a failure of the model besides `empty_patch`.
 */
export const VerdictClass = z.enum(['graded', 'empty_patch', 'infrastructure', 'unknown']);
export type VerdictClass = z.infer<typeof VerdictClass>;

export const TestStatus = z.enum(['passed', 'failed', 'error', 'skipped', 'missing']);
export type TestStatus = z.infer<typeof TestStatus>;

export const Verdict = z.strictObject({
  v: z.literal('orchard.verdict/1'),
  episode: z.string(),
  task: z.string(),
  class: VerdictClass,
  resolved: z.boolean(),
  /** Status of every test named in FAIL_TO_PASS and PASS_TO_PASS. */
  tests: z.record(z.string(), TestStatus),
  log: BlobRef.nullable(),
  ms: z.number(),
  /** Set for `infrastructure` and `unknown`. */
  failure: Failure.optional(),
});
export type Verdict = z.infer<typeof Verdict>;
