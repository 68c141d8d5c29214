import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { loadRecipe, recipeNames } from '../../src/recipe/load.ts';
import { planStages } from '../../src/recipe/run.ts';

const recipesDir = join(import.meta.dirname, '../../recipes');
const load = (name: string, sets: string[] = []) => loadRecipe(name, { recipesDir, sets, cwd: recipesDir });

/** Problems of the tiny recipe with a change, one sentence each. */
async function problems(...sets: string[]): Promise<string> {
  return load('tiny', sets).then(
    () => 'none',
    (error: Error) => error.message,
  );
}

test.each(await recipeNames(recipesDir))('recipe %s is valid and every stage of it is planned', async (name) => {
  const { recipe, origins } = await load(name);
  expect(recipe.name).toBe(name);
  const stages = planStages(recipe);
  expect(stages.length).toBeGreaterThan(0);
  for (const { lines } of stages) expect(lines.length).toBeGreaterThan(0);
  expect(origins.get('name')).toContain(`${name}.yaml:`);
});

test('the published recipes keep the paper’s constants', async () => {
  const { recipe } = await load('orchard-swe-4b');
  const sft = planStages(recipe).find(({ name }) => name === 'sft')!;
  expect(sft.settings).toMatchObject({
    epochs: 5,
    batchRows: 128,
    learningRate: 1e-5,
    minLearningRate: 1e-6,
    credit: { epsilon: 0.05 },
  });
  const rl = planStages(recipe).find(({ name }) => name === 'rl')!;
  expect(rl.settings).toMatchObject({
    prompts: 16,
    rollout: { n: 8, max: 16, band: [0.375, 0.625] },
    learningRate: 1e-6,
  });
});

test('an unknown key names the nearest known one', async () => {
  expect(await problems('harness.turn=3')).toContain('harness.turn: unknown key, did you mean turns?');
  expect(await problems('limits.wallMs=3')).toContain('did you mean wallS?');
  expect(await problems('stages[1].sft.epoch=3')).toContain('stages[1].sft.epoch: unknown key, did you mean epochs?');
  expect(await problems('zzzzzzzz=3')).toContain('known here: name, seed, model');
});

test('a wrong type names path, expected and got', async () => {
  expect(await problems('concurrency=many')).toContain('concurrency: expected number, got "many"');
  expect(await problems('stages[0].collect.episodesPerTask=0')).toMatch(/episodesPerTask: .*0, got 0/);
  expect(await problems('model=x')).toContain('model: expected object, got "x"');
});

test('a wrong kind lists the right ones', async () => {
  expect(await problems('sandbox.kind=locla')).toMatch(
    /sandbox\.kind: expected one of .*local.*, got "locla"; did you mean local\?/,
  );
});

test('a value that may be a word or settings says both', async () => {
  expect(await problems('stages[1].sft.credit=5')).toContain(
    'stages[1].sft.credit: expected "none" or settings, got 5',
  );
  expect(await problems('stages[1].sft.credit={epsilom: 3}')).toContain(
    'credit.epsilom: unknown key, did you mean epsilon?',
  );
  expect(await problems('stages[1].sft.credit={epsilon: x}')).toContain('credit.epsilon: expected number, got "x"');
});

test('all problems are told at once, and nothing is started', async () => {
  const text = await problems('harness.turn=3', 'concurrency=x', 'seed=1.5');
  expect(text.split('\n')).toHaveLength(3);
});

test('a recipe that is not there names the nearest', async () => {
  await expect(load('tinny')).rejects.toMatchObject({
    owner: 'user',
    message: expect.stringContaining('did you mean tiny?'),
  });
});

test('two stages of one name, and a stage that reads a later one, are refused', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'orchard-recipe-'));
  const planned = async (stages: string): Promise<unknown> => {
    await writeFile(join(dir, 'x.yaml'), `extends: ${recipesDir}/tiny.yaml\nname: x\nstages:\n${stages}`);
    return planStages((await loadRecipe(join(dir, 'x.yaml'), { recipesDir, sets: [], cwd: dir })).recipe);
  };
  await expect(planned('  - collect: {}\n  - collect: {}\n')).rejects.toThrow('the name collect is taken');
  await expect(planned('  - collect: {}\n  - eval: { models: [collect] }\n')).rejects.toThrow(
    'reads weights of stage collect',
  );
  await expect(planned('  - collect: { name: ../x }\n')).rejects.toThrow('cannot name a folder');
  await expect(planned('  - sft: {}\n  - collect: {}\n')).rejects.toThrow(
    'reads episodes of stage collect, which does not come before it',
  );
});
