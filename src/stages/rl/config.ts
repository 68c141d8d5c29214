import { z } from 'zod';
import { checkBalance } from '../../algo/balance.ts';
import { rewards } from '../../rewards/index.ts';

const Band = z
  .tuple([z.number().min(0).max(1), z.number().min(0).max(1)])
  .refine(([low, high]) => low <= high, { error: 'expected two numbers between 0 and 1, low to high' });

const Rollout = z
  .strictObject({
    n: z.number().int().positive().default(8).describe('episodes of a group that are trained on'),
    max: z.number().int().positive().default(16).describe('episodes that a prompt may take'),
    stride: z.number().int().positive().default(16).describe('episodes that are started together'),
    band: Band.default([0.375, 0.625]).describe('share of resolved episodes in a group, from and to'),
  })
  .superRefine((settings, context) => {
    const problem = checkBalance(settings);
    if (problem !== null) context.addIssue({ code: 'custom', message: problem });
  });

/** `tests`, or `{rubric: {…}}`: a reward by its name, with settings or without. */
const Reward = z.union([
  z.enum(Object.keys(rewards) as [string, ...string[]]),
  z
    .strictObject(Object.fromEntries(Object.entries(rewards).map(([name, kind]) => [name, kind.config.optional()])))
    .refine((entry) => Object.values(entry).filter((value) => value !== undefined).length === 1, {
      error: 'expected one reward with its settings',
    }),
]);

export const config = z.strictObject({
  name: z.string().default('rl'),
  from: z.string().default('sft').describe('weights that training starts from: base, or a training stage before'),
  pool: z.string().optional().describe('a select stage whose tasks are the prompts; all training tasks when left out'),
  unseenBy: z.array(z.string()).default([]).describe('collect stages whose tasks are left out'),
  steps: z.number().int().positive(),
  episodes: z.number().int().positive().optional().describe('ends with the step in which so many have been run'),
  prompts: z.number().int().positive().describe('groups in a step'),
  oversample: z.number().min(1).default(1.25).describe('prompts begun at once, as a multiple of prompts'),
  rollout: Rollout.prefault({}),
  objective: z.enum(['grpo', 'rloo', 'dr-grpo', 'gspo']).default('grpo'),
  epochs: z.number().int().positive().default(1).describe('times that a batch is trained on'),
  updates: z.number().int().positive().default(1).describe('optimizer steps that a batch is split into'),
  learningRate: z.number().positive().default(1e-6),
  minLearningRate: z.number().min(0).optional().describe('where the cosine ends; constant rate when left out'),
  warmupSteps: z.number().int().min(0).default(0),
  weightDecay: z.number().min(0).default(0.1),
  clip: z
    .tuple([z.number().positive(), z.number().positive()])
    .optional()
    .describe('bounds of the policy ratio below and above 1; 0.2 and 0.28, for gspo 3e-4 and 4e-4'),
  correction: z
    .strictObject({
      truncate: z.number().min(1).optional().describe('largest importance weight of a token, e.g. 2'),
      geometric: z
        .tuple([z.number().positive(), z.number().positive()])
        .nullable()
        .default([0.99, 1.01])
        .describe('rows whose mean ratio lies outside are left out; null for none'),
    })
    .prefault({})
    .describe('for the difference between the sampler and the trainer'),
  maskTruncated: z
    .boolean()
    .default(false)
    .describe('episodes that were cut off count in their group, but are not trained on (DAPO)'),
  temperature: z.number().positive().default(1),
  topP: z
    .literal(1, {
      error:
        'expected 1: under a nucleus the ratio between trainer and sampler is biased, since the sampler gives the probabilities of the whole vocabulary',
    })
    .default(1),
  maxTokensPerCall: z.number().int().positive().default(4096),
  rewards: z.array(Reward).min(1).default(['tests']),
  distill: z
    .strictObject({
      teacher: z
        .string()
        .default('scorer')
        .describe('who scores the tokens: scorer of the recipe, base, or a training stage before'),
      beta: z.number().positive().default(1),
      divergence: z.enum(['k1', 'k2', 'k3', 'js_skew']).default('js_skew'),
      lambda: z.number().gt(0).lt(1).default(0.5).describe('skew of js_skew'),
      into: z.enum(['loss', 'advantage']).default('loss'),
      only: z.boolean().default(false).describe('train on nothing but the teacher'),
    })
    .optional()
    .describe('on-policy distillation from a model with the same tokenizer'),
  staleness: z
    .union([z.literal(0), z.literal(1)])
    .default(0)
    .describe('1: generate a step while the one before trains'),
  checkpointEvery: z.number().int().positive().default(1).describe('optimizer steps between checkpoints'),
  validate: z
    .strictObject({
      every: z.number().int().positive().default(5).describe('steps'),
      tasks: z.number().int().min(0).default(32).describe('training tasks held out for it; 0 for none'),
    })
    .prefault({}),
  stop: z
    .strictObject({
      mismatch: z.number().positive().default(0.1).describe('divergence between sampler and trainer, nats a token'),
      entropy: z.number().min(0).default(0.02).describe("share of the first step's entropy that must be left"),
      infrastructure: z.number().min(0).max(1).default(0.3).describe('share of episodes that failed for other reasons'),
    })
    .prefault({})
    .describe('what ends the training early'),
  seed: z.number().int().optional(),
});
export type Config = z.infer<typeof config>;

/** Bounds of the policy ratio, 1 − low and 1 + high: DAPO's for token ratios, GSPO's for those of sequences. */
export const clipOf = ({ clip, objective }: Config): [number, number] =>
  clip ?? (objective === 'gspo' ? [3e-4, 4e-4] : [0.2, 0.28]);

/** Rewards as name and settings. */
export const rewardsOf = ({ rewards: chosen }: Config): { name: string; settings: unknown }[] =>
  chosen.map((entry) => {
    const given = typeof entry === 'string' ? { [entry]: {} } : entry;
    const [name, settings] = Object.entries(given).find(([, value]) => value !== undefined)!;
    return { name, settings: rewards[name]!.config.parse(settings) };
  });
