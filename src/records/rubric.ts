import { z } from 'zod';

const Score = z.number().min(0).max(1);

/** What a judge gives a finished attempt for how it worked, each item from 0 to 1 (see algo/rubric). */
export const RubricScores = z.strictObject({
  fix_quality: Score,
  self_test_relevance: Score,
  coverage: Score,
  rigor: Score,
  discriminativeness: Score,
  regression_guard: Score,
  verification_integrity: Score,
});
export type RubricScores = z.infer<typeof RubricScores>;
