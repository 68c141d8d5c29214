import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { basename, join, relative, resolve } from 'node:path';
import { userError } from '../core/errors.ts';
import { explainIssues, nearest } from './explain.ts';
import { applySet, readRaw } from './origin.ts';
import { Recipe } from './schema.ts';

export interface LoadedRecipe {
  recipe: Recipe;
  /** Dotted path to where the value came from; a path that is missing has its default. */
  origins: Map<string, string>;
  file: string;
}

/** Names of the recipes in a folder. */
export async function recipeNames(dir: string): Promise<string[]> {
  const files = await readdir(dir).catch(() => []);
  return files.filter((file) => file.endsWith('.yaml')).map((file) => basename(file, '.yaml'));
}

/**
 * Finds a recipe by name in `recipesDir` or by path, lays `--set`s over it, and resolves every value.
 * @throws OrchardError owner `user`, listing every problem by path
 */
export async function loadRecipe(
  nameOrPath: string,
  { recipesDir, sets, cwd, name }: { recipesDir: string; sets: string[]; cwd: string; name?: string },
): Promise<LoadedRecipe> {
  const file = await findRecipe(nameOrPath, { recipesDir, cwd });
  const shown = relative(cwd, file).startsWith('..') ? file : relative(cwd, file);
  let raw = await readRaw(file, shown);
  for (const set of sets) raw = applySet(raw, set, cwd);
  if (name !== undefined) {
    raw.value.name = name;
    raw.origins.set('name', '--name');
  }
  const parsed = Recipe.safeParse(raw.value);
  if (!parsed.success) {
    const problems = explainIssues(Recipe, raw.value, parsed.error);
    throw userError(
      shown,
      problems.map((problem) => `${shown}: ${problem}`).join('\n'),
      'correct the recipe; nothing was started',
    );
  }
  return { recipe: parsed.data, origins: raw.origins, file };
}

async function findRecipe(
  nameOrPath: string,
  { recipesDir, cwd }: { recipesDir: string; cwd: string },
): Promise<string> {
  if (/\.ya?ml$/.test(nameOrPath) || nameOrPath.includes('/')) return resolve(cwd, nameOrPath);
  const file = join(recipesDir, `${nameOrPath}.yaml`);
  if (existsSync(file)) return file;
  const names = await recipeNames(recipesDir);
  const guess = nearest(nameOrPath, names);
  throw userError(
    nameOrPath,
    `there is no recipe ${nameOrPath}${guess ? `, did you mean ${guess}?` : ''}`,
    `known: ${names.join(', ')}; or give a path ending in .yaml`,
  );
}

/** A stage entry of the recipe as kind and settings. */
export function stageEntries(recipe: Recipe): { kind: string; settings: unknown }[] {
  return recipe.stages.map((entry) => {
    const [kind, settings] = Object.entries(entry).find(([, value]) => value !== undefined)!;
    return { kind, settings };
  });
}
