import { join } from 'node:path';
import type { z } from 'zod';
import type { Blobs } from '../core/blobs.ts';
import { userError } from '../core/errors.ts';
import { isReady, readJson } from '../core/folder.ts';
import type { Progress } from '../core/progress.ts';
import type { Benchmark } from '../ports/benchmark.ts';
import type { Harness } from '../ports/harness.ts';
import type { Inference } from '../ports/inference.ts';
import type { SandboxDriver } from '../ports/sandbox.ts';
import type { Trainer } from '../ports/trainer.ts';
import type { Task } from '../records/task.ts';
import type { Weights } from '../records/weights.ts';

export interface Sampling {
  temperature: number;
  topP: number;
  maxTokensPerCall: number;
}

/** What a stage works with. The recipe makes it; stages never see the recipe itself. */
export interface StageContext {
  runDir: string;
  runName: string;
  seed: number;
  base: Weights | null;
  contextTokens: number;
  benchmark: Benchmark;
  /** Tasks of a split, limited as the recipe says. */
  tasks(split: 'train' | 'test'): Promise<Task[]>;
  harness: Harness;
  openSandboxes(): Promise<SandboxDriver>;
  sandbox: { network: 'none' | 'open'; memoryMiB: number; processes: number };
  /** Starts the recipe's engine on weights. */
  openInference(weights: Weights, dir: string): Promise<Inference>;
  openTeacher(dir: string): Promise<Inference>;
  /** Who scores a policy's tokens for distillation. */
  openScorer(dir: string): Promise<Inference>;
  /** null: the benchmark's scripted judge. */
  openJudge: ((dir: string) => Promise<Inference>) | null;
  trainer: Trainer;
  trainerDefaults: { precision: 'fp32' | 'bf16'; microTokens: number; checkpointEverySteps: number };
  /** Value of an environment variable that the recipe names. */
  secret(name: string): string | undefined;
  /** The process of `orchard_trainer`, for making a model from scratch. */
  python: string;
  concurrency: number;
  limits: { calls: number; tokens: number; wallS: number; retries: number; judgeTokens: number };
  blobs: Blobs;
  progress: Progress;
  signal: AbortSignal;
}

export type Result = 'tasks' | 'episodes' | 'weights' | 'pool' | 'value' | 'rows';

/** Reading the weights that a name stands for; the base model's need no stage. */
export const weightsNeeded = (name: string): { stage: string; result: Result }[] =>
  name === 'base' ? [] : [{ stage: name, result: 'weights' }];

/** One step of the recipe: a folder of its own under the run, planned, run, and finished by READY. */
export interface Stage<C = unknown> {
  config: z.ZodType<C>;
  /** Name of the folder, unique in a recipe. */
  nameOf(config: C): string;
  /** Split whose tasks it works on. */
  split?: 'train' | 'test';
  /** What it leaves for later stages. */
  gives: Result[];
  /** The stages it reads, and what it reads of each. */
  needs(config: C): { stage: string; result: Result }[];
  /** What it will do, one line each, for `orchard plan`. */
  plan(config: C): string[];
  /** Does it, or goes on with it. The caller writes READY. */
  run(context: StageContext, config: C): Promise<void>;
}

/**
 * Training tasks that none of these stages has worked on.
 * @throws OrchardError owner `user` when one has not been run, or nothing is left
 */
export async function tasksWithout(context: StageContext, names: string[]): Promise<Task[]> {
  const used = new Set<string>();
  for (const name of names) {
    const ids = (await readJson(join(finishedStage(context, name), 'tasks.json'))) as Record<string, string>;
    for (const id of Object.keys(ids)) used.add(id);
  }
  const left = (await context.tasks('train')).filter(({ id }) => !used.has(id));
  if (left.length === 0)
    throw userError(
      'unseenBy',
      `no training task is left that ${names.join(' and ')} did not work on`,
      'give the recipe more training tasks, or let those stages work on fewer (collect.tasks)',
    );
  return left;
}

export const stageDir = (runDir: string, name: string): string => join(runDir, name);

/** Folder of a finished stage. @throws OrchardError owner `user` when it has not been run */
export function finishedStage(context: StageContext, name: string): string {
  const dir = stageDir(context.runDir, name);
  if (!isReady(dir))
    throw userError(
      name,
      `stage ${name} of run ${context.runName} is not finished`,
      `run it first: orchard run ${context.runName}`,
    );
  return dir;
}
