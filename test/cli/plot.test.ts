import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
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

/** A run folder as a run leaves it; the second stage starts from the first. */
async function runOf(name: string, steps: RlStep[], more?: RlStep[]): Promise<void> {
  const second = more ? '  - rl: { name: rl-dense, from: rl, steps: 3, prompts: 2 }\n' : '';
  const file = place.recipe(name, `stages:\n  - rl: { from: base, steps: 3, prompts: 2 }\n${second}`);
  const { recipe } = await loadRecipe(file, { recipesDir, sets: [], cwd: place.dir });
  mkdirSync(join(place.runs, name), { recursive: true });
  writeFileSync(join(place.runs, name, 'recipe.json'), JSON.stringify(recipe));
  for (const [stage, lines] of [
    ['rl', steps],
    ['rl-dense', more ?? []],
  ] as const) {
    mkdirSync(join(place.runs, name, stage), { recursive: true });
    const text = lines.map((each) => `${JSON.stringify(each)}\n`).join('');
    writeFileSync(join(place.runs, name, stage, 'steps.jsonl'), text);
  }
}

const python = join(import.meta.dirname, '../../trainer/.venv/bin/python');
const hasTensorboard = spawnSync(python, ['-c', 'import tensorboard']).status === 0;
if (!hasTensorboard) console.warn(`SKIPPED: TensorBoard's own reader, since ${python} cannot import tensorboard`);

/** CRC-32C bit by bit: unlike the one with a table that wrote the file. */
function crc32c(data: Buffer): number {
  let crc = ~0;
  for (const byte of data) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
  }
  return ~crc >>> 0;
}

/** Data of every TFRecord frame of a file, its checksums unmasked and compared. */
function framesOf(file: Buffer): Buffer[] {
  const frames: Buffer[] = [];
  const expectChecksum = (at: number, data: Buffer): void => {
    const rotated = (file.readUInt32LE(at) - 0xa282ead8) >>> 0;
    expect(((rotated >>> 17) | (rotated << 15)) >>> 0).toBe(crc32c(data));
  };
  for (let at = 0; at < file.length; ) {
    const length = Number(file.readBigUInt64LE(at));
    const data = file.subarray(at + 12, at + 12 + length);
    expectChecksum(at + 8, file.subarray(at, at + 8));
    expectChecksum(at + 12 + length, data);
    frames.push(data);
    at += length + 16;
  }
  return frames;
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

test('stages stand one behind the other in the file, each in its colour and with its name', async () => {
  await runOf(
    'two',
    [step(0), step(1)],
    [{ ...step(0), rewardParts: { tests: 0.2, length: -0.1, 'rubric.rigor': 1 } }],
  );
  const file = join(place.dir, 'new/folder/two.svg');
  const { code, stdout, stderr } = await place.run(['plot', 'two', '--out', file]);
  expect([code, stdout, stderr.trim()]).toEqual([0, '', file]);
  const svg = readFileSync(file, 'utf8');
  for (const word of ['>two<', '>rl<', '>rl-dense<', '>length<', '#2b6cb0', '#c05621']) expect(svg).toContain(word);
  for (const word of ['rubric.rigor', 'NaN', 'undefined']) expect(svg).not.toContain(word);
  expect((await place.run(['plot', 'two', '--stage', 'rl-dense'])).stdout).not.toContain('rl: ');
});

test('a curve that does not change is labelled with its value', async () => {
  await runOf('flat', [step(0), { ...step(0), step: 1 }]);
  expect((await place.run(['plot', 'flat', '--stage', 'rl'])).stdout).toMatch(/resolve rate.*last 0\.30\n +0\.30 ┼/);
});

test('the file for TensorBoard is whole frames with sound checksums, and the same when written again', async () => {
  await runOf('frames', [step(0), step(1)], [step(0)]);
  const out = join(place.dir, 'frames-tb');
  const written = async (): Promise<Buffer> => {
    expect((await place.run(['plot', 'frames', '--tensorboard', out])).code).toBe(0);
    const dir = join(out, 'frames/rl');
    const [file, ...more] = readdirSync(dir);
    expect([file, more]).toEqual([expect.stringMatching(/^events\.out\.tfevents\.\d+\.orchard$/), []]);
    return readFileSync(join(dir, file!));
  };
  expect(crc32c(Buffer.from('123456789'))).toBe(0xe3069283); // the published check value
  const first = await written();
  const frames = framesOf(first);
  expect(frames).toHaveLength(3);
  expect(frames[0]!.toString('latin1')).toContain('brain.Event:2');
  expect(frames[1]!.toString('latin1')).toContain('rl/ratio/p50');
  expect((await written()).equals(first)).toBe(true);
  expect(readdirSync(join(out, 'frames')).sort()).toEqual(['rl', 'rl-dense']);
});

test.skipIf(!hasTensorboard)('TensorBoard reads every number once, however often they are written', async () => {
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
    execFileSync(python, ['-c', script, join(out, 'board/rl')], {
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
  await runOf('half', [step(0)], []);
  expect((await place.run(['plot', 'half', '--stage', 'rl-dense'])).stderr).toContain('a step of rl-dense yet');
  await runOf('one', [step(0)]);
  expect((await place.run(['plot', 'one', '--stage', 'sft'])).stderr).toContain(
    'no stage of reinforcement learning named sft',
  );
  expect((await place.run(['plot', 'one', '--out', 'x.png'])).stderr).toContain('expected a name ending in .svg');
  expect((await place.run(['plot', 'one'])).code).toBe(0);
});
