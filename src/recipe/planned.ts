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
