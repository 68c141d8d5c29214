import { expect, test } from 'vitest';
import { bestOf } from '../../src/stages/rl/validate.ts';

const after = (...resolved: number[]) =>
  bestOf(resolved.map((count, at) => ({ batches: at * 4, resolved: count, total: 40 })))?.batches;

test('the latest version that is no standard error behind the best is the result of RL', () => {
  expect(after(4, 7, 6)).toBe(8); // 0.15 is within 0.175 - 0.060
  expect(after(4, 7, 6, 3)).toBe(8); // 0.075 is not
  expect(after(20, 2)).toBe(0);
  expect(after(0, 0, 0)).toBe(8); // nothing resolved tells no version apart
  expect(after()).toBeUndefined();
});
