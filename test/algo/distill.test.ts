import { expect, test } from 'vitest';
import { foldTeacher } from '../../src/algo/distill.ts';

const given = {
  advantages: [0.5, 0.5, 0.5, 0.5],
  mask: [0, 1, 1, 1],
  samplerLogprobs: [0, -1, -0.5, -2],
  teacherLogprobs: [0, -1.5, -0.25, 0],
  teacherMask: [1, 1, 1, 0],
  beta: 1,
};

test('a token the teacher likes less pays the difference, one it likes more gains it', () => {
  expect(foldTeacher(given)).toEqual([0.5, 0, 0.75, 0.5]);
});

test('tokens that are not trained or not scored keep their advantage, whatever stands in their place', () => {
  const folded = foldTeacher({ ...given, teacherLogprobs: [Number.NaN, -1.5, -0.25, Number.NEGATIVE_INFINITY] });
  expect(folded).toEqual([0.5, 0, 0.75, 0.5]);
});

test('beta scales the difference, and at zero the teacher has no say', () => {
  expect(foldTeacher({ ...given, beta: 2 })).toEqual([0.5, -0.5, 1, 0.5]);
  expect(foldTeacher({ ...given, beta: 0 })).toEqual(given.advantages);
});

test('with no task advantage, the mean over trained tokens is minus the sampled reverse KL', () => {
  const folded = foldTeacher({ ...given, advantages: [0, 0, 0, 0], teacherMask: [1, 1, 1, 1] });
  expect(folded.reduce((sum, value) => sum + value, 0) / 3).toBeCloseTo(-(0.5 - 0.25 - 2) / 3, 12);
});

test.each(['mask', 'samplerLogprobs', 'teacherLogprobs', 'teacherMask'] as const)(
  'a %s of another length is refused',
  (name) => {
    expect(() => foldTeacher({ ...given, [name]: [1] })).toThrow(
      new RangeError(`${name} has 1 entries, advantages has 4`),
    );
  },
);

test('the lists given are not changed', () => {
  const before = structuredClone(given);
  foldTeacher(given);
  expect(given).toEqual(before);
});
