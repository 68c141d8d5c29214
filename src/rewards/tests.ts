import { z } from 'zod';
import type { RewardKind } from '../ports/reward.ts';

const config = z.strictObject({
  resolved: z.number().default(1),
  unresolved: z.number().default(-1).describe('also of an empty patch'),
});

/** The task's own tests: all that must pass do, or not. */
export const tests: RewardKind<z.infer<typeof config>> = {
  name: 'tests',
  config,
  open: async ({ resolved, unresolved }) => {
    return async ({ verdict }) => {
      const value = verdict.resolved ? resolved : unresolved;
      return { value, parts: { tests: value }, problem: null };
    };
  },
};
