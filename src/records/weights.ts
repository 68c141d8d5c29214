import { z } from 'zod';

/** Published weights: a folder in Hugging Face layout with `STABLE` written last. */
export const Weights = z.strictObject({
  /** Absolute path of the folder. */
  path: z.string(),
  /** The version an engine must report when it answers with them, e.g. `sft@v_000001`. */
  version: z.string(),
});
export type Weights = z.infer<typeof Weights>;
