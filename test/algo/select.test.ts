import { expect, test } from 'vitest';
import { auc, bestAtK, chooseBest, ece, meanAucByTask, passAtK, shortestAtK } from '../../src/algo/select.ts';

interface Scored {
  value: number;
  length: number;
  resolved: boolean;
}

/** Park and Miller's minimal standard generator, also used for the reference values. */
function generator(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 16807) % 2147483647;
    return state % below;
  };
}

function* subsets<T>(list: T[], k: number): Generator<T[]> {
  for (let code = 0; code < 1 << list.length; code++) {
    const chosen = list.filter((_, index) => code & (1 << index));
    if (chosen.length === k) yield chosen;
  }
}

const mean = (values: number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Mean over all subsets of the share of resolved ones among those that no other of the subset beats. */
function bruteForce(candidates: Scored[], { k, by }: { k: number; by: (a: Scored, b: Scored) => number }): number {
  const outcomes = [...subsets(candidates, k)].map((subset) => {
    const top = subset.filter((one) => subset.every((other) => by(one, other) <= 0));
    return mean(top.map(({ resolved }) => Number(resolved)));
  });
  return mean(outcomes);
}

const byValue = (a: Scored, b: Scored): number => b.value - a.value || a.length - b.length;
const byLength = (a: Scored, b: Scored): number => a.length - b.length;

// Chen et al.'s own numpy estimator and exact fractions (scipy 1.17.1), which agree.
test.each([
  [200, 10, 1, 0.05],
  [200, 10, 10, 0.40854786608141713],
  [200, 10, 100, 0.9992289739372822],
  [16, 3, 8, 0.9],
  [10000, 25, 300, 0.5334590886051312],
])('of %d attempts with %d resolved, pass at %d is the published estimator', (total, resolved, k, want) => {
  expect(passAtK({ total, resolved }, k)).toBeCloseTo(want, 12);
});

test('pass at k is the share of subsets with a resolved attempt', () => {
  for (let total = 1; total <= 7; total++)
    for (let resolved = 0; resolved <= total; resolved++)
      for (let k = 1; k <= total; k++) {
        const list = Array.from({ length: total }, (_, index) => index < resolved);
        const want = mean([...subsets(list, k)].map((subset) => Number(subset.includes(true))));
        expect(passAtK({ total, resolved }, k)).toBeCloseTo(want, 12);
      }
});

test.each([0, 1.5, 5, Number.NaN])('a k of %d out of 4 is refused', (k) => {
  expect(() => passAtK({ total: 4, resolved: 2 }, k)).toThrow(RangeError);
  expect(() => shortestAtK(Array(4).fill({ length: 1, resolved: true }), k)).toThrow(RangeError);
});

test('more resolved attempts than there are is refused', () => {
  expect(() => passAtK({ total: 4, resolved: 5 }, 1)).toThrow('resolved must be a whole number from 0 to 4, got 5');
});

test('best and shortest at k are the means over all subsets, ties and all', () => {
  const random = generator(11);
  for (let round = 0; round < 300; round++) {
    const candidates = Array.from({ length: 1 + random(7) }, () => ({
      value: random(3) / 2,
      length: random(3),
      resolved: random(2) === 1,
    }));
    for (let k = 1; k <= candidates.length; k++) {
      expect(bestAtK(candidates, k)).toBeCloseTo(bruteForce(candidates, { k, by: byValue }), 12);
      expect(shortestAtK(candidates, k)).toBeCloseTo(bruteForce(candidates, { k, by: byLength }), 12);
    }
  }
});

test('best at 1 is the mean, at n the outcome of the best, and a perfect model reaches pass at k', () => {
  const random = generator(5);
  const candidates = Array.from({ length: 40 }, (_, index) => ({
    value: random(1000),
    length: index,
    resolved: random(3) === 0,
  }));
  const resolved = candidates.filter((candidate) => candidate.resolved).length;
  expect(bestAtK(candidates, 1)).toBeCloseTo(resolved / 40, 12);
  expect(bestAtK(candidates, 40)).toBe(Number([...candidates].sort(byValue)[0]!.resolved));
  const perfect = candidates.map((candidate) => ({ ...candidate, value: Number(candidate.resolved) }));
  for (const k of [1, 2, 8, 20]) expect(bestAtK(perfect, k)).toBeCloseTo(passAtK({ total: 40, resolved }, k), 12);
});

test('the order of the candidates does not matter, and infinite values may tie', () => {
  const candidates = [
    { value: Number.POSITIVE_INFINITY, length: 3, resolved: true },
    { value: Number.POSITIVE_INFINITY, length: 3, resolved: false },
    { value: 0, length: 1, resolved: false },
  ];
  expect(bestAtK(candidates, 3)).toBe(0.5);
  expect(bestAtK(candidates.toReversed(), 3)).toBe(0.5);
});

test('ten thousand candidates hold their closed form', () => {
  const candidates = Array.from({ length: 20_000 }, (_, index) => ({
    value: Number(index % 1000 === 0),
    length: 1,
    resolved: index % 1000 === 0,
  }));
  for (const k of [1, 500, 19_000])
    expect(bestAtK(candidates, k)).toBeCloseTo(passAtK({ total: 20_000, resolved: 20 }, k), 10);
});

test('the best has the highest value, then the shorter patch, then the first id', () => {
  const of = (id: string, value: number, length: number) => ({ id, value, length });
  expect(chooseBest([of('a', 0.2, 1), of('b', 0.9, 9)])?.id).toBe('b');
  expect(chooseBest([of('a', 0.9, 9), of('b', 0.9, 3)])?.id).toBe('b');
  expect(chooseBest([of('b', 0.9, 3), of('a', 0.9, 3)])?.id).toBe('a');
  expect(chooseBest([])).toBeNull();
  expect(() => chooseBest([of('a', Number.NaN, 3)])).toThrow(RangeError);
});

const scores = (values: number[], labels: number[]): { value: number; positive: boolean }[] =>
  values.map((value, index) => ({ value, positive: labels[index] === 1 }));

/** The thousand scores that scikit-learn and torchmetrics were given. */
function thousand(): { p: number; value: number; positive: boolean }[] {
  const random = generator(7);
  return Array.from({ length: 1000 }, () => {
    const a = random(100);
    const b = random(100);
    return { p: (a + 0.5) / 100, value: (a + 0.5) / 100, positive: b < 20 + Math.floor(a / 2) };
  });
}

test('the area under the ROC curve is that of scikit-learn', () => {
  // The example of sklearn.metrics.roc_auc_score's documentation; the rest by scikit-learn 1.9.1, tied scores among them.
  expect(auc(scores([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]))).toBe(0.75);
  expect(auc(scores([0.5, 0.5, 0.5, 0.7, 0.2, 0.2], [0, 1, 0, 1, 1, 0]))).toBeCloseTo(0.6111111111111112, 15);
  expect(auc(thousand())).toBeCloseTo(0.6725741471808888, 12);
});

test('the area is the share of pairs in order, ties as half', () => {
  const random = generator(3);
  for (let round = 0; round < 500; round++) {
    const list = Array.from({ length: 2 + random(12) }, () => ({ value: random(5), positive: random(2) === 1 }));
    const pairs = list
      .filter(({ positive }) => positive)
      .flatMap((a) =>
        list.filter(({ positive }) => !positive).map((b) => (a.value > b.value ? 1 : a.value === b.value ? 0.5 : 0)),
      );
    if (pairs.length === 0) expect(auc(list)).toBeNull();
    else expect(auc(list)).toBeCloseTo(mean(pairs), 12);
  }
});

test('an area of nothing is null, of ties a half, of values that are no number refused', () => {
  expect(auc([])).toBeNull();
  expect(auc(scores([1, 2], [1, 1]))).toBeNull();
  expect(auc(scores(Array(20_000).fill(0.5), [1]))).toBe(0.5);
  expect(() => auc(scores([Number.NaN, 1], [0, 1]))).toThrow(RangeError);
});

test('within tasks, telling easy from hard earns nothing, and tasks of one class are left out', () => {
  const of = (task: string, value: number, positive: boolean) => ({ task, value, positive });
  const list = [
    of('easy', 0.9, true),
    of('easy', 0.9, false),
    of('hard', 0.2, true),
    of('hard', 0.1, false),
    of('hopeless', 0, false),
  ];
  expect(meanAucByTask(list)).toEqual({ mean: 0.75, tasks: 2 });
  expect(meanAucByTask(list.slice(4))).toEqual({ mean: null, tasks: 0 });
});

test('the calibration error is that of torchmetrics', () => {
  // torchmetrics 1.9.0, binary_calibration_error with norm l1.
  expect(ece(thousand())).toBeCloseTo(0.12883, 10);
  expect(ece(thousand(), 10)).toBeCloseTo(0.1203, 10);
});

test('the calibration error of one bin is the difference of means, of a perfect promise nothing', () => {
  const list = thousand();
  const want = mean(list.map(({ p }) => p)) - mean(list.map(({ positive }) => Number(positive)));
  expect(ece(list, 1)).toBeCloseTo(Math.abs(want), 12);
  expect(
    ece([
      { p: 0, positive: false },
      { p: 1, positive: true },
    ]),
  ).toBe(0);
  expect(ece([])).toBeNull();
});

test('an edge belongs to the bin below it, also where rounding would lift it', () => {
  // 0.07 · 100 is 7.000000000000001; together with 0.065 in one bin the two errors cancel.
  const pair = [
    { p: 0.07, positive: true },
    { p: 0.065, positive: false },
  ];
  expect(ece(pair, 100)).toBeCloseTo((0.93 - 0.065) / 2, 12);
});

test.each([-0.1, 1.1, Number.NaN])('a probability of %d is refused', (p) => {
  expect(() => ece([{ p, positive: true }])).toThrow(RangeError);
});

test('a number of bins that is none is refused', () => {
  expect(() => ece([], 0)).toThrow('bins must be a positive whole number, got 0');
});
