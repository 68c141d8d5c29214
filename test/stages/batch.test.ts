import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Episode } from '../../src/records/episode.ts';
import type { Sample } from '../../src/records/sample.ts';
import { writeRlBatch } from '../../src/stages/rl/batch.ts';
import { config } from '../../src/stages/rl/config.ts';

const episode = (id: string): Episode => ({ id }) as Episode;

/** Three prompt tokens and four sampled ones. */
const sample = (id: string): Sample => ({
  v: 'orchard.sample/1',
  id: `${id}#0`,
  episode: id,
  task: 't',
  tokens: [1, 2, 3, 4, 5, 6, 7],
  mask: [0, 0, 0, 1, 1, 1, 1],
  weights: [0, 0, 0, 1, 1, 1, 1],
  logprobs: [0, 0, 0, -0.1, -0.2, -0.3, -0.4],
  segments: [],
  rootReason: 'start',
  episodeShare: 1,
  source: 'engine',
});

async function batchOf(
  more: object,
  scores: Map<string, { sample: string; logprobs: number[] | null; problem: null }> | null = null,
) {
  const dir = join(mkdtempSync(join(tmpdir(), 'orchard-rl-')), 'step_000000');
  const ids = ['a', 'b', 'c', 'd'];
  await writeRlBatch(dir, {
    step: 0,
    version: 'rl@v_000000',
    settings: config.parse({ steps: 1, prompts: 2, ...more }),
    chosen: ids.map((id, at) => ({ episode: episode(id), group: at < 2 ? 0 : 1, reward: [1, -1, 1.5, -0.5][at]! })),
    samples: new Map(ids.map((id) => [id, [sample(id)]])),
    scores,
  });
  const script = `
import json, sys
from pathlib import Path
from orchard_trainer.contract import Batch
batch = Batch(Path(sys.argv[1]))
print(json.dumps([{s: batch.row(r, s).tolist() for s in batch.streams} for r in range(len(batch.lengths))]))
`;
  const rows = JSON.parse(
    execFileSync('trainer/.venv/bin/python', ['-c', script, dir], { encoding: 'utf8', env: { PYTHONPATH: 'trainer' } }),
  ) as Record<string, number[]>[];
  return { rows, manifest: JSON.parse(readFileSync(join(dir, 'manifest.json'), 'utf8')) };
}

const near = (values: number[]) => values.map((value) => expect.closeTo(value, 5));

test('every sampled token of an episode gets its advantage within its own group', async () => {
  const { rows, manifest } = await batchOf({});
  const scale = 1 / (Math.SQRT2 + 1e-6);
  expect(rows[0]!.advantage).toEqual(near([0, 0, 0, scale, scale, scale, scale]));
  expect(rows[1]!.advantage).toEqual(near([0, 0, 0, -scale, -scale, -scale, -scale]));
  expect(rows[2]!.advantage).toEqual(near([0, 0, 0, scale, scale, scale, scale]));
  expect(rows[0]!.sampler_logprob).toEqual(near([0, 0, 0, -0.1, -0.2, -0.3, -0.4]));
  expect(manifest).toMatchObject({
    kind: 'rl',
    policy_version: 'rl@v_000000',
    sampling: { temperature: 1, top_p: 1 },
    loss: {
      name: 'policy',
      params: { ratio: 'token', clip_low: 0.2, clip_high: 0.28, geometric_low: 0.99, geometric_high: 1.01 },
    },
  });
});

test('Dr.GRPO and RLOO do not divide by the spread, and GSPO counts sequences', async () => {
  const dr = await batchOf({ objective: 'dr-grpo', maxTokensPerCall: 50 });
  expect(dr.rows[0]!.advantage![3]).toBeCloseTo(1);
  expect(dr.manifest.loss.params.row_tokens).toBe(50);
  const rloo = await batchOf({ objective: 'rloo' });
  expect(rloo.rows[3]!.advantage![3]).toBeCloseTo(-2);
  const gspo = await batchOf({ objective: 'gspo' });
  expect(gspo.rows[0]!.weight).toEqual(near([0, 0, 0, 0.25, 0.25, 0.25, 0.25]));
  expect(gspo.manifest.loss.params).toMatchObject({
    ratio: 'sequence',
    clip_low: expect.closeTo(3e-4),
    clip_high: expect.closeTo(4e-4),
  });
});

const scores = new Map([
  ['a#0', { sample: 'a#0', logprobs: [0, -1, -1, -1.1, -1.2, -1.3, -1.4], problem: null }],
  ['b#0', { sample: 'b#0', logprobs: null, problem: null }],
  ['c#0', { sample: 'c#0', logprobs: [0, 0, 0, 0, 0, 0, 0], problem: null }],
  ['d#0', { sample: 'd#0', logprobs: [0, 0, 0, 0, 0, 0, 0], problem: null }],
]);

test('the teacher’s scores go with the batch; a sample it failed on is masked out of them and of nothing else', async () => {
  const { rows, manifest } = await batchOf({ distill: { divergence: 'js_skew', beta: 2, lambda: 0.3 } }, scores);
  expect(rows[0]!.reference_mask).toEqual([0, 0, 0, 1, 1, 1, 1]);
  expect(rows[0]!.reference_logprob).toEqual(near([0, 0, 0, -1.1, -1.2, -1.3, -1.4]));
  expect(rows[1]!.reference_mask).toEqual([0, 0, 0, 0, 0, 0, 0]);
  expect(rows[1]!.advantage![3]).toBeLessThan(0);
  expect(manifest.loss.params).toMatchObject({ divergence: 'js_skew', beta: 2, lambda: 0.3 });
});

test('folded into the advantage, the teacher needs nothing of the trainer', async () => {
  const { rows, manifest } = await batchOf({ objective: 'dr-grpo', distill: { into: 'advantage', beta: 0.5 } }, scores);
  // 1 − 0.5 · (−0.1 − −1.1)
  expect(rows[0]!.advantage).toEqual(near([0, 0, 0, 0.5, 0.5, 0.5, 0.5]));
  expect(rows[1]!.advantage).toEqual(near([0, 0, 0, -1, -1, -1, -1]));
  expect(manifest.streams).not.toContain('reference_logprob');
  expect(manifest.loss.params.divergence).toBeUndefined();
});

test('with only the teacher, the tests teach nothing', async () => {
  const { rows } = await batchOf({ distill: { only: true } }, scores);
  for (const { advantage } of rows) expect(advantage!.every((value) => value === 0)).toBe(true);
});
