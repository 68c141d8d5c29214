/**
 * On-policy distillation folded into the advantage (Thinking Machines Lab 2025, "On-Policy Distillation"): each token
 * pays its own reverse KL, A_t − β(ℓs − ℓt), with discount 0. Tokens that are not trained, or that the teacher did not
 * score, keep their advantage: a missing log-probability is never taken for zero.
 * @param advantages [T]
 * @param mask [T], 1 where the token is trained
 * @param samplerLogprobs [T] log-probabilities in nats of the tokens as they were sampled
 * @param teacherLogprobs [T] the teacher's for the same tokens
 * @param teacherMask [T], 1 where the teacher gave one
 * @param beta weight β of the teacher, 0 for none
 * @returns advantages [T]
 * @throws RangeError when the lists differ in length
 */
export function foldTeacher({
  advantages,
  mask,
  samplerLogprobs,
  teacherLogprobs,
  teacherMask,
  beta,
}: {
  advantages: number[];
  mask: number[];
  samplerLogprobs: number[];
  teacherLogprobs: number[];
  teacherMask: number[];
  beta: number;
}): number[] {
  for (const [name, list] of Object.entries({ mask, samplerLogprobs, teacherLogprobs, teacherMask }))
    if (list.length !== advantages.length)
      throw new RangeError(`${name} has ${list.length} entries, advantages has ${advantages.length}`);
  return advantages.map((advantage, at) =>
    mask[at] === 1 && teacherMask[at] === 1
      ? advantage - beta * (samplerLogprobs[at]! - teacherLogprobs[at]!)
      : advantage,
  );
}
