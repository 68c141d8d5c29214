import { join } from 'node:path';
import type { z } from 'zod';
import type { Blobs } from '../core/blobs.ts';
import { userError } from '../core/errors.ts';
import { isReady } from '../core/folder.ts';
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
  /** null: the benchmark's scripted judge. */
  openJudge: ((dir: string) => Promise<Inference>) | null;
  trainer: Trainer;
  trainerDefaults: { precision: 'fp32' | 'bf16'; microTokens: number; checkpointEverySteps: number };
  /** The process of `orchard_trainer`, for making a model from scratch. */
  python: string;
  concurrency: number;
  limits: { calls: number; tokens: number; wallS: number; retries: number; judgeTokens: number };
  blobs: Blobs;
  progress: Progress;
  signal: AbortSignal;
}

export type Result = 'episodes' | 'weights' | 'rows';

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
  gives: Result;
  /** The stages it reads, and what it reads of each. */
  needs(config: C): { stage: string; result: Result }[];
  /** What it will do, one line each, for `orchard plan`. */
  plan(config: C): string[];
  /** Does it, or goes on with it. The caller writes READY. */
  run(context: StageContext, config: C): Promise<void>;
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
