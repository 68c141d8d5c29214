import type { Command } from 'commander';
import { type RecipeOptions, withRecipe } from '../options.ts';

export function register(program: Command): void {
  withRecipe(program.command('tasks').description('look at the tasks of a recipe').command('check'))
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
