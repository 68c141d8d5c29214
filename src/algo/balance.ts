/** How an attempt ended, best first: on its own, at its context limit, at its wall clock, or not at all. */
export type Status = 'completed' | 'context' | 'time' | 'aborted';

/** An attempt at a task; `resolved` is null when it got no reward. */
export interface Member {
  resolved: boolean | null;
  status: Status;
}

export interface BalanceSettings {
  /** Group size N. */
  n: number;
  /** Most attempts at one task, N_max. */
  max: number;
  /** Attempts started together, a divisor of `max`. */
  stride: number;
  /** Least and greatest share of resolved attempts in a group. */
  band: [number, number];
}

/**
 * How a group came to be: in the band with attempts to spare, in the band only once `max` was reached, outside the
 * band, or of whatever there was.
 */
export type GroupEnd = 'early' | 'last' | 'relaxed' | 'best_effort';

/** Attempts still to start, or the group to train on. */
export type Balance<M> = { roll: number } | { group: M[]; end: GroupEnd };

/** Why a group is not trained on. */
export type DropReason = 'aborted' | 'no_reward' | 'no_variance' | 'none_resolved' | 'too_small';

const RANK: Record<Status, number> = { completed: 0, context: 1, time: 2, aborted: 3 };

/** Shares are written as decimals: 0.35 · 20 must count as 7. */
const SLACK = 1e-9;

const counts = (n: number, [low, high]: [number, number]): [number, number] => [
  Math.ceil(low * n - SLACK),
  Math.floor(high * n + SLACK),
];

/** What is wrong with the settings, in words; null when nothing is. */
export function checkBalance({ n, max, stride, band }: BalanceSettings): string | null {
  const [low, high] = band;
  if (!Number.isInteger(n) || n < 2) return `n must be a whole number of at least 2, got ${n}`;
  if (!Number.isInteger(max) || max < n) return `max must be a whole number of at least n (${n}), got ${max}`;
  if (!Number.isInteger(stride) || stride < 1 || max % stride !== 0)
    return `stride must divide max (${max}), got ${stride}`;
  if (!(low >= 0 && low <= high && high <= 1)) return `band must rise within 0 to 1, got ${low} to ${high}`;
  const [fewest, most] = counts(n, band);
  if (fewest > most) return `no group of ${n} has a share of resolved attempts from ${low} to ${high}`;
  return null;
}

/**
 * Balanced adaptive rollout (Orchard paper, algorithm 1) as a function of the pool: what to do after the attempts so
 * far. A group is looked for after each full stride, and what is missing of a stride is rolled first, so that a run
 * that was cut short goes on to the same group.
 *
 * Attempts that were aborted, ran out of time or have no reward fill a group only in the last resort. Where two counts
 * of resolved attempts are equally near the middle of the band, the smaller is tried first; the middle itself is
 * rounded half up.
 * @param pool all attempts at one task in the order they were started; the group does not depend on who ended first
 * @returns attempts to start, or `n` attempts, resolved ones first: fewer only where a full pool is smaller than `n`
 * @throws RangeError when the settings do not pass {@link checkBalance}
 */
export function balance<M extends Member>(pool: M[], settings: BalanceSettings): Balance<M> {
  const wrong = checkBalance(settings);
  if (wrong !== null) throw new RangeError(wrong);
  const { n, max, stride, band } = settings;
  const full = pool.length >= max;
  const missing = stride - (pool.length % stride);
  if (!full && (pool.length === 0 || missing < stride)) return { roll: missing };
  const ranked = pool.toSorted((a, b) => RANK[a.status] - RANK[b.status]);
  const usable = ranked.filter((member) => !isBackfill(member));
  const positives = usable.filter(({ resolved }) => resolved);
  const negatives = usable.filter(({ resolved }) => !resolved);
  const assemble = (within: [number, number]): M[] | null => {
    const count = pickCount(within, { n, positives: positives.length, negatives: negatives.length });
    return count === null ? null : [...positives.slice(0, count), ...negatives.slice(0, n - count)];
  };
  const balanced = assemble(band);
  if (balanced) return { group: balanced, end: full ? 'last' : 'early' };
  if (!full) return { roll: stride };
  const relaxed = assemble([0, 1]);
  if (relaxed) return { group: relaxed, end: 'relaxed' };
  return { group: [...positives, ...negatives, ...ranked.filter(isBackfill)].slice(0, n), end: 'best_effort' };
}

const isBackfill = ({ resolved, status }: Member): boolean =>
  resolved === null || status === 'aborted' || status === 'time';

/** The number of resolved attempts nearest to the middle of the band that the pool can give; null when none. */
function pickCount(
  band: [number, number],
  { n, positives, negatives }: { n: number; positives: number; negatives: number },
): number | null {
  const target = Math.round(((band[0] + band[1]) / 2) * n + SLACK);
  const [fewest, most] = counts(n, band);
  // What the pool can give is an interval: its nearest point to the target is the first that a search outwards meets.
  const from = Math.max(fewest, n - negatives);
  const to = Math.min(most, positives);
  return from > to ? null : Math.min(to, Math.max(from, target));
}

/**
 * The group filter (Orchard recipe), on the task's own result of +1 or −1, before any shaping: why a group teaches
 * nothing, null when it is kept. A group in which nothing or everything is resolved has no variance; the former is
 * told apart, as its task was too hard.
 * @param n group size that was asked for
 */
export function dropReason(group: Member[], n: number): DropReason | null {
  if (group.some(({ status }) => status === 'aborted')) return 'aborted';
  if (group.some(({ resolved }) => resolved === null)) return 'no_reward';
  if (group.length < n) return 'too_small';
  if (group.every(({ resolved }) => !resolved)) return 'none_resolved';
  if (group.every(({ resolved }) => resolved)) return 'no_variance';
  return null;
}

/**
 * Whether a task is fit to learn from, by the share of tries that resolved it (Orchard paper): above `low`, at most
 * `high`. A task that was never tried is not.
 */
export function keepTask(
  { resolved, tries }: { resolved: number; tries: number },
  [low, high]: [number, number] = [0, 0.5],
): boolean {
  const share = resolved / tries;
  return low < share && share <= high;
}
