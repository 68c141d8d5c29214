import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type BatchOptions, writeBatch } from '../../src/data/batches.ts';
import type { Sample } from '../../src/records/sample.ts';

const options: BatchOptions = {
  kind: 'sft',
  step: 3,
  policyVersion: null,
  sampling: null,
  loss: { name: 'sft', params: {} },
  shardTokens: 50,
};

function sample(number: number, { length = 7 + (number % 5), id = `s${number}` } = {}): Sample {
  const mask = Array.from({ length }, (_, at) => (at > 1 && (at + number) % 2 === 0 ? 1 : 0));
  return {
    v: 'orchard.sample/1',
    id,
    episode: id,
    task: 't',
    tokens: Array.from({ length }, (_, at) => number * 100 + at),
    mask,
    weights: mask.map((one) => one * (1 + number / 8)),
    logprobs: null,
    segments: [],
    rootReason: 'start',
    episodeShare: 1,
    source: 'retokenized',
  };
}

const folder = async (): Promise<string> => join(await mkdtemp(join(tmpdir(), 'orchard-batch-')), 'step_000003');

test('the trainer reads back every id, mask and weight, over several shards', async () => {
  const dir = await folder();
  const samples = Array.from({ length: 40 }, (_, number) => sample(number));
  const manifest = await writeBatch(dir, samples, options);
  expect(manifest.shards.length).toBeGreaterThan(3);
  const script = `
import json, sys
from pathlib import Path
from orchard_trainer.contract import Batch
batch = Batch(Path(sys.argv[1]))
print(json.dumps([{s: batch.row(r, s).tolist() for s in ("ids", "mask", "weight")} for r in range(len(batch.lengths))]))
`;
  const read = JSON.parse(
    execFileSync('trainer/.venv/bin/python', ['-c', script, dir], { encoding: 'utf8', env: { PYTHONPATH: 'trainer' } }),
  );
  expect(read).toEqual(samples.map(({ tokens, mask, weights }) => ({ ids: tokens, mask, weight: weights })));
  const trained = samples.flatMap(({ weights }) => weights).filter((weight) => weight > 0);
  expect(manifest.tokens.trained).toBe(trained.length);
  expect(manifest.tokens.weight).toBeCloseTo(trained.reduce((sum, one) => sum + one));
});

test('a batch appears whole or not at all', async () => {
  const dir = await folder();
  function* broken(): Iterable<Sample> {
    yield* Array.from({ length: 20 }, (_, number) => sample(number));
    throw new Error('stopped');
  }
  await expect(writeBatch(dir, broken(), options)).rejects.toThrow('stopped');
  expect(existsSync(dir)).toBe(false);
  await writeBatch(dir, [sample(1)], options);
  expect(await readdir(join(dir, '..'))).toEqual(['step_000003']);
  expect(await readdir(dir)).toContain('READY');
});

test('arrays that do not fit, and a weight outside the mask, stop it with the sample’s id', async () => {
  const dir = await folder();
  await expect(writeBatch(dir, [{ ...sample(1), mask: [1] }], options)).rejects.toThrow('sample s1');
  const outside = { ...sample(2), weights: sample(2).weights.map(() => 1) };
  await expect(writeBatch(dir, [outside], options)).rejects.toThrow('sample s2: a weight outside the mask');
});

test('nothing to train on is an error that says where to look', async () => {
  const nothing = { ...sample(1), weights: sample(1).weights.map(() => 0) };
  await expect(writeBatch(await folder(), [nothing], options)).rejects.toMatchObject({
    owner: 'user',
    wayOut: expect.stringContaining('selection.jsonl'),
  });
});
