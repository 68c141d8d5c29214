import { expect, test } from 'vitest';
import { mcnemar, poissonBinomialTail, wilson } from '../../src/algo/stats.ts';

// Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3.
test.each([
  [81, 263, 0.2553, 0.3662],
  [15, 148, 0.0624, 0.1605],
  [0, 20, 0, 0.1611],
  [1, 29, 0.0061, 0.1718],
])("Wilson's interval of %d of %d is the published one", (successes, total, low, high) => {
  const [gotLow, gotHigh] = wilson(successes, total);
  expect(gotLow).toBeCloseTo(low, 4);
  expect(gotHigh).toBeCloseTo(high, 4);
});

test('an interval of nothing says nothing, and the ends stay in range', () => {
  expect(wilson(0, 0)).toEqual([0, 1]);
  expect(wilson(20, 20)[1]).toBe(1);
});

// Fagerland, Lydersen and Laake 2013, airway hyper-responsiveness: 7 and 1 changed; complete response: 6 and 16.
test.each([
  [1, 7, 0.0703],
  [6, 16, 0.0525],
])('McNemar with %d and %d changed gives the published exact p', (gained, lost, p) => {
  expect(mcnemar(gained, lost)).toBeCloseTo(p, 3);
});

test('the test is symmetric, certain of nothing without changes, and holds for large counts', () => {
  expect(mcnemar(3, 9)).toEqual(mcnemar(9, 3));
  expect(mcnemar(0, 0)).toBe(1);
  expect(mcnemar(5, 5)).toBe(1);
  const p = mcnemar(400, 100);
  expect(p).toBeGreaterThan(0);
  expect(p).toBeLessThan(1e-40);
});

test('the chance of so many successes is that of all ways to have them, counted one by one', () => {
  const probabilities = [0.1, 0.5, 0.75, 1, 0, 0.3];
  const chance = (least: number): number => {
    let sum = 0;
    for (let way = 0; way < 2 ** probabilities.length; way++) {
      const hits = probabilities.map((_, at) => (way >> at) & 1);
      if (hits.reduce((total, hit) => total + hit, 0) < least) continue;
      sum += probabilities.reduce((product, p, at) => product * (hits[at] ? p : 1 - p), 1);
    }
    return sum;
  };
  for (let least = 0; least <= 7; least++)
    expect(poissonBinomialTail(probabilities, least)).toBeCloseTo(chance(least), 12);
});

test('with equal chances it is the binomial tail of published tables', () => {
  // P(X ≥ 8) of 10 tosses of a coin.
  expect(poissonBinomialTail(new Array(10).fill(0.5), 8)).toBeCloseTo(56 / 1024, 12);
});
