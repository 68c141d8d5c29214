/** How rewards of a group become advantages. */
export type Objective = 'grpo' | 'rloo' | 'dr-grpo' | 'gspo';

/** Keeps a nearly constant group from dividing by nothing; slime's value. */
const EPSILON = 1e-6;

/**
 * Advantages of the attempts at one task, one number for all tokens of an attempt. With the mean over the group and
 * the sample standard deviation (n − 1, as torch.std and TRL):
 * - `grpo` (Shao et al. 2024, arXiv 2402.03300) and `gspo` (Zheng et al. 2025, 2507.18071): (r − mean) / (std + 1e-6)
 * - `dr-grpo` (Liu et al. 2025, 2503.20783): r − mean
 * - `rloo` (Ahmadian et al. 2024, 2402.14740): r − mean of the others
 *
 * A group of one, or one whose rewards are all the same, gets zeros: there is nothing to compare.
 * @param rewards [n]
 * @returns advantages [n]
 * @throws RangeError when a reward is not a finite number
 */
export function advantages(rewards: number[], objective: Objective): number[] {
  const n = rewards.length;
  const bad = rewards.find((reward) => !Number.isFinite(reward));
  if (bad !== undefined) throw new RangeError(`rewards must be finite numbers, got ${bad}`);
  // The mean of equal numbers may differ from them in the last bit.
  if (rewards.every((reward) => reward === rewards[0])) return rewards.map(() => 0);
  const mean = rewards.reduce((sum, reward) => sum + reward, 0) / n;
  const centred = rewards.map((reward) => reward - mean);
  if (objective === 'dr-grpo') return centred;
  if (objective === 'rloo') return centred.map((value) => (value * n) / (n - 1));
  const std = Math.sqrt(centred.reduce((sum, value) => sum + value * value, 0) / (n - 1));
  return centred.map((value) => value / (std + EPSILON));
}
