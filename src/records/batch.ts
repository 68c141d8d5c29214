import { z } from 'zod';

/** Streams of a batch and their element types. All are flat over tokens but `row_offsets` (rows + 1) and `label` (rows). */
export const STREAMS = {
  ids: 'I32',
  mask: 'U8',
  weight: 'F32',
  advantage: 'F32',
  sampler_logprob: 'F32',
  reference_logprob: 'F32',
  reference_mask: 'U8',
  label: 'F32',
  row_offsets: 'I64',
} as const;
export type StreamName = keyof typeof STREAMS;

/**
 * Manifest of a batch folder: the only thing a trainer reads. Token streams lie beside it in safetensors shards;
 * `READY` is written last. SFT has ids, mask and weight; RL adds advantage and sampler_logprob; distillation
 * adds reference_logprob and reference_mask; the value model has label.
 */
export const BatchManifest = z.strictObject({
  v: z.literal('orchard.batch/1'),
  kind: z.enum(['sft', 'rl', 'value']),
  step: z.number().int(),
  policy_version: z.string().nullable(),
  sampling: z.strictObject({ temperature: z.number(), top_p: z.number() }).nullable(),
  loss: z.strictObject({
    name: z.string(),
    params: z.record(z.string(), z.union([z.number(), z.string(), z.boolean()])),
  }),
  streams: z.array(z.string()),
  rows: z.number().int(),
  tokens: z.strictObject({ total: z.number().int(), trained: z.number().int(), weight: z.number() }),
  shards: z.array(
    z.strictObject({ name: z.string(), sha256: z.string(), rows: z.number().int(), tokens: z.number().int() }),
  ),
});
export type BatchManifest = z.infer<typeof BatchManifest>;
