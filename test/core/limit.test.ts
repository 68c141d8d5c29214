import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { forEachLimited, mapInOrder } from '../../src/core/limit.ts';

const never = new AbortController().signal;

async function* count(to: number): AsyncIterable<number> {
  for (let number = 0; number < to; number++) yield number;
}

test('no more than the limit are at work, and all are done', async () => {
  let running = 0;
  let most = 0;
  const done: number[] = [];
  await forEachLimited(
    Array.from({ length: 30 }, (_, index) => index),
    { concurrency: 4, signal: never },
    async (item) => {
      most = Math.max(most, ++running);
      await sleep(item % 3);
      done.push(item);
      running--;
    },
  );
  expect(most).toBe(4);
  expect(done.sort((a, b) => a - b)).toEqual(Array.from({ length: 30 }, (_, index) => index));
});

test('the first failure stops new work, waits for what runs, and is thrown', async () => {
  const begun: number[] = [];
  let finished = 0;
  const work = forEachLimited([0, 1, 2, 3, 4, 5], { concurrency: 2, signal: never }, async (item) => {
    begun.push(item);
    if (item === 0) throw new Error('first');
    await sleep(10);
    finished++;
  });
  await expect(work).rejects.toThrow('first');
  expect([begun, finished]).toEqual([[0, 1], 1]);
});

test('results come in the order of the items however long each takes', async () => {
  let running = 0;
  let most = 0;
  const results = await Array.fromAsync(
    mapInOrder(count(20), { concurrency: 5 }, async (item) => {
      most = Math.max(most, ++running);
      await sleep((20 - item) % 7);
      running--;
      return item * 2;
    }),
  );
  expect(results).toEqual(Array.from({ length: 20 }, (_, index) => index * 2));
  expect(most).toBe(5);
});

test('a failure in order is thrown in its turn, after those under way have ended', async () => {
  let ended = 0;
  const got: number[] = [];
  const work = async (): Promise<void> => {
    for await (const item of mapInOrder(count(10), { concurrency: 3 }, async (item) => {
      await sleep(5);
      ended++;
      if (item === 2) throw new Error('two');
      return item;
    }))
      got.push(item);
  };
  await expect(work()).rejects.toThrow('two');
  expect(got).toEqual([0, 1]);
  const then = ended;
  await sleep(20);
  expect(ended).toBe(then);
});
