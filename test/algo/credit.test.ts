import { expect, test } from 'vitest';
import { creditOf, judgeMessages, parseKeySteps, riseSegments } from '../../src/algo/credit.ts';

const OPTIONS = { epsilon: 0.05, mergeGaps: 0 };

test('values between key steps lie on a line, and credit is their difference', () => {
  const { values, credit } = creditOf(
    [
      { step: 0, value: 0.2 },
      { step: 2, value: 0.6 },
      { step: 4, value: 0 },
    ],
    4,
  );
  expect(values.map((value) => Number(value.toFixed(6)))).toEqual([0.2, 0.4, 0.6, 0.3, 0]);
  expect(credit.map((value) => Number(value.toFixed(6)))).toEqual([0.2, 0.2, -0.3, -0.3]);
});

test('an attempt that localises, fixes and then breaks has its rise up to the fix', () => {
  const { credit } = creditOf(
    [
      { step: 0, value: 0.3 },
      { step: 1, value: 0.6 },
      { step: 2, value: 0.95 },
      { step: 3, value: 0.95 },
      { step: 4, value: 0.05 },
      { step: 5, value: 0 },
    ],
    5,
  );
  expect(riseSegments(credit, OPTIONS)).toEqual([{ from: 0, to: 2 }]);
});

test('values are flat before the first key step and after the last, and clamped to what a probability can be', () => {
  const { values } = creditOf(
    [
      { step: 3, value: 1.4 },
      { step: 1, value: -0.2 },
    ],
    5,
  );
  expect(values).toEqual([0, 0, expect.closeTo(0.6), 1, 1, 1]);
});

test('a rise of exactly epsilon counts, whatever rounding does to it', () => {
  const { credit } = creditOf(
    [
      { step: 0, value: 0.3 },
      { step: 1, value: 0.35 },
      { step: 2, value: 0.39 },
    ],
    2,
  );
  expect(riseSegments(credit, OPTIONS)).toEqual([{ from: 0, to: 1 }]);
});

test('a slow rise is lost when the judge names only its ends, and found when it names where it happened', () => {
  const slow = creditOf(
    [
      { step: 0, value: 0.3 },
      { step: 10, value: 0.7 },
    ],
    10,
  );
  expect(riseSegments(slow.credit, OPTIONS)).toEqual([]);
  const named = creditOf(
    [
      { step: 0, value: 0.3 },
      { step: 4, value: 0.3 },
      { step: 5, value: 0.7 },
      { step: 10, value: 0.7 },
    ],
    10,
  );
  expect(riseSegments(named.credit, OPTIONS)).toEqual([{ from: 4, to: 5 }]);
});

test('rises with a gap between them become one only when asked', () => {
  const credit = [0.1, 0.1, 0, 0.1, -0.2, -0.2, 0.3];
  expect(riseSegments(credit, OPTIONS)).toEqual([
    { from: 0, to: 2 },
    { from: 3, to: 4 },
    { from: 6, to: 7 },
  ]);
  expect(riseSegments(credit, { epsilon: 0.05, mergeGaps: 1 })).toEqual([
    { from: 0, to: 4 },
    { from: 6, to: 7 },
  ]);
});

test('no key steps, or one outside the attempt, is an error', () => {
  expect(() => creditOf([], 3)).toThrow(RangeError);
  expect(() => creditOf([{ step: 4, value: 0 }], 3)).toThrow(/0 to 3/);
});

test("the judge's list is found in prose and fences", () => {
  expect(parseKeySteps('Sure:\n```json\n[{"step": 0, "value": 0.2}, {"step": 3, "value": 1}]\n```', 3)).toEqual([
    { step: 0, value: 0.2 },
    { step: 3, value: 1 },
  ]);
});

test.each([
  ['I cannot say.', /no JSON list/],
  ['[{"step": 0, "value": 0.2,}]', /not JSON/],
  ['[{"step": 9, "value": 0.2}]', /step 9/],
  ['[{"step": 1, "value": 7}]', /value 7/],
  ['[{"step": 1, "value": "high"}]', /value high/],
  ['[{"step": 1, "value": 0.5}]', /two are the least/],
  ['[]', /0 steps/],
])('the answer %s is refused with the reason', (answer, reason) => {
  expect(() => parseKeySteps(answer, 3)).toThrow(reason);
});

test('the judge sees numbered steps, shortened observations and the outcome', () => {
  const [, { content }] = judgeMessages({
    messages: [
      { role: 'user', content: 'fix it' },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: '1', type: 'function', function: { name: 'bash', arguments: '{"command":"ls"}' } }],
      },
      { role: 'tool', tool_call_id: '1', content: 'x'.repeat(5000) },
      { role: 'assistant', content: 'done' },
    ],
    outcome: 'tests failed',
  }) as [unknown, { content: string }];
  expect(content).toContain('[step 0] agent:\nbash({"command":"ls"})');
  expect(content).toContain('[step 1] agent:\ndone');
  expect(content).toContain('3800 characters left out');
  expect(content).toContain('has 2 steps. How it ended: tests failed');
});
