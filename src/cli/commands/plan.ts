import type { Command } from 'commander';
import { type RecipeOptions, withRecipe } from '../options.ts';

export function register(program: Command): void {
  withRecipe(
    program.command('plan').description('show every value of a recipe, where it came from, and what would be done'),
  )
    .option('--json', 'as one JSON object')
    .addHelpText('after', '\nExamples:\n  orchard plan tiny\n  orchard plan orchard-swe-4b --json | jq .recipe.model')
    .action(async (nameOrPath: string, options: RecipeOptions & { json?: boolean }) => {
      const { loadRecipe } = await import('../../recipe/load.ts');
      const { recipesDir } = await import('../environment.ts');
      const { printPlan } = await import('../plan.ts');
      const loaded = await loadRecipe(nameOrPath, {
        recipesDir,
        sets: options.set,
        cwd: process.cwd(),
        name: options.name,
      });
      printPlan(loaded, { json: options.json ?? false, values: true });
    });
}
