import { expect, test } from 'vitest';
import {
  type BalanceSettings,
  balance,
  checkBalance,
  dropReason,
  keepTask,
  type Member,
  type Status,
} from '../../src/algo/balance.ts';

const STATUSES: Status[] = ['completed', 'context', 'time', 'aborted'];
const EVERY_KIND: Member[] = [true, false, null].flatMap((resolved) =>
  STATUSES.map((status) => ({ resolved, status })),
);
/** One of each kind that the algorithm may tell apart, for pools too large for all of them. */
const KINDS: Member[] = [
  { resolved: true, status: 'completed' },
  { resolved: true, status: 'context' },
  { resolved: false, status: 'completed' },
  { resolved: false, status: 'context' },
  { resolved: true, status: 'time' },
  { resolved: null, status: 'completed' },
  { resolved: false, status: 'aborted' },
];
/** In eighths, so that the brute force below is exact. */
const BANDS: [number, number][] = [
  [3, 5],
  [2, 6],
  [0, 8],
  [1, 4],
  [4, 8],
  [0, 2],
];

const paper: BalanceSettings = { n: 8, max: 16, stride: 16, band: [0.375, 0.625] };
const won: Member = { resolved: true, status: 'completed' };
const lost: Member = { resolved: false, status: 'completed' };
const times = (count: number, member: Member): Member[] => Array.from({ length: count }, () => ({ ...member }));
const resolvedIn = (group: Member[]): number => group.filter(({ resolved }) => resolved).length;

function* pools(kinds: Member[], size: number): Generator<Member[]> {
  const digits = new Array<number>(size).fill(0);
  for (let count = kinds.length ** size; count > 0; count--) {
    yield digits.map((digit) => kinds[digit]!);
    for (let at = 0; at < size && ++digits[at]! === kinds.length; at++) digits[at] = 0;
  }
}

/**
 * The best of all subsets: no member of the last resort, a count in the band, that count nearest to the target, then
 * the best members, earlier ones first. Indices, resolved ones first; null when no subset will do.
 */
function bestSubset(pool: Member[], n: number, [low, high]: [number, number]): number[] | null {
  const target = Math.floor((n * (low + high) + 8) / 16);
  const cost = pool.map(({ status }, index) => STATUSES.indexOf(status) * 10 + index);
  let best: number[] | null = null;
  let bestScore = Number.POSITIVE_INFINITY;
  for (let subset = 0; subset < 1 << pool.length; subset++) {
    let size = 0;
    let count = 0;
    let total = 0;
    let usable = true;
    for (let index = 0; index < pool.length; index++) {
      if (!(subset & (1 << index))) continue;
      const { resolved, status } = pool[index]!;
      size++;
      total += cost[index]!;
      if (resolved) count++;
      if (resolved === null || status === 'time' || status === 'aborted') usable = false;
    }
    if (size !== n || !usable || count * 8 < low * n || count * 8 > high * n) continue;
    const score = Math.abs(count - target) * 1e6 + count * 1e4 + total;
    if (score >= bestScore) continue;
    bestScore = score;
    best = pool.flatMap((_, index) => (subset & (1 << index) ? [index] : []));
    best.sort((a, b) => Number(pool[b]!.resolved) - Number(pool[a]!.resolved) || cost[a]! - cost[b]!);
  }
  return best;
}

/** Indices of the first n by class, status and start. */
function firstOf(pool: Member[], n: number): number[] {
  const order = ({ resolved, status }: Member): number => {
    const rank = STATUSES.indexOf(status);
    return rank > 1 || resolved === null ? 20 + rank : (resolved ? 0 : 10) + rank;
  };
  return [...pool.keys()].sort((a, b) => order(pool[a]!) - order(pool[b]!) || a - b).slice(0, n);
}

function expected(pool: Member[], { n, max, stride }: BalanceSettings, eighths: [number, number]): string {
  if (pool.length < max && (pool.length === 0 || pool.length % stride > 0))
    return `roll ${stride - (pool.length % stride)}`;
  const inBand = bestSubset(pool, n, eighths);
  if (inBand) return `${pool.length < max ? 'early' : 'last'} ${inBand}`;
  if (pool.length < max) return `roll ${stride}`;
  const relaxed = bestSubset(pool, n, [0, 8]);
  return relaxed ? `relaxed ${relaxed}` : `best_effort ${firstOf(pool, n)}`;
}

function got(pool: Member[], settings: BalanceSettings): string {
  const answer = balance(
    pool.map((member, index) => ({ ...member, index })),
    settings,
  );
  return 'roll' in answer ? `roll ${answer.roll}` : `${answer.end} ${answer.group.map(({ index }) => index)}`;
}

function differences(kinds: Member[], { size, max }: { size: number; max: number }): string[] {
  const settings = [2, 3, 4]
    .filter((n) => n <= max)
    .flatMap((n) =>
      [1, 2, 3, 4, 5, 6]
        // At max the stride no longer matters.
        .filter((stride) => max % stride === 0 && (size < max || stride === max))
        .flatMap((stride) =>
          BANDS.map((eighths) => ({
            eighths,
            one: { n, max, stride, band: [eighths[0] / 8, eighths[1] / 8] as [number, number] },
          })),
        ),
    )
    .filter(({ one }) => checkBalance(one) === null);
  const found: string[] = [];
  for (const pool of pools(kinds, size))
    for (const { one, eighths } of settings) {
      const want = expected(pool, one, eighths);
      const have = got(pool, one);
      if (want !== have) found.push(`${JSON.stringify({ pool, one })}: ${have}, not ${want}`);
    }
  return found;
}

const SIZES = [2, 3, 4, 5, 6].flatMap((max) => Array.from({ length: max + 1 }, (_, size) => ({ size, max })));

test.each(SIZES.filter(({ size }) => size <= 3))(
  'all pools of $size with at most $max are as the brute force says',
  (sizes) => {
    expect(differences(EVERY_KIND, sizes)).toEqual([]);
  },
);

// All twelve kinds would take minutes here; they were run once.
test.each(SIZES.filter(({ size }) => size > 3))(
  'pools of $size with at most $max are as the brute force says',
  (sizes) => {
    expect(differences(sizes.size < 6 ? KINDS : KINDS.slice(0, 5), sizes)).toEqual([]);
  },
);

test('the published setting takes all its attempts at once and half of the group resolved', () => {
  expect(balance([], paper)).toEqual({ roll: 16 });
  const answer = balance([...times(10, lost), ...times(6, won)], paper);
  expect(answer).toEqual({ group: [...times(4, won), ...times(4, lost)], end: 'last' });
});

test('where the middle cannot be had, the nearest count of the band is taken', () => {
  const few = balance([...times(3, won), ...times(13, lost)], paper);
  expect('group' in few && [resolvedIn(few.group), few.end]).toEqual([3, 'last']);
  const many = balance([...times(13, won), ...times(3, lost)], paper);
  expect('group' in many && [resolvedIn(many.group), many.end]).toEqual([5, 'last']);
});

test('outside the band a full pool gives what is nearest to half, as a relaxed group', () => {
  const answer = balance([...times(15, lost), won], paper);
  expect('group' in answer && [answer.group.length, resolvedIn(answer.group), answer.end]).toEqual([8, 1, 'relaxed']);
});

test('a balanced group ends the rollout early, never before there are n attempts', () => {
  const settings: BalanceSettings = { n: 4, max: 12, stride: 2, band: [0.25, 0.75] };
  expect(balance([won, lost], settings)).toEqual({ roll: 2 });
  expect(balance([won, lost, won, lost], settings)).toMatchObject({ end: 'early' });
});

test('what a cut-short stride is missing is rolled before anything is looked for', () => {
  const settings: BalanceSettings = { n: 2, max: 8, stride: 4, band: [0.5, 0.5] };
  expect(balance([won, lost, lost], settings)).toEqual({ roll: 1 });
  expect(balance([won, lost, lost, lost, won], settings)).toEqual({ roll: 3 });
});

test('rolling what is asked for always ends with a group, at max attempts at the latest', () => {
  let seed = 1;
  const random = (below: number): number => {
    seed = (seed * 16807) % 2147483647;
    return seed % below;
  };
  for (let round = 0; round < 2000; round++) {
    const stride = 1 + random(5);
    const max = stride * (1 + random(5));
    const n = 2 + random(7);
    const settings: BalanceSettings = { n, max, stride, band: [random(5) / 10, 0.5 + random(6) / 10] };
    if (checkBalance(settings) !== null) continue;
    const pool: Member[] = [];
    let answer = balance(pool, settings);
    while ('roll' in answer) {
      for (let count = answer.roll; count > 0; count--) pool.push(EVERY_KIND[random(EVERY_KIND.length)]!);
      answer = balance(pool, settings);
    }
    const { group, end } = answer;
    const share = resolvedIn(group) / n;
    expect(pool.length).toBeLessThanOrEqual(max);
    expect(group).toHaveLength(n);
    if (end === 'early') expect(pool.length).toBeLessThan(max);
    else expect(pool).toHaveLength(max);
    if (end !== 'early' && end !== 'last') continue;
    expect(share).toBeGreaterThanOrEqual(settings.band[0] - 1e-9);
    expect(share).toBeLessThanOrEqual(settings.band[1] + 1e-9);
    expect(dropReason(group, n)).toBe(share === 0 ? 'none_resolved' : share === 1 ? 'no_variance' : null);
  }
});

test('nothing is changed in the pool, and the group holds its very members', () => {
  const pool = [lost, { resolved: true, status: 'context' } as Member, won, lost];
  const before = [...pool];
  const answer = balance(pool, { n: 2, max: 4, stride: 4, band: [0.5, 0.5] });
  expect(pool).toEqual(before);
  expect('group' in answer && answer.group[0]).toBe(won);
});

test.each<[string, Partial<BalanceSettings>, string | null]>([
  ['the published settings', {}, null],
  ['the released script', { n: 4, max: 8, stride: 8, band: [0.25, 0.75] }, null],
  ['a group of one', { n: 1 }, 'n must be a whole number of at least 2, got 1'],
  ['fewer attempts than a group needs', { max: 4, stride: 4 }, 'max must be a whole number of at least n (8), got 4'],
  ['a stride that does not divide max', { stride: 5 }, 'stride must divide max (16), got 5'],
  ['a stride of nothing', { stride: 0 }, 'stride must divide max (16), got 0'],
  ['a band that falls', { band: [0.6, 0.4] }, 'band must rise within 0 to 1, got 0.6 to 0.4'],
  ['a band beyond one', { band: [0.5, 1.5] }, 'band must rise within 0 to 1, got 0.5 to 1.5'],
  ['a band of no number', { band: [Number.NaN, 1] }, 'band must rise within 0 to 1, got NaN to 1'],
  [
    'a band between two counts',
    { n: 2, band: [0.55, 0.7] },
    'no group of 2 has a share of resolved attempts from 0.55 to 0.7',
  ],
  ['a band of one count, lost to rounding', { n: 100, max: 112, band: [0.07, 0.07] }, null],
  ['a band of one count, lost to rounding at its high end', { n: 50, max: 64, band: [0.58, 0.58] }, null],
])('settings are checked: %s', (_, change, wrong) => {
  expect(checkBalance({ ...paper, ...change })).toBe(wrong);
});

test('settings that do not pass are refused', () => {
  expect(() => balance([], { ...paper, stride: 0 })).toThrow(RangeError);
});

test.each<[string, Member[], ReturnType<typeof dropReason>]>([
  ['both outcomes', [won, lost], null],
  ['a truncated attempt with a reward', [won, { resolved: false, status: 'time' }], null],
  ['an aborted attempt', [won, { resolved: null, status: 'aborted' }], 'aborted'],
  ['a missing reward', [won, { resolved: null, status: 'completed' }], 'no_reward'],
  ['too few attempts', [won], 'too_small'],
  ['no attempts', [], 'too_small'],
  ['nothing resolved', [lost, lost], 'none_resolved'],
  ['everything resolved', [won, won], 'no_variance'],
])('the group filter on %s', (_, group, reason) => {
  expect(dropReason(group, 2)).toBe(reason);
});

test('tasks are kept above the low share and up to the high one', () => {
  expect([0, 1, 4, 5, 8].map((resolved) => keepTask({ resolved, tries: 8 }))).toEqual([
    false,
    true,
    true,
    false,
    false,
  ]);
  expect(keepTask({ resolved: 2, tries: 8 }, [0.25, 1])).toBe(false);
  expect(keepTask({ resolved: 8, tries: 8 }, [0.25, 1])).toBe(true);
  expect(keepTask({ resolved: 0, tries: 0 })).toBe(false);
});
