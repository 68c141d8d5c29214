import type { z } from 'zod';
import type { Blobs } from '../core/blobs.ts';
import type { RubricScores } from '../records/rubric.ts';
import type { Task } from '../records/task.ts';
import type { Verdict } from '../records/verdict.ts';
import type { ChatMessage, Script } from './inference.ts';
import type { SandboxDriver } from './sandbox.ts';

export interface GradeContext {
  sandboxes: SandboxDriver;
  blobs: Blobs;
  /** Limits of the grading sandbox. */
  memoryMiB: number;
  processes: number;
  signal: AbortSignal;
}

/** One document for pretraining: a conversation, rendered with the model's chat template. */
export interface Document {
  messages: ChatMessage[];
}

export interface Benchmark<C = unknown> {
  name: string;
  config: z.ZodType<C>;
  /** @throws OrchardError owner `user`, naming row and field, when rows cannot be read */
  tasks(config: C, split: string): Promise<Task[]>;
  /**
   * Grades a patch in a fresh sandbox. Never throws for what a patch does; sandbox trouble becomes class
   * `infrastructure`, tests that cannot be read become `unknown`.
   */
  grade(task: Task, patch: Buffer, context: GradeContext & { episode: string }): Promise<Verdict>;
  /** A teacher and judges written by hand, for runs without any large model. */
  scripted?: { teacher: Script; judge: ScriptedJudge; rubric: ScriptedRubric };
  /** Text for pretraining a base model; never shows a task of any split. */
  corpus?(options: { documents: number; seed: number; system: string }): Iterable<Document>;
}

/** What a judge sees of an episode. */
export interface JudgedEpisode {
  task: Task;
  messages: ChatMessage[];
  patch: Buffer | null;
  verdict: Verdict;
}

/** P(resolve) in [0, 1] in the state before assistant turn `step`; the number of turns stands for the end. */
export type ScriptedJudge = (episode: JudgedEpisode) => { step: number; value: number }[];

/** Scores of the rubric's items, whatever the verdict says. */
export type ScriptedRubric = (episode: Omit<JudgedEpisode, 'verdict'>) => RubricScores;
