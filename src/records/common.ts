import { z } from 'zod';

/** Who a failure belongs to. None of them is the model: only graded attempts and empty patches count against that. */
export const Owner = z.enum(['provider', 'harness', 'sandbox', 'task', 'reward', 'trainer', 'user']);
export type Owner = z.infer<typeof Owner>;

/** One failure as it is kept with an episode or a verdict and shown by `orchard status --failures`. */
export const Failure = z.strictObject({
  owner: Owner,
  /** A stable word for the kind of failure, e.g. `model_unreachable`, `sandbox_start`. */
  code: z.string(),
  /** What it happened to: a task, episode, call, file or port. */
  id: z.string(),
  /** What went wrong, one sentence. */
  cause: z.string(),
  /** What the user can do about it. */
  wayOut: z.string(),
});
export type Failure = z.infer<typeof Failure>;

/** A content-addressed blob in the run's blob store. */
export const BlobRef = z.strictObject({ sha256: z.string(), bytes: z.number().int() });
export type BlobRef = z.infer<typeof BlobRef>;

/** Milliseconds since the Unix epoch. */
export const EpochMs = z.number().int();
