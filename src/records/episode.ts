import { z } from 'zod';
import { BlobRef, EpochMs, Failure } from './common.ts';

/** How an episode ended. `failed` is infrastructure: it is retried, excluded and never trained on. */
export const EndKind = z.enum([
  'submitted',
  'call_limit',
  'token_limit',
  'time_limit',
  'context_limit',
  'format_limit',
  'aborted',
  'failed',
]);
export type EndKind = z.infer<typeof EndKind>;

/** One attempt at a task: a harness in a sandbox, talking to a model through the proxy. */
export const Episode = z.strictObject({
  v: z.literal('orchard.episode/1'),
  /** Deterministic from stage, task and attempt, so that a resumed stage knows what is done. */
  id: z.string(),
  /** Unique per execution. Calls of an execution that was killed carry another session and are ignored. */
  session: z.string(),
  task: z.string(),
  attempt: z.number().int(),
  harness: z.strictObject({ name: z.string(), version: z.string() }),
  model: z.strictObject({ name: z.string(), version: z.string() }),
  sampling: z.strictObject({ temperature: z.number(), topP: z.number() }),
  end: z.strictObject({ kind: EndKind, detail: z.string(), failure: Failure.optional() }),
  calls: z.number().int(),
  tokens: z.strictObject({ prompt: z.number().int(), completion: z.number().int() }),
  /** The difference to the base commit; null when there was none or it could not be taken. */
  patch: BlobRef.nullable(),
  /** Tool calls that named a tool the harness does not define, or that it could not parse. */
  oddities: z.strictObject({ unknownTools: z.number().int(), unparsable: z.number().int() }),
  startedAt: EpochMs,
  endedAt: EpochMs,
});
export type Episode = z.infer<typeof Episode>;
