import { z } from 'zod';
import { BlobRef, EpochMs } from './common.ts';

export const CallKind = z.enum(['main', 'subagent', 'compaction', 'title', 'count', 'probe', 'other']);
export type CallKind = z.infer<typeof CallKind>;

/** Token ids of one call, from the engine. Prompt ids are stored as a difference to an earlier call's sequence. */
export const CallTokens = z.strictObject({
  source: z.enum(['engine', 'none']),
  /** The first `keep` ids of prompt+completion of call `base`, then `tail`. */
  prompt: z.strictObject({ base: z.string().nullable(), keep: z.number().int(), tail: z.array(z.number().int()) }),
  completion: z.array(z.number().int()),
  /** Log-probabilities (nats) of the completion ids at the sampling temperature. */
  logprobs: z.array(z.number()).nullable(),
  /** Policy version that produced the completion, as the engine reported it. */
  version: z.string().nullable(),
});
export type CallTokens = z.infer<typeof CallTokens>;

/** One model request received by the proxy. */
export const Call = z.strictObject({
  v: z.literal('orchard.call/1'),
  id: z.string(),
  episode: z.string(),
  session: z.string(),
  seq: z.number().int(),
  api: z.enum(['chat']),
  stream: z.boolean(),
  /** The request body as received, and the engine's reply body as received. */
  request: BlobRef,
  response: BlobRef.nullable(),
  /** Status told to the harness. */
  status: z.number().int(),
  kind: CallKind,
  /** Conversation thread and its parent, where the harness says so in headers. */
  thread: z.string().nullable(),
  parentThread: z.string().nullable(),
  finish: z.enum(['stop', 'length', 'tool_calls', 'abort', 'error']),
  tokens: CallTokens,
  usage: z.strictObject({ prompt: z.number().int(), completion: z.number().int() }),
  /** Each try upstream, the last one last. */
  upstream: z.array(
    z.strictObject({ status: z.number().int().nullable(), error: z.string().nullable(), ms: z.number() }),
  ),
  delivered: z.enum(['full', 'partial', 'none']),
  startedAt: EpochMs,
  endedAt: EpochMs,
});
export type Call = z.infer<typeof Call>;
