/** The 97.5 % quantile of the standard normal distribution. */
const Z = 1.959963984540054;

/**
 * Wilson's 95 % score interval of a proportion (Wilson 1927). [0, 1] when there is nothing to go by.
 * @returns low and high, both in [0, 1]
 */
export function wilson(successes: number, total: number): [number, number] {
  if (total === 0) return [0, 1];
  const share = successes / total;
  const z2 = (Z * Z) / total;
  const centre = (share + z2 / 2) / (1 + z2);
  const half = (Z / (1 + z2)) * Math.sqrt((share * (1 - share)) / total + z2 / (4 * total));
  return [successes === 0 ? 0 : centre - half, successes === total ? 1 : centre + half];
}

/** Natural logarithm of n!, exact up to rounding. */
function logFactorial(n: number): number {
  let sum = 0;
  for (let factor = 2; factor <= n; factor++) sum += Math.log(factor);
  return sum;
}

/** P(X = count) of X ~ Binomial(changed, 1/2). */
const coinChance = (count: number, changed: number): number =>
  Math.exp(logFactorial(changed) - logFactorial(count) - logFactorial(changed - count) - changed * Math.LN2);

/**
 * McNemar's test on paired outcomes, from the pairs that changed: the two-sided exact binomial p
 * (Fagerland, Lydersen and Laake 2013).
 */
export function mcnemar(gained: number, lost: number): number {
  const changed = gained + lost;
  const fewer = Math.min(gained, lost);
  let tail = 0;
  for (let count = 0; count <= fewer; count++) tail += coinChance(count, changed);
  return Math.min(1, 2 * tail);
}

/** McNemar's mid-p: the exact p less the chance of what was seen, which keeps the level without wasting power (ibid.). */
export function mcnemarMidP(gained: number, lost: number): number {
  const changed = gained + lost;
  const fewer = Math.min(gained, lost);
  let tail = 0;
  for (let count = 0; count <= fewer; count++) tail += coinChance(count, changed);
  return Math.min(1, 2 * tail - coinChance(fewer, changed));
}

/**
 * Percentile bootstrap over items (Efron 1979): 95 % interval of the mean of `values`, in the unit of the values. The same
 * seed gives the same interval.
 */
export function bootstrapMean(values: number[], { samples = 10_000, seed = 1 } = {}): [number, number] {
  if (values.length === 0) return [Number.NaN, Number.NaN];
  const next = mulberry(seed);
  const means = Float64Array.from({ length: samples }, () => {
    let sum = 0;
    for (let draw = 0; draw < values.length; draw++) sum += values[Math.floor(next() * values.length)]!;
    return sum / values.length;
  }).sort();
  return [means[Math.floor(0.025 * samples)]!, means[Math.ceil(0.975 * samples) - 1]!];
}

/** A small generator of numbers in [0, 1), the same on every machine. */
function mulberry(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/**
 * P(X >= observed) where X counts the successes of independent trials with these probabilities: the exact tail of the
 * Poisson binomial distribution (Chen and Liu 1997), in time quadratic in the trials.
 */
export function poissonBinomialTail(probabilities: number[], observed: number): number {
  let chances = [1];
  for (const p of probabilities) {
    const next = new Array<number>(chances.length + 1).fill(0);
    for (const [count, chance] of chances.entries()) {
      next[count]! += chance * (1 - p);
      next[count + 1]! += chance * p;
    }
    chances = next;
  }
  return Math.min(
    1,
    chances.slice(Math.max(0, observed)).reduce((sum, chance) => sum + chance, 0),
  );
}
