import type { Command } from 'commander';

export interface RecipeOptions {
  set: string[];
  name?: string;
  runs: string;
}

const collectSets = (value: string, before: string[]): string[] => [...before, value];

/** The options every command on a recipe has. */
export function withRecipe(command: Command): Command {
  return command
    .argument('<recipe>', 'name of a recipe, or a path ending in .yaml')
    .option('--set <path=value>', 'override one value of the recipe; may be given several times', collectSets, [])
    .option('--name <run>', 'name of the run; the recipe has one')
    .option('--runs <dir>', 'folder that holds the runs', 'runs');
}

/** Where a run is looked for: commands that only look take a run's name or its folder. */
export const runsOption = ['--runs <dir>', 'folder that holds the runs', 'runs'] as const;
