import { z } from 'zod';
import { benchmarks } from '../benchmarks/index.ts';
import { harnesses } from '../harnesses/index.ts';
import { inferences } from '../inference/index.ts';
import { sandboxes } from '../sandboxes/index.ts';
import { stages } from '../stages/index.ts';
import { trainers } from '../trainers/index.ts';
import { Cluster, plannedInference, plannedSandboxes, plannedTrainers } from './planned.ts';

type Kinds = Record<string, { config: z.ZodType }>;

/** `{kind: NAME, …settings of that kind}` for every entry of a registry. */
function kindOf(registry: Kinds, planned: Record<string, z.ZodType> = {}) {
  const options = [
    ...Object.entries(registry).map(([name, entry]) => [name, entry.config] as const),
    ...Object.entries(planned),
  ].map(([name, config]) => (config as z.ZodObject).safeExtend({ kind: z.literal(name) }));
  return z.discriminatedUnion('kind', options as [z.ZodObject<{ kind: z.ZodLiteral<string> }>]);
}

const benchmark = z.discriminatedUnion(
  'benchmark',
  Object.entries(benchmarks).map(([name, entry]) =>
    (entry.config as z.ZodObject).safeExtend({
      benchmark: z.literal(name),
      train: z.string().default('train').describe('split that episodes are collected on'),
      test: z.string().default('test').describe('split that models are evaluated on'),
      limit: z.number().int().positive().optional().describe('at most this many tasks of each split'),
    }),
  ) as unknown as [
    z.ZodObject<{
      benchmark: z.ZodLiteral<string>;
      train: z.ZodDefault<z.ZodString>;
      test: z.ZodDefault<z.ZodString>;
      limit: z.ZodOptional<z.ZodNumber>;
    }>,
  ],
);

const stageShape = Object.fromEntries(
  Object.entries(stages).map(([name, stage]) => [name, stage.config.optional()]),
) as Record<string, z.ZodOptional<z.ZodType>>;

const StageEntry = z
  .strictObject(stageShape)
  .refine((entry) => Object.values(entry).filter((value) => value !== undefined).length === 1, {
    error: `expected one stage with its settings, one of ${Object.keys(stageShape).join(', ')}`,
  });

/** A recipe after resolving: every value is there, defaults included. */
export const Recipe = z.strictObject({
  name: z.string().regex(/^[a-z0-9][a-z0-9._-]*$/, { error: 'expected lower-case letters, digits, dots, dashes' }),
  seed: z.number().int().default(0),
  model: z.strictObject({
    base: z.string().nullable().describe('folder of the base model; null when the recipe makes it'),
    context: z.number().int().positive().describe('tokens the model may see at once'),
  }),
  tasks: benchmark,
  harness: kindOf(harnesses),
  sandbox: kindOf(sandboxes, plannedSandboxes),
  inference: kindOf(inferences, plannedInference),
  trainer: kindOf(trainers, plannedTrainers),
  teacher: kindOf(inferences, plannedInference).optional().describe('who is imitated; needed by collect'),
  judge: kindOf(inferences, plannedInference)
    .optional()
    .describe('who estimates P(resolve) in failed attempts, and scores the rubric'),
  scorer: kindOf(inferences, plannedInference)
    .optional()
    .describe("a model with the policy's tokenizer whose log-probabilities rl distils from"),
  concurrency: z.number().int().positive().default(8).describe('episodes at a time'),
  limits: z
    .strictObject({
      calls: z.number().int().positive().default(100).describe('model calls per episode'),
      tokens: z.number().int().positive().default(2_000_000).describe('prompt and completion tokens per episode'),
      wallS: z.number().positive().default(1800).describe('seconds per episode'),
      retries: z.number().int().min(0).default(2).describe('further tries after an infrastructure failure'),
      judgeTokens: z.number().int().positive().default(1_000_000_000).describe('what the judge may spend in a stage'),
    })
    .prefault({}),
  cluster: Cluster.optional(),
  stages: z.array(StageEntry).min(1),
});
export type Recipe = z.infer<typeof Recipe>;
