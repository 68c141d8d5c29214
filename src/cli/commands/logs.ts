import type { Command } from 'commander';
import { runsOption } from '../options.ts';

/** Files that say what a stage did, in the order people look for them. */
const LOGS = ['trainer.log', 'events.jsonl', 'metrics.jsonl'];

export function register(program: Command): void {
  program
    .command('logs')
    .description('what the processes of a stage wrote')
    .argument('<run>', 'name of a run')
    .argument('[stage]', 'name of a stage; all when left out')
    .option(...runsOption)
    .option('-n, --lines <count>', 'last lines of each file', '20')
    .addHelpText('after', '\nExamples:\n  orchard logs tiny sft\n  orchard logs tiny eval -n 100')
    .action(async (name: string, stage: string | undefined, options: { runs: string; lines: string }) => {
      const { openRun } = await import('../look.ts');
      const { userError } = await import('../../core/errors.ts');
      const { readdir, readFile } = await import('node:fs/promises');
      const { join, relative, basename } = await import('node:path');
      const view = await openRun(name, options.runs);
      const lines = Number(options.lines);
      if (!Number.isInteger(lines) || lines < 1)
        throw userError('--lines', `--lines ${options.lines}: expected a whole number above 0`, 'for example -n 50');
      const stages = view.stages.filter((each) => stage === undefined || each.name === stage);
      if (stages.length === 0)
        throw userError(
          stage ?? name,
          `run ${name} has no stage ${stage}`,
          `its stages: ${view.stages.map((each) => each.name).join(', ')}`,
        );
      let shown = 0;
      for (const each of stages) {
        const dir = join(view.dir, each.name);
        const entries = await readdir(dir, { recursive: true }).catch(() => []);
        for (const file of entries.filter((entry) => entry.endsWith('.log') || LOGS.includes(basename(entry))).sort()) {
          const text = await readFile(join(dir, file), 'utf8');
          if (text.trim() === '') continue;
          shown++;
          console.log(`── ${relative(view.dir, join(dir, file))}`);
          console.log(text.trimEnd().split('\n').slice(-lines).join('\n'));
        }
      }
      if (shown === 0)
        console.error(`no process of ${stage ?? name} has left a log; for attempts see orchard show ${name}`);
    });
}
