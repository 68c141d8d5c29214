import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { applySet, readRaw } from '../../src/recipe/origin.ts';

async function recipes(files: Record<string, string>): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'orchard-recipes-'));
  for (const [name, text] of Object.entries(files)) await writeFile(join(dir, name), text);
  return dir;
}

test('every value says which line of which file it came from', async () => {
  const dir = await recipes({
    'a.yaml': 'name: a\nharness:\n  kind: mini-swe\n  turns: 5\nstages:\n  - collect: {}\n',
  });
  const raw = await readRaw(join(dir, 'a.yaml'), 'a.yaml');
  expect(raw.origins.get('harness.turns')).toBe('a.yaml:4');
  expect(raw.origins.get('stages[0].collect')).toBe('a.yaml:6');
});

test('a recipe that extends another keeps what it does not name, and replaces lists whole', async () => {
  const dir = await recipes({
    'base.yaml': 'name: base\nlimits: { calls: 3, tokens: 9 }\nstages:\n  - a: {}\n  - b: {}\n',
    'top.yaml': 'extends: base.yaml\nname: top\nlimits: { calls: 4 }\nstages:\n  - c: {}\n',
  });
  const { value, origins } = await readRaw(join(dir, 'top.yaml'), 'top.yaml');
  expect(value).toEqual({ name: 'top', limits: { calls: 4, tokens: 9 }, stages: [{ c: {} }] });
  expect(origins.get('limits.calls')).toBe('top.yaml:3');
  expect(origins.get('limits.tokens')).toBe('base.yaml:2');
  expect(origins.has('stages[1]')).toBe(false);
});

test('another kind of the same part drops the settings of the old kind', async () => {
  const dir = await recipes({
    'base.yaml': 'sandbox: { kind: local, memoryMiB: 256 }\n',
    'top.yaml': 'extends: base.yaml\nsandbox: { kind: kubernetes }\n',
  });
  expect((await readRaw(join(dir, 'top.yaml'), 'top.yaml')).value.sandbox).toEqual({ kind: 'kubernetes' });
  const mine = await recipes({
    'base.yaml': 'tasks: { benchmark: tiny, count: 3 }\n',
    'top.yaml': 'extends: base.yaml\ntasks: { benchmark: swe-bench, dataset: /x }\n',
  });
  const { value } = await readRaw(join(mine, 'top.yaml'), 'top.yaml');
  expect(value.tasks).toEqual({ benchmark: 'swe-bench', dataset: '/x' });
  const set = applySet(await readRaw(join(dir, 'base.yaml'), 'base.yaml'), 'sandbox.kind=kubernetes', dir);
  expect(set.value.sandbox).toEqual({ kind: 'kubernetes' });
});

test('what several stages share is said once: an anchor, and merges that keep the origin of each value', async () => {
  const dir = await recipes({
    'a.yaml':
      'stages:\n  - sft: &sft\n      epochs: 5\n      seed: 1\n  - sft:\n      <<: *sft\n      seed: 2\n  - sft: *sft\n',
  });
  const { value, origins } = await readRaw(join(dir, 'a.yaml'), 'a.yaml');
  expect(value.stages).toEqual([
    { sft: { epochs: 5, seed: 1 } },
    { sft: { epochs: 5, seed: 2 } },
    { sft: { epochs: 5, seed: 1 } },
  ]);
  expect(origins.get('stages[1].sft.epochs')).toBe('a.yaml:3');
  expect(origins.get('stages[1].sft.seed')).toBe('a.yaml:7');
  expect(origins.get('stages[2].sft.seed')).toBe('a.yaml:4');
  const set = applySet({ value, origins }, 'stages[2].sft.epochs=9', dir);
  expect(set.value.stages).toMatchObject([{ sft: { epochs: 5 } }, { sft: { epochs: 5 } }, { sft: { epochs: 9 } }]);
});

for (const [what, text] of [
  ['does not exist', 'limits: { <<: *nowhere }\n'],
  ['is not a group of settings', 'limits: { <<: 3 }\n'],
  ['holds itself', 'limits: &limits { calls: 3, more: *limits }\n'],
])
  test(`a merge or alias of what ${what} is refused with the file's name`, async () => {
    const dir = await recipes({ 'a.yaml': text! });
    await expect(readRaw(join(dir, 'a.yaml'), 'a.yaml')).rejects.toMatchObject({
      owner: 'user',
      message: expect.stringMatching(/^a\.yaml: /),
    });
  });

test('extending twice is refused', async () => {
  const dir = await recipes({ 'a.yaml': 'extends: b.yaml\n', 'b.yaml': 'extends: c.yaml\n', 'c.yaml': 'name: c\n' });
  await expect(readRaw(join(dir, 'a.yaml'), 'a.yaml')).rejects.toMatchObject({
    owner: 'user',
    message: expect.stringContaining('extends another recipe itself'),
  });
});

test('--set reaches into lists, takes YAML values, and says where it came from', async () => {
  const dir = await recipes({ 'a.yaml': 'stages:\n  - sft: { epochs: 5 }\n' });
  const raw = await readRaw(join(dir, 'a.yaml'), 'a.yaml');
  const set = applySet(raw, 'stages[0].sft.from=[x, y]', dir);
  expect(set.value).toEqual({ stages: [{ sft: { epochs: 5, from: ['x', 'y'] } }] });
  expect(set.origins.get('stages[0].sft.from')).toBe('--set');
  expect(raw.value).toEqual({ stages: [{ sft: { epochs: 5 } }] });
});

test.each(['stages[3].sft.epochs=1', 'epochs', '=3', 'a..b=1'])(
  '--set %s is refused with an example or the reason',
  async (assignment) => {
    const dir = await recipes({ 'a.yaml': 'stages:\n  - sft: { epochs: 5 }\n' });
    const raw = await readRaw(join(dir, 'a.yaml'), 'a.yaml');
    expect(() => applySet(raw, assignment, '/')).toThrow(/--set/);
  },
);

test('broken YAML is named with its line', async () => {
  const dir = await recipes({ 'a.yaml': 'name: a\nstages: [\n' });
  await expect(readRaw(join(dir, 'a.yaml'), 'a.yaml')).rejects.toThrow(/a\.yaml:\d+/);
});

test('paths are from the folder of the file that says them, those of --set from the current folder', async () => {
  const dir = await recipes({
    'base.yaml': 'model: { base: ../models/x, other: plain }\n',
    'top.yaml': 'extends: ./base.yaml\nstages: [{ sft: { datasets: [./a.jsonl] } }]\n',
  });
  const raw = await readRaw(join(dir, 'top.yaml'), 'top.yaml');
  expect(raw.value).toEqual({
    model: { base: join(dir, '../models/x'), other: 'plain' },
    stages: [{ sft: { datasets: [join(dir, 'a.jsonl')] } }],
  });
  expect(applySet(raw, 'model.base=./y', '/here').value.model).toMatchObject({ base: '/here/y' });
});
