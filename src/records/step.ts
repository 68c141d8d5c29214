import { z } from 'zod';
import { EpochMs } from './common.ts';

const Count = z.number().int().min(0);
const Share = z.number().min(0).max(1);

/** What one step of reinforcement learning did: a line of the stage's steps.jsonl, written once the step is trained. */
export const RlStep = z.strictObject({
  v: z.literal('orchard.step/1'),
  /** From 0. */
  step: Count,
  /** Version that wrote the episodes, and how many versions older it is than the weights they were trained into. */
  version: z.string(),
  staleness: Count,
  /** Resolved over scored attempts, of all episodes of the step. */
  resolveRate: Share,
  /** Mean shaped reward of the selected episodes, and of each of its parts. */
  reward: z.number(),
  rewardParts: z.record(z.string(), z.number()),
  groups: z.strictObject({
    kept: Count,
    /** Reason to count. */
    dropped: z.record(z.string(), Count),
    /** How the kept groups came about: early, last, relaxed, best_effort. */
    ends: z.record(z.string(), Count),
  }),
  episodes: z.strictObject({
    run: Count,
    /** Selected into a kept group. */
    trained: Count,
    aborted: Count,
    infrastructure: Count,
  }),
  tokens: z.strictObject({ prompt: Count, sampled: Count, trained: Count }),
  /** Mean negative log-probability of the sampled tokens, an estimate of the policy's entropy in nats. */
  entropy: z.number(),
  /** k3 estimate of the divergence between sampler and trainer, before and while the step was trained. */
  mismatch: z.number(),
  /** Quantiles of the ratio between trainer and sampler. */
  ratio: z.strictObject({ p01: z.number(), p50: z.number(), p99: z.number() }),
  /** Tokens whose gradient was clipped away, and rows that the geometric mask left out. */
  clipped: Share,
  masked: Share,
  /** Mean divergence from the distillation teacher; null without one. Samples that it failed on. */
  distill: z.number().nullable(),
  teacherFailures: Count,
  judgeFailures: Count,
  loss: z.number(),
  gradNorm: z.number(),
  learningRate: z.number(),
  seconds: z.strictObject({
    rollout: z.number(),
    reward: z.number(),
    teacher: z.number(),
    batch: z.number(),
    train: z.number(),
    load: z.number(),
    total: z.number(),
  }),
  /** Shares of the step in which the trainer had nothing to train, and the sampler nothing to sample. */
  waited: z.strictObject({ trainer: Share, sampler: Share }),
  /** Resolve rate on the validation tasks with the weights of this step; null where it was not measured. */
  validation: Share.nullable(),
  endedAt: EpochMs,
});
export type RlStep = z.infer<typeof RlStep>;
