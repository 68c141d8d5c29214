import type { z } from 'zod';
import type { Episode } from '../records/episode.ts';
import type { Verdict } from '../records/verdict.ts';

export interface RewardValue {
  value: number;
  parts: Record<string, number>;
}

export interface RewardKind<C = unknown> {
  name: string;
  config: z.ZodType<C>;
  /** null when the attempt was not graded: infrastructure failures have no reward. */
  open(config: C): (episode: Episode, verdict: Verdict) => Promise<RewardValue | null>;
}
