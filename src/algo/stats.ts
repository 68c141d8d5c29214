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

/**
 * McNemar's test on paired outcomes, from the pairs that changed: the two-sided exact binomial p
 * (Fagerland, Lydersen and Laake 2013).
 */
export function mcnemar(gained: number, lost: number): number {
  const changed = gained + lost;
  const fewer = Math.min(gained, lost);
  const logTerm = (count: number): number =>
    logFactorial(changed) - logFactorial(count) - logFactorial(changed - count) - changed * Math.LN2;
  let tail = 0;
  for (let count = 0; count <= fewer; count++) tail += Math.exp(logTerm(count));
  return Math.min(1, 2 * tail);
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
