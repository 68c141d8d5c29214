import type { Command } from 'commander';
import { type RecipeOptions, withRecipe } from '../options.ts';

/** `run` and its parts: each is the same run folder with only some stages. */
export function register(program: Command): void {
  withRecipe(program.command('run').description('run a whole recipe, or go on with it'))
    .option('--stage <name>', 'only the stage of this name')
    .option('--dry-run', 'show what would be done')
    .addHelpText('after', '\nExamples:\n  orchard run tiny\n  orchard run tiny --name tiny-8 --set seed=8')
    .action((recipe: string, options: RecipeOptions & { stage?: string; dryRun?: boolean }) =>
      execute(recipe, options, { name: options.stage }),
    );
  withRecipe(program.command('collect').description('collect and grade episodes of the teacher'))
    .addHelpText(
      'after',
      '\nExamples:\n  orchard collect tiny\n  orchard collect tiny --set stages[0].collect.episodesPerTask=1',
    )
    .action((recipe: string, options: RecipeOptions) => execute(recipe, options, { kind: 'collect' }));
  const train = program.command('train').description('train on what was collected');
  for (const [kind, what, example] of [
    ['sft', 'supervised fine-tuning with credit assignment', 'tiny'],
    ['pretrain', 'a small base model from scratch', 'tiny-base'],
    ['rl', 'reinforcement learning with balanced adaptive rollout and dense rewards', 'tiny'],
    ['value', 'the value model that ranks candidates', 'tiny'],
  ] as const) {
    withRecipe(train.command(kind).description(what))
      .option('--stage <name>', 'only the stage of this name')
      .addHelpText(
        'after',
        `\nExamples:\n  orchard train ${kind} ${example}\n  orchard train ${kind} ${example} --name again`,
      )
      .action((recipe: string, options: RecipeOptions & { stage?: string }) =>
        execute(recipe, options, { kind, name: options.stage }),
      );
  }
  withRecipe(
    program.command('rerank').description('several attempts at each held-out task, the best by the value model'),
  )
    .addHelpText(
      'after',
      '\nExamples:\n  orchard rerank tiny\n  orchard rerank tiny --set tasks.limit=40 --name tiny-40',
    )
    .action((recipe: string, options: RecipeOptions) => execute(recipe, options, { kind: 'rerank' }));
}

/** Runs a recipe, or the stages of it that are asked for, and prints the table where there is one. */
export async function execute(
  nameOrPath: string,
  options: RecipeOptions & { dryRun?: boolean },
  only: { kind?: string; name?: string },
): Promise<void> {
  const { loadRecipe } = await import('../../recipe/load.ts');
  const { machine, recipesDir } = await import('../environment.ts');
  const loaded = await loadRecipe(nameOrPath, {
    recipesDir,
    sets: options.set,
    cwd: process.cwd(),
    name: options.name,
  });
  if (options.dryRun) {
    const { printPlan } = await import('../plan.ts');
    printPlan(loaded, { json: false, values: false });
    return;
  }
  const { planStages, runRecipe } = await import('../../recipe/run.ts');
  const { openProgress, reportTable } = await import('../output.ts');
  const { interruptSignal } = await import('../interrupt.ts');
  const { availableParallelism } = await import('node:os');
  const { join } = await import('node:path');
  const { recipe } = loaded;
  console.error(
    `run ${recipe.name} · seed ${recipe.seed} · ${availableParallelism()} cores · ${options.runs}/${recipe.name}\n`,
  );
  const report = await runRecipe(recipe, {
    runsDir: options.runs,
    machine,
    progress: openProgress(),
    signal: interruptSignal(),
    only,
  });
  if (report) {
    const { writePage } = await import('../page.ts');
    const stages = planStages(recipe).map(({ name }) => name);
    const page = await writePage(join(options.runs, recipe.name), { report, stages });
    console.error('');
    console.log(reportTable(report));
    console.error(`\nevery number: orchard show ${recipe.name} · the page: ${page}`);
  }
}
