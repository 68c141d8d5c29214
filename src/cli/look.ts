import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { userError } from '../core/errors.ts';
import { isReady, readJson } from '../core/folder.ts';
import { lockHolder } from '../core/lock.ts';
import { type PlannedStage, planStages } from '../recipe/run.ts';
import { Recipe } from '../recipe/schema.ts';

export interface RunView {
  name: string;
  dir: string;
  recipe: Recipe;
  stages: PlannedStage[];
}

export type RunState = 'running' | 'finished' | 'stopped' | 'of another version';

/** A run by its name in `runsDir`, or by its folder. @throws OrchardError owner `user` */
export async function openRun(name: string, runsDir: string): Promise<RunView> {
  const dir = name.includes('/') ? name : join(runsDir, name);
  if (!existsSync(join(dir, 'recipe.json')))
    throw userError(name, `there is no run ${name} in ${runsDir}`, 'see `orchard list` for the runs');
  const recipe = Recipe.safeParse(await readJson(join(dir, 'recipe.json')));
  if (!recipe.success)
    throw userError(name, `run ${name} was made by another version of orchard`, 'look at it with that version');
  return { name: recipe.data.name, dir, recipe: recipe.data, stages: planStages(recipe.data) };
}

export async function stateOf({ dir, stages }: Pick<RunView, 'dir' | 'stages'>): Promise<RunState> {
  if (await lockHolder(dir)) return 'running';
  return stages.every(({ name }) => isReady(join(dir, name))) ? 'finished' : 'stopped';
}

export async function listRuns(runsDir: string): Promise<{ name: string; state: RunState }[]> {
  const names = await readdir(runsDir).catch(() => []);
  const runs = names.filter((name) => existsSync(join(runsDir, name, 'recipe.json')));
  return Promise.all(
    runs.map(async (name) => ({
      name,
      state: await openRun(name, runsDir).then(stateOf, (): RunState => 'of another version'),
    })),
  );
}
