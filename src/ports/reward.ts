import type { z } from 'zod';
import type { Task } from '../records/task.ts';
import type { JudgedEpisode, ScriptedRubric } from './benchmark.ts';
import type { ChatMessage } from './inference.ts';

/** What a reward says about one episode. Rewards of a recipe are added up. */
export interface RewardValue {
  value: number;
  /** What the value is made of, by name, for the record. */
  parts: Record<string, number>;
  /** Why a part is missing, which is then 0. */
  problem: string | null;
}

export interface RewardContext {
  /** Asks the recipe's judge; null where the benchmark's scripted one is to be used. */
  ask:
    | ((question: { id: string; messages: ChatMessage[] }) => Promise<{ text: string; problem: string | null }>)
    | null;
  scripted: ScriptedRubric | null;
  /** A task to try the judge with. */
  sample: Task;
}

/** Scores an episode whose tests have spoken. Never throws for what an episode did. */
export type Reward = (episode: JudgedEpisode & { id: string }) => Promise<RewardValue>;

export interface RewardKind<C = unknown> {
  name: string;
  config: z.ZodType<C>;
  /** @throws OrchardError owner `user` when what it needs is not there or does not answer as it must */
  open(config: C, context: RewardContext): Promise<Reward>;
}
