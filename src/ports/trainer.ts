import type { z } from 'zod';
import type { Weights } from '../records/weights.ts';

/** `trainer.json`: what one training job does. Written by orchard, read by the trainer's process. */
export interface TrainerConfig {
  v: 'orchard.trainer/1';
  /** A language model that acts, or a head on one that says how likely an attempt is to be right. */
  task: 'policy' | 'value';
  /** Folder of the initial weights (Hugging Face layout). */
  model: string;
  /** Folder with `step_000000/…`; each is consumed once its READY exists. */
  batches: string;
  /** Number of batch folders to consume; the job is done after the last one. */
  steps: number;
  /** Passes over each batch folder. */
  epochs: number;
  /** Rows per optimizer step, over all processes. */
  batchRows: number;
  /** Optimizer steps that every batch folder is split into, instead of by rows; null for by rows. */
  updates: number | null;
  /** Stop after this many trained tokens, the last epoch cut short; null for no limit. */
  trainedTokens: number | null;
  learningRate: number;
  minLearningRate: number;
  schedule: 'cosine' | 'constant';
  warmupSteps: number;
  weightDecay: number;
  betas: [number, number];
  maxGradNorm: number;
  precision: 'fp32' | 'bf16';
  /** Tokens per forward pass of one process: the knob against running out of memory. */
  microTokens: number;
  checkpointEverySteps: number;
  keepCheckpoints: number;
  /** Publish weights after every this many batch folders, and at the end. */
  publishEvery: number;
  /** Publish a value model as ONNX too. */
  onnx: boolean;
  /** Prefix of the published version, e.g. `sft` gives `sft@v_000001`. */
  versionPrefix: string;
  seed: number;
  /** How long to wait for the next READY before giving up, naming it. */
  waitTimeoutS: number;
}

/** A line of metrics.jsonl or events.jsonl. */
export type TrainerLine = { event: string; time: number; step?: number; [key: string]: unknown };

export interface TrainJob {
  /** Output folder: trainer.json, weights/, checkpoints/, metrics.jsonl, events.jsonl, state.json. */
  dir: string;
  config: TrainerConfig;
  onLine: (line: TrainerLine) => void;
  signal: AbortSignal;
}

export interface Trainer {
  /**
   * Runs the job, or continues it from its last checkpoint when `dir` holds one.
   * Resolves with the last published weights.
   * @throws OrchardError owner `user` for exit 42 (wrong configuration or data), `trainer` otherwise
   */
  train(job: TrainJob): Promise<Weights>;
}

export interface TrainerKind<C = unknown> {
  name: string;
  config: z.ZodType<C>;
  /** `python` is the interpreter of the trainer's environment. */
  open(config: C, context: { python: string }): Trainer;
}
