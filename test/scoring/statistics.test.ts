import { expect, test } from 'vitest';
import { passAtK, passHatK } from '../../src/algo/select.ts';
import { bootstrapMean, mcnemar, mcnemarMidP, wilson } from '../../src/algo/stats.ts';
import type { Score } from '../../src/records/score.ts';
import { compareRuns, manyRuns } from '../../src/scoring/compare.ts';
import { reportOf } from '../../src/scoring/report.ts';

const score = (instance: string, resolved: boolean, rest: Partial<Score> = {}): Score => ({
  v: 'orchard.score/1',
  instance,
  model: 'm',
  profile: '5.0',
  key: { row: 'r', patch: 'p', profile: '5.0', image: null },
  class: resolved ? 'resolved' : 'f2p_unmet',
  resolved,
  tests: null,
  prepared: [],
  reason: null,
  hardened: null,
  applied: null,
  exitCode: null,
  log: null,
  failure: null,
  seconds: 1,
  timeoutS: null,
  attempt: null,
  value: null,
  repo: 'a/b',
  year: '2020',
  difficulty: null,
  language: 'Python',
  ...rest,
});
const run = (name: string, marks: string, rest: Partial<Score> = {}) => ({
  name,
  scores: [...marks].map((mark, index) => score(`i${index}`, mark === '+', rest)),
});

test("Wilson's interval of 266 in 300 is the published one", () => {
  expect(wilson(266, 300).map((share) => Number((100 * share).toFixed(1)))).toEqual([84.6, 91.8]);
});

test('mid-p is the exact p less the chance of what was seen, by counting all outcomes', () => {
  for (const [gained, lost] of [
    [3, 1],
    [9, 2],
    [5, 5],
    [0, 4],
  ] as const) {
    const n = gained + lost;
    let exact = 0;
    let mid = 0;
    for (let outcome = 0; outcome < 2 ** n; outcome++) {
      const ones = [...outcome.toString(2)].filter((bit) => bit === '1').length;
      const fewer = Math.min(gained, lost);
      if (ones <= fewer) exact += 2 / 2 ** n;
      mid += ones < fewer ? 2 / 2 ** n : ones === fewer ? 1 / 2 ** n : 0;
    }
    expect(mcnemar(gained, lost)).toBeCloseTo(Math.min(1, exact), 12);
    expect(mcnemarMidP(gained, lost)).toBeCloseTo(Math.min(1, mid), 12);
  }
});

test('the bootstrap interval is near the normal one, and the same each time', () => {
  const values = Array.from({ length: 400 }, (_, index) => Number(index % 4 === 0));
  const [low, high] = bootstrapMean(values);
  const half = 1.96 * Math.sqrt((0.25 * 0.75) / 400);
  expect(low).toBeCloseTo(0.25 - half, 2);
  expect(high).toBeCloseTo(0.25 + half, 2);
  expect(bootstrapMean(values)).toEqual([low, high]);
});

test('pass@k and pass^k agree with counting all choices', () => {
  const resolved = [true, false, true, true, false];
  for (let k = 1; k <= 5; k++) {
    const picks = choices(resolved, k);
    const share = (holds: (pick: boolean[]) => boolean): number => picks.filter(holds).length / picks.length;
    expect(passAtK({ total: 5, resolved: 3 }, k)).toBeCloseTo(
      share((pick) => pick.some(Boolean)),
      12,
    );
    expect(passHatK({ total: 5, resolved: 3 }, k)).toBeCloseTo(
      share((pick) => pick.every(Boolean)),
      12,
    );
  }
});

function choices<T>(items: T[], k: number): T[][] {
  if (k === 0) return [[]];
  return items.flatMap((item, index) => choices(items.slice(index + 1), k - 1).map((rest) => [item, ...rest]));
}

test('two scorings are compared in pairs, with the ids that flipped', () => {
  const pair = compareRuns(run('a', '++--'), run('b', '+-++'));
  expect(pair).toMatchObject({ gained: ['i2', 'i3'], lost: ['i1'], difference: 0.25, total: 4, mcnemar: 1 });
});

test('instances without a verdict are left out of a comparison, and counted', () => {
  const a = run('a', '+-');
  a.scores[1] = score('i1', false, { class: 'infrastructure' });
  expect(compareRuns(a, run('b', '++'))).toMatchObject({ total: 1, withoutVerdict: 1, gained: [] });
});

test.each([
  ['other ids', run('b', '+'), /only in the first/],
  ['another revision', run('b', '++', { key: { row: 'x', patch: 'p', profile: '5.0', image: null } }), /rows differ/],
  ['another profile', run('b', '++', { profile: '4.1' }), /profile 5\.0 against 4\.1/],
])('%s are not compared unless told', (_, other, message) => {
  expect(() => compareRuns(run('a', '++'), other)).toThrow(message);
  expect(compareRuns(run('a', '++'), other, { force: true }).total).toBeGreaterThan(0);
});

test('several runs give mean, spread, and best@k with its ties', () => {
  const runs = [run('a', '++--', { value: 1 }), run('b', '+-+-', { value: 1 }), run('c', '+---', { value: 0 })];
  const many = manyRuns(runs);
  expect(many.mean).toBeCloseTo(5 / 12, 12);
  expect(many.sd).toBeCloseTo(Math.sqrt(((1 / 12) ** 2 * 2 + (1 / 6) ** 2) / 2), 12);
  expect(many.k[2]!.pass).toBe(0.75);
  expect(many.k[2]!.passHat).toBe(0.25);
  // a and b tie above c: i0 always, i1 and i2 half of the time.
  expect(many.k[2]!.best).toBeCloseTo(0.5, 12);
  expect(many.k[2]!.tied).toBe(4);
});

test('what has no verdict counts against the rate over the split, and not over the completed', () => {
  const scores = [
    score('a', true),
    score('b', false),
    score('c', false, { class: 'infrastructure' }),
    score('d', false, { class: 'empty_patch' }),
  ];
  const report = reportOf(scores, { run: 'r', dataset: 'd', predictions: null });
  expect(report.rate).toMatchObject({ resolved: 1, total: 4 });
  expect(report.completed).toMatchObject({ resolved: 1, total: 2 });
  expect(Object.values(report.classes).reduce((sum, count) => sum + count, 0)).toBe(4);
});

test('cost is told per attempt and per resolved', () => {
  const attempt = {
    exit: null,
    end: 'submitted' as const,
    turns: 4,
    promptTokens: 10,
    completionTokens: 2,
    cost: 1,
    seconds: null,
  };
  const { cost } = reportOf([score('a', true, { attempt }), score('b', false, { attempt: { ...attempt, cost: 2 } })], {
    run: 'r',
    dataset: 'd',
    predictions: null,
  });
  expect(cost!.perResolved.cost).toBe(3);
  expect(cost!.perAttempt.cost).toEqual({ sum: 3, median: 2, p90: 2 });
});
