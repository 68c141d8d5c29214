import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { loadRecipe } from '../../src/recipe/load.ts';
import type { RlStep } from '../../src/records/step.ts';
import { folder, recipesDir } from '../support/orchard.ts';

const place = folder();

const step = (number: number): RlStep => ({
  v: 'orchard.step/1',
  step: number,
  version: `rl@v_${number}`,
  staleness: 0,
  resolveRate: 0.3 + number / 50,
  reward: number / 10,
  rewardParts: { tests: number / 20, rubric: number / 20 },
  groups: { kept: 8, dropped: { none_resolved: 2 }, ends: { early: 8 } },
  episodes: { run: 80, trained: 64, aborted: 1, infrastructure: 0 },
  tokens: { prompt: 1000, sampled: 500, trained: 400 },
  entropy: 0.1,
  mismatch: 0.001 * number,
  ratio: { p01: 0.9, p50: 1, p99: 1.1 },
  clipped: 0,
  masked: 0,
  distill: null,
  teacherFailures: 0,
  judgeFailures: 0,
  loss: 0.1,
  gradNorm: 1,
  learningRate: 1e-4,
  seconds: { rollout: 10, reward: 1, teacher: 0, batch: 0.1, train: 3, load: 0.1, total: 15 },
  waited: { trainer: 0.8, sampler: 0.3 },
  validation: number % 5 === 4 ? 0.5 : null,
  endedAt: 1_700_000_000_000 + 1000 * number,
});

/** A run folder as a run leaves it. */
async function runOf(name: string, steps: RlStep[]): Promise<void> {
  const file = place.recipe(name, 'stages:\n  - rl: { from: base, steps: 3, prompts: 2 }\n');
  const { recipe } = await loadRecipe(file, { recipesDir, sets: [], cwd: place.dir });
  mkdirSync(join(place.runs, name, 'rl'), { recursive: true });
  writeFileSync(join(place.runs, name, 'recipe.json'), JSON.stringify(recipe));
  writeFileSync(join(place.runs, name, 'rl/steps.jsonl'), steps.map((each) => `${JSON.stringify(each)}\n`).join(''));
}

test('the curves are drawn in the terminal, as a file, and as JSON lines', async () => {
  await runOf(
    'learned',
    Array.from({ length: 12 }, (_, at) => step(at)),
  );
  const text = await place.run(['plot', 'learned']);
  expect(text.code, text.stderr).toBe(0);
  for (const word of ['rl: reward, step 0 to 11, last 1.10', 'resolve rate', 'KL between'])
    expect(text.stdout).toContain(word);
  expect(Math.max(...text.stdout.split('\n').map((line) => line.length))).toBeLessThanOrEqual(80);

  const file = join(place.dir, 'curves.svg');
  const drawn = await place.run(['plot', 'learned', '--out', file]);
  expect(drawn.code, drawn.stderr).toBe(0);
  const svg = readFileSync(file, 'utf8');
  for (const word of ['<svg', 'resolve rate', 'validation', 'KL between sampler and trainer'])
    expect(svg).toContain(word);

  const lines = (await place.run(['plot', 'learned', '--json'])).stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  expect(lines.map((line) => [line.stage, line.step])).toEqual(Array.from({ length: 12 }, (_, at) => ['rl', at]));
  expect((await place.run(['status', 'learned'])).stdout).toContain('resolve 0.52');
});

test('TensorBoard reads every number once, however often they are written', async () => {
  await runOf('board', [step(0), step(1), step(2)]);
  const out = join(place.dir, 'tb');
  for (let times = 0; times < 2; times++)
    expect((await place.run(['plot', 'board', '--tensorboard', out])).code).toBe(0);
  const script = `
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
print(json.dumps({tag: [(e.step, e.value, e.wall_time) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
`;
  const read = JSON.parse(
    execFileSync('trainer/.venv/bin/python', ['-c', script, join(out, 'board/rl')], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }),
  ) as Record<string, [number, number, number][]>;
  expect(read['rl/reward']).toEqual([0, 1, 2].map((at) => [at, expect.closeTo(at / 10), 1_700_000_000 + at]));
  expect(read['rl/ratio/p99']!.map(([, value]) => value)).toEqual(
    [1.1, 1.1, 1.1].map((value) => expect.closeTo(value)),
  );
  expect(read['rl/groups/dropped/none_resolved']).toHaveLength(3);
});

test('a run without a trained step, a stage that is not there, and a file of another kind are named', async () => {
  await runOf('fresh', []);
  const fresh = await place.run(['plot', 'fresh']);
  expect([fresh.code, fresh.stderr]).toEqual([2, expect.stringContaining('run fresh has not trained a step yet')]);
  await runOf('one', [step(0)]);
  expect((await place.run(['plot', 'one', '--stage', 'sft'])).stderr).toContain(
    'no stage of reinforcement learning named sft',
  );
  expect((await place.run(['plot', 'one', '--out', 'x.png'])).stderr).toContain('expected a name ending in .svg');
  expect((await place.run(['plot', 'one'])).code).toBe(0);
});
