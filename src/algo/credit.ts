import type { ChatMessage } from '../ports/inference.ts';

/** The judge's estimate of P(resolve) in the state before assistant turn `step`; `step` = number of turns is the end. */
export interface KeyStep {
  step: number;
  value: number;
}

/** Turns [from, to) in which P(resolve) rises. */
export interface Segment {
  from: number;
  to: number;
}

/**
 * Hindsight values of every state from a sparse set of key steps, and the credit of every turn
 * (Orchard paper, section 3.3.1): V is linear between key steps and flat outside them, clamped to [0, 1];
 * the credit of turn t is V(t+1) − V(t).
 *
 * Linear interpolation spreads a jump over all turns between two key steps: a rise of 0.2 over five turns gives each
 * 0.04 and falls below an epsilon of 0.05. The judge is therefore asked to name the turns where something happened.
 * @param turns number of assistant turns T
 * @returns values [T + 1] and credit [T]
 * @throws RangeError when there is no key step, or one lies outside [0, turns]
 */
export function creditOf(keySteps: KeyStep[], turns: number): { values: number[]; credit: number[] } {
  const known = [...keySteps].sort((a, b) => a.step - b.step);
  const first = known[0];
  const last = known.at(-1);
  if (!first || !last) throw new RangeError('no key step');
  if (first.step < 0 || last.step > turns)
    throw new RangeError(`key steps must lie in 0 to ${turns}, got ${first.step} to ${last.step}`);
  const clamp = (value: number): number => Math.min(1, Math.max(0, value));
  let at = 0;
  const values = Array.from({ length: turns + 1 }, (_, step) => {
    while (at + 1 < known.length && known[at + 1]!.step <= step) at++;
    const before = known[at]!;
    const after = known[at + 1];
    if (step <= before.step || !after) return clamp(before.value);
    return clamp(before.value + ((after.value - before.value) * (step - before.step)) / (after.step - before.step));
  });
  return { values, credit: values.slice(1).map((value, step) => value - values[step]!) };
}

/**
 * Rise segments: maximal runs of turns whose credit is at least `epsilon`; runs that lie at most `mergeGaps` turns
 * apart become one.
 */
export function riseSegments(
  credit: number[],
  { epsilon, mergeGaps }: { epsilon: number; mergeGaps: number },
): Segment[] {
  const segments: Segment[] = [];
  for (const [turn, value] of credit.entries()) {
    // Values are sums of rounded decimals: 0.35 − 0.3 must count as 0.05.
    if (value < epsilon - 1e-9) continue;
    const last = segments.at(-1);
    if (last && turn - last.to <= mergeGaps) last.to = turn + 1;
    else segments.push({ from: turn, to: turn + 1 });
  }
  return segments;
}

const OBSERVATION_CHARACTERS = 1200;

/** Asks a language model for the key steps of an attempt, in hindsight: it is told how the attempt ended. */
export function judgeMessages({ messages, outcome }: { messages: ChatMessage[]; outcome: string }): ChatMessage[] {
  let turn = 0;
  const shown = messages.map(({ role, content, tool_calls }) => {
    const text = [
      content ?? '',
      ...(tool_calls ?? []).map((call) => `${call.function.name}(${call.function.arguments})`),
    ]
      .join('\n')
      .trim();
    return role === 'assistant'
      ? `[step ${turn++}] agent:\n${text}`
      : `${role === 'tool' ? 'observation' : role}:\n${shorten(text)}`;
  });
  return [
    {
      role: 'system',
      content: [
        'You review how an AI agent worked on a repository task. You see the whole attempt and how its tests ended.',
        'Estimate, for a few key moments, the probability that the attempt would still resolve the task if a competent agent went on from there.',
        'A moment is written as the number of the step about to be taken; the number of steps itself stands for the end.',
        'Choose 5 to 10 moments: the start, the end, and right before and after each step that finds the cause, edits code or runs tests. Where nothing changed, name no moment.',
        'Answer with a JSON list only, for example [{"step": 0, "value": 0.3}, {"step": 4, "value": 0.7}].',
      ].join('\n'),
    },
    { role: 'user', content: `${shown.join('\n\n')}\n\nThe attempt has ${turn} steps. How it ended: ${outcome}` },
  ];
}

const shorten = (text: string): string =>
  text.length <= OBSERVATION_CHARACTERS
    ? text
    : `${text.slice(0, OBSERVATION_CHARACTERS / 2)}\n… ${text.length - OBSERVATION_CHARACTERS} characters left out …\n${text.slice(-OBSERVATION_CHARACTERS / 2)}`;

/**
 * Reads the judge's list out of its answer; prose and code fences around it are passed over.
 * @throws Error saying what is wrong with it
 */
export function parseKeySteps(answer: string, turns: number): KeyStep[] {
  const list = /\[\s*(\{[^[\]]*\})?\s*\]/.exec(answer)?.[0];
  if (list === undefined) throw new Error('the judge gave no JSON list');
  let parsed: unknown;
  try {
    parsed = JSON.parse(list);
  } catch (error) {
    throw new Error(`the judge's list is not JSON: ${(error as Error).message}`);
  }
  const steps = (parsed as unknown[]).map((entry) => {
    const { step, value } = entry as Partial<KeyStep>;
    if (!Number.isInteger(step) || step! < 0 || step! > turns)
      throw new Error(`the judge named step ${step}, expected a whole number from 0 to ${turns}`);
    if (typeof value !== 'number' || !(value >= 0 && value <= 1))
      throw new Error(`the judge gave step ${step} the value ${value}, expected a number from 0 to 1`);
    return { step: step!, value };
  });
  if (steps.length < 2) throw new Error(`the judge named ${steps.length} steps, two are the least to see a rise`);
  return steps;
}
