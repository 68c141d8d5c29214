/** What is known of a finished attempt when one of several has to be submitted. */
export interface Candidate {
  /** The value model's score; any increasing scale. */
  value: number;
  /** Length of the patch. */
  length: number;
}

/**
 * Probability that at least one of `k` attempts is resolved, unbiased from `total` ≥ k attempts:
 * 1 − C(total − resolved, k) / C(total, k), as a product (Chen et al. 2021, arXiv 2107.03374).
 * @throws RangeError when k is not a whole number from 1 to total, or resolved not one from 0 to total
 */
export function passAtK({ total, resolved }: { total: number; resolved: number }, k: number): number {
  checkK(k, total);
  if (!Number.isInteger(resolved) || resolved < 0 || resolved > total)
    throw new RangeError(`resolved must be a whole number from 0 to ${total}, got ${resolved}`);
  if (total - resolved < k) return 1;
  let none = 1;
  for (let i = total - resolved + 1; i <= total; i++) none *= 1 - k / i;
  return 1 - none;
}

/**
 * Probability that the attempt a value model puts first is resolved, over all choices of `k` of the candidates:
 * highest value, then the shorter patch; what is still tied has equal chances.
 * @throws RangeError when k is not a whole number from 1 to the number of candidates, or a value or length is NaN
 */
export function bestAtK(candidates: (Candidate & { resolved: boolean })[], k: number): number {
  return expectedFirst(
    candidates.map(({ value, length, resolved }) => ({ keys: [-value, length], resolved })),
    k,
  );
}

/** {@link bestAtK} without a value model: the shortest patch is submitted. */
export function shortestAtK(candidates: { length: number; resolved: boolean }[], k: number): number {
  return expectedFirst(
    candidates.map(({ length, resolved }) => ({ keys: [length], resolved })),
    k,
  );
}

interface Ranked {
  keys: number[];
  resolved: boolean;
}

/** The candidate at rank i is the first of C(n − 1 − i, k − 1) of the C(n, k) choices; equals share their ranks. */
function expectedFirst(candidates: Ranked[], k: number): number {
  const n = candidates.length;
  checkK(k, n);
  for (const { keys } of candidates) checkNumbers(keys);
  const ranked = candidates.toSorted((a, b) => compare(a.keys, b.keys));
  let weight = k / n;
  let sum = 0;
  for (const run of runs(ranked, (a, b) => compare(a.keys, b.keys) === 0)) {
    let chance = 0;
    for (let rank = run.from; rank < run.to; rank++) {
      chance += weight;
      // The last rank has nothing after it.
      if (rank < n - 1) weight *= (n - rank - k) / (n - 1 - rank);
    }
    const resolved = ranked.slice(run.from, run.to).filter((candidate) => candidate.resolved).length;
    sum += (chance * resolved) / (run.to - run.from);
  }
  return sum;
}

/**
 * The candidate to submit: highest value, then the shorter patch, then the first id by code units. Null when there is
 * none.
 * @throws RangeError when a value or length is NaN
 */
export function chooseBest<C extends Candidate & { id: string }>(candidates: C[]): C | null {
  for (const { value, length } of candidates) checkNumbers([value, length]);
  const keys = ({ value, length, id }: C): (number | string)[] => [-value, length, id];
  return candidates.reduce<C | null>(
    (best, candidate) => (best === null || compare(keys(candidate), keys(best)) < 0 ? candidate : best),
    null,
  );
}

/**
 * Area under the ROC curve: the chance that a positive scores above a negative, ties as half (Mann and Whitney 1947).
 * Null when one of the two classes is empty.
 * @throws RangeError when a value is NaN
 */
export function auc(scores: { value: number; positive: boolean }[]): number | null {
  checkNumbers(scores.map(({ value }) => value));
  const sorted = scores.toSorted((a, b) => compare([a.value], [b.value]));
  let below = 0;
  let positives = 0;
  let won = 0;
  for (const { from, to } of runs(sorted, (a, b) => a.value === b.value)) {
    const here = sorted.slice(from, to).filter(({ positive }) => positive).length;
    const against = to - from - here;
    won += here * (below + against / 2);
    positives += here;
    below += against;
  }
  return positives === 0 || below === 0 ? null : won / (positives * below);
}

/**
 * Mean of {@link auc} within each task, so that telling easy tasks from hard ones earns nothing. Tasks with only one
 * class say nothing and are left out.
 * @returns the mean, null when no task is left, and how many tasks it is over
 * @throws RangeError when a value is NaN
 */
export function meanAucByTask(scores: { task: string; value: number; positive: boolean }[]): {
  mean: number | null;
  tasks: number;
} {
  const areas = [...Map.groupBy(scores, ({ task }) => task).values()]
    .map((group) => auc(group))
    .filter((area) => area !== null);
  const mean = areas.length === 0 ? null : areas.reduce((sum, area) => sum + area, 0) / areas.length;
  return { mean, tasks: areas.length };
}

/**
 * Expected calibration error of P(positive), in equal-width bins closed above (Guo et al. 2017, arXiv 1706.04599):
 * the mean distance between what a bin promised and what came, weighted by its size. Null when there is nothing.
 * @param probabilities p in [0, 1] and what came
 * @throws RangeError when a p is outside [0, 1], or bins is not a positive whole number
 */
export function ece(probabilities: { p: number; positive: boolean }[], bins = 15): number | null {
  if (!Number.isInteger(bins) || bins < 1) throw new RangeError(`bins must be a positive whole number, got ${bins}`);
  if (probabilities.length === 0) return null;
  const gaps = new Array<number>(bins).fill(0);
  for (const { p, positive } of probabilities) {
    if (!(p >= 0 && p <= 1)) throw new RangeError(`probabilities must lie in 0 to 1, got ${p}`);
    // An edge written as a decimal belongs to the bin below it, whatever rounding does to the product.
    const bin = Math.max(0, Math.ceil(p * bins - 1e-9) - 1);
    gaps[bin]! += p - Number(positive);
  }
  return gaps.reduce((sum, gap) => sum + Math.abs(gap), 0) / probabilities.length;
}

function checkK(k: number, total: number): void {
  if (!Number.isInteger(k) || k < 1 || k > total)
    throw new RangeError(`k must be a whole number from 1 to ${total}, got ${k}`);
}

function checkNumbers(numbers: number[]): void {
  if (numbers.some(Number.isNaN)) throw new RangeError('a value or length is NaN');
}

/** By the first key that differs. Compared, not subtracted: infinite values may be equal. */
function compare(a: (number | string)[], b: (number | string)[]): number {
  for (const [at, left] of a.entries()) {
    const right = b[at]!;
    if (left < right) return -1;
    if (left > right) return 1;
  }
  return 0;
}

/** Stretches [from, to) of equal neighbours. */
function* runs<T>(list: T[], equal: (a: T, b: T) => boolean): Generator<{ from: number; to: number }> {
  for (let from = 0, to = 0; from < list.length; from = to) {
    while (to < list.length && equal(list[from]!, list[to]!)) to++;
    yield { from, to };
  }
}

/**
 * pass^k: probability that all of `k` attempts drawn without replacement are resolved, C(resolved, k) / C(total, k)
 * (Yao et al. 2024, arXiv 2406.12045).
 * @throws RangeError as {@link passAtK}
 */
export const passHatK = ({ total, resolved }: { total: number; resolved: number }, k: number): number =>
  1 - passAtK({ total, resolved: total - resolved }, k);
