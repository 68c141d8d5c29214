import { z } from 'zod';

/**
 * Parts of the recipe that this version can plan but not run. Their settings are checked like any others, so that
 * a recipe for a cluster is already valid; `orchard run` names what is not there yet and starts nothing.
 */
export const plannedTrainers = {
  kubernetes: z.strictObject({
    precision: z.enum(['fp32', 'bf16']).default('bf16'),
    nodes: z.number().int().positive().default(1),
    gpus: z.number().int().positive().default(8),
    microTokens: z.number().int().positive().default(16384),
    checkpointEverySteps: z.number().int().positive().default(50),
  }),
};

export const plannedInference = {
  vllm: z.strictObject({
    replicas: z.number().int().positive().default(1),
    gpus: z.number().int().positive().default(1),
    toolParser: z.string().default('qwen3_coder'),
    maxModelTokens: z.number().int().positive().default(65536),
  }),
};

export const plannedSandboxes = {
  kubernetes: z.strictObject({
    network: z.enum(['none', 'open']).default('none'),
    cpus: z.number().positive().default(2),
    memoryMiB: z.number().int().positive().default(8192),
    processes: z.number().int().positive().default(1024),
    runtimeClass: z.string().optional(),
  }),
};

export const Cluster = z.strictObject({
  context: z.string().optional().describe('kubeconfig context; the current one when left out'),
  namespace: z.string().default('orchard'),
  runVolume: z.string().default('orchard-runs').describe('a ReadWriteMany PersistentVolumeClaim that holds runs/'),
  queue: z.string().optional().describe('a Kueue LocalQueue'),
  images: z.strictObject({ driver: z.string(), trainer: z.string(), inference: z.string() }),
});

const Band = z
  .tuple([z.number().min(0).max(1), z.number().min(0).max(1)])
  .refine(([low, high]) => low <= high, { error: 'expected two numbers between 0 and 1, low to high' });

/** Balanced adaptive rollout, objectives and dense rewards (Orchard paper, algorithm 1). */
export const Rl = z.strictObject({
  name: z.string().default('rl'),
  from: z.string().optional(),
  steps: z.number().int().positive(),
  prompts: z.number().int().positive(),
  rollout: z
    .strictObject({
      n: z.number().int().positive().default(8),
      max: z.number().int().positive().default(16),
      stride: z.number().int().positive().default(16),
      band: Band.default([0.375, 0.625]),
    })
    .prefault({}),
  objective: z.enum(['grpo', 'rloo', 'dr-grpo', 'gspo']).default('grpo'),
  learningRate: z.number().positive().default(1e-6),
  clip: z.tuple([z.number(), z.number()]).default([0.2, 0.28]),
  temperature: z.number().positive().default(1),
  topP: z.number().positive().max(1).default(1),
  rewards: z
    .array(z.union([z.literal('tests'), z.strictObject({ rubric: z.strictObject({ weight: z.number() }) })]))
    .default(['tests']),
  distill: z
    .strictObject({
      teacher: z.string(),
      beta: z.number().default(1),
      divergence: z.enum(['k1', 'k2', 'k3', 'js_skew']).default('js_skew'),
    })
    .optional(),
});

export const Value = z.strictObject({
  name: z.string().default('value'),
  base: z.string().optional(),
  epochs: z.number().int().positive().default(2),
  learningRate: z.number().positive().default(1e-5),
});

export const Rerank = z.strictObject({
  name: z.string().default('rerank'),
  candidates: z.number().int().positive().default(4),
  value: z.string().default('value'),
});
