import type { Command } from 'commander';
import { runsOption } from '../options.ts';

export function register(program: Command): void {
  program
    .command('list')
    .description('list recipes, runs, and the kinds a recipe can name')
    .option(...runsOption)
    .option('--json', 'as one JSON object')
    .addHelpText('after', '\nExamples:\n  orchard list\n  orchard list --json | jq -r .runs[].name')
    .action(async (options: { runs: string; json?: boolean }) => {
      const [{ recipeNames }, { recipesDir }, { listRuns }, ...registries] = await Promise.all([
        import('../../recipe/load.ts'),
        import('../environment.ts'),
        import('../look.ts'),
        import('../../harnesses/index.ts'),
        import('../../inference/index.ts'),
        import('../../sandboxes/index.ts'),
        import('../../benchmarks/index.ts'),
        import('../../rewards/index.ts'),
        import('../../trainers/index.ts'),
        import('../../stages/index.ts'),
      ]);
      const kinds = Object.fromEntries(
        registries.flatMap((registry) =>
          Object.entries(registry).map(([part, entries]) => [part, Object.keys(entries as object)] as const),
        ),
      );
      const recipes = await recipeNames(recipesDir);
      const runs = await listRuns(options.runs);
      if (options.json) {
        console.log(JSON.stringify({ recipes, runs, kinds }));
        return;
      }
      console.log(`recipes     ${recipes.join(' ')}`);
      for (const [part, names] of Object.entries(kinds)) console.log(`${part.padEnd(11)} ${names.join(' ')}`);
      console.log(
        `runs        ${runs.map(({ name, state }) => `${name} (${state})`).join(', ') || `none in ${options.runs}`}`,
      );
    });
}
