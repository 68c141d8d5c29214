import type { Command } from 'commander';
import { type RecipeOptions, withRecipe } from '../options.ts';
import { execute } from './run.ts';

export function register(program: Command): void {
  const tasks = program.command('tasks').description('check the tasks of a recipe, or select those to learn from');
  withRecipe(
    tasks.command('select').description('try every training task, and keep those that a model resolves sometimes'),
  )
    .option('--stage <name>', 'only the select stage of this name')
    .addHelpText(
      'after',
      '\nExamples:\n  orchard tasks select orchard-swe-4b\n  orchard tasks select mine --stage select',
    )
    .action((recipe: string, options: RecipeOptions & { stage?: string }) =>
      execute(recipe, options, { kind: 'select', name: options.stage }),
    );
  withRecipe(tasks.command('check'))
    .description('prove that gold resolves every task, three times, and that the untouched repository resolves none')
    .option('--split <name>', 'train or test; both when left out')
    .addHelpText(
      'after',
      '\nExamples:\n  orchard tasks check tiny\n  orchard tasks check tiny --split test --set tasks.limit=20',
    )
    .action(async (nameOrPath: string, options: RecipeOptions & { split?: 'train' | 'test' }) => {
      const { loadRecipe } = await import('../../recipe/load.ts');
      const { openContext } = await import('../../recipe/open.ts');
      const { checkTasks } = await import('../../benchmarks/swe-bench/check.ts');
      const { machine, recipesDir } = await import('../environment.ts');
      const { openProgress } = await import('../output.ts');
      const { interruptSignal } = await import('../interrupt.ts');
      const { mkdtemp, rm } = await import('node:fs/promises');
      const { tmpdir } = await import('node:os');
      const { join } = await import('node:path');
      const { userError } = await import('../../core/errors.ts');
      if (options.split && options.split !== 'train' && options.split !== 'test')
        throw userError('--split', `--split ${options.split}: expected train or test`, 'leave it out for both');
      const { recipe } = await loadRecipe(nameOrPath, { recipesDir, sets: options.set, cwd: process.cwd() });
      const dir = await mkdtemp(join(tmpdir(), 'orchard-tasks-'));
      const signal = interruptSignal();
      const progress = openProgress();
      let broken = 0;
      try {
        await using context = await openContext(recipe, { runDir: dir, machine, progress, signal });
        await using sandboxes = await context.openSandboxes();
        for (const split of options.split ? [options.split] : (['train', 'test'] as const)) {
          const tasks = await context.tasks(split);
          const bar = progress.start(split, tasks.length, 'tasks');
          const problems = await checkTasks(tasks, {
            benchmark: context.benchmark,
            context: {
              sandboxes,
              blobs: context.blobs,
              memoryMiB: context.sandbox.memoryMiB,
              processes: context.sandbox.processes,
              signal,
            },
            concurrency: context.concurrency,
            onProgress: (done) => bar.update(done, ''),
          });
          bar.end(`${tasks.length - problems.length} sound, ${problems.length} broken`);
          for (const { task, problem } of problems) console.log(`${task}: ${problem}`);
          broken += problems.length;
        }
      } finally {
        await rm(dir, { recursive: true, force: true });
      }
      if (broken > 0) process.exitCode = 1;
    });
}
