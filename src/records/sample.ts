import { z } from 'zod';

/** Why a sample starts where it starts (see algo/merge). */
export const RootReason = z.enum(['start', 'rewrite', 'compaction', 'subagent', 'drift', 'tail']);
export type RootReason = z.infer<typeof RootReason>;

/** One training row: token ids, what the policy sampled, and how much each of its tokens counts. */
export const Sample = z.strictObject({
  v: z.literal('orchard.sample/1'),
  id: z.string(),
  episode: z.string(),
  task: z.string(),
  /** [T] token ids. */
  tokens: z.array(z.number().int()),
  /** [T] 1 where the policy sampled the token. */
  mask: z.array(z.number().int()),
  /** [T] credit weight of each token in the loss; 0 outside the mask. */
  weights: z.array(z.number()),
  /** [T] log-probability at sampling time, 0 outside the mask; null when the engine gave none. */
  logprobs: z.array(z.number()).nullable(),
  /** Which call put which tokens: prompt is [from, promptEnd), completion [promptEnd, to). */
  segments: z.array(
    z.strictObject({
      call: z.string(),
      from: z.number().int(),
      promptEnd: z.number().int(),
      to: z.number().int(),
      trained: z.boolean(),
    }),
  ),
  rootReason: RootReason,
  /** Trained tokens of this sample over those of its episode: lets a trainer weigh per episode. */
  episodeShare: z.number(),
  /** `engine` ids may be trained with RL; `retokenized` ones only with SFT. */
  source: z.enum(['engine', 'retokenized']),
});
export type Sample = z.infer<typeof Sample>;
