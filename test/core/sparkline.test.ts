import { expect, test } from 'vitest';
import { sparkline } from '../../src/core/sparkline.ts';

test('bars rise from the least value to the greatest; equal values are all low', () => {
  expect(sparkline([0, 1, 2, 3, 4, 5, 6, 7])).toBe('▁▂▃▄▅▆▇█');
  expect(sparkline([5, 5])).toBe('▁▁');
  expect(sparkline([])).toBe('');
});
