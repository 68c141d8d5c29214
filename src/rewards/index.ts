import type { RewardKind } from '../ports/reward.ts';
import { rubric } from './rubric.ts';
import { tests } from './tests.ts';

export const rewards: Record<string, RewardKind> = {
  tests: tests as RewardKind,
  rubric: rubric as RewardKind,
};
