import { expect, test } from 'vitest';
import { advantages, type Objective } from '../../src/algo/advantage.ts';

const OBJECTIVES: Objective[] = ['grpo', 'rloo', 'dr-grpo', 'gspo'];
const half = [1, 1, 1, 1, -1, -1, -1, -1];
const shaped = [1.35, -0.7, -0.9, 1.2];
const rounded = (values: number[]): number[] => values.map((value) => Number(value.toFixed(9)));

// torch 2.15 in float64: (r - r.mean()) / (r.std() + 1e-6), r - r.mean(), r - (r.sum() - r) / (n - 1).
test.each<[Objective, number[], number[]]>([
  ['grpo', half, [...Array(4).fill(0.9354134716943039), ...Array(4).fill(-0.9354134716943039)]],
  ['grpo', shaped, [0.9252771417391472, -0.7797279284318656, -0.9460698864973303, 0.8005206731900486]],
  ['gspo', shaped, [0.9252771417391472, -0.7797279284318656, -0.9460698864973303, 0.8005206731900486]],
  ['dr-grpo', shaped, [1.1125, -0.9375, -1.1375, 0.9624999999999999]],
  ['rloo', shaped, [1.4833333333333334, -1.25, -1.5166666666666666, 1.2833333333333332]],
  // The worked examples of Twinkle's documentation, GRPOAdvantage (without std) and RLOOAdvantage.
  ['dr-grpo', [1, 0, 0, 0], [0.75, -0.25, -0.25, -0.25]],
  ['rloo', [0, 1, 0, 1], [-2 / 3, 2 / 3, -2 / 3, 2 / 3]],
])('%s of %j is the published or torch value', (objective, rewards, want) => {
  expect(rounded(advantages(rewards, objective))).toEqual(rounded(want));
});

test('every small group agrees with the formula written out', () => {
  const mean = (values: number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
  for (let n = 2; n <= 6; n++)
    for (let code = 0; code < 3 ** n; code++) {
      const rewards = Array.from({ length: n }, (_, at) => (Math.floor(code / 3 ** at) % 3) - 0.75);
      // Variance from all pairs: no mean needed.
      const pairs = rewards.flatMap((a) => rewards.map((b) => (a - b) ** 2));
      const std = Math.sqrt(pairs.reduce((sum, square) => sum + square, 0) / (2 * n * (n - 1)));
      const others = rewards.map((reward, at) => reward - mean(rewards.filter((_, index) => index !== at)));
      const centred = others.map((value) => (value * (n - 1)) / n);
      const scaled = centred.map((value) => value / (std + 1e-6));
      const want = { grpo: scaled, gspo: scaled, 'dr-grpo': centred, rloo: others };
      for (const objective of OBJECTIVES)
        for (const [at, value] of advantages(rewards, objective).entries())
          expect(Math.abs(value - want[objective][at]!)).toBeLessThan(1e-9);
    }
});

test.each(OBJECTIVES)('%s sums to nothing over a group', (objective) => {
  const sum = advantages([0.3, -1, 1.42, 1, -0.58], objective).reduce((total, value) => total + value, 0);
  expect(sum).toBeCloseTo(0, 12);
});

test.each(OBJECTIVES)('%s of groups with nothing to compare is zero, never NaN', (objective) => {
  expect(advantages([], objective)).toEqual([]);
  expect(advantages([1], objective)).toEqual([0]);
  expect(advantages([0.1, 0.1, 0.1], objective)).toEqual([0, 0, 0]);
});

test('a reward that is no number is refused', () => {
  expect(() => advantages([1, Number.NaN], 'grpo')).toThrow('rewards must be finite numbers, got NaN');
});
