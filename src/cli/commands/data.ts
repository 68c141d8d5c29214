import type { Command } from 'commander';
import { runsOption } from '../options.ts';

export function register(program: Command): void {
  const data = program
    .command('data')
    .description('trajectories in the schema of the public data set microsoft/Orchard');
  data
    .command('inspect')
    .description('count the rows of a parquet or JSONL file by source and status')
    .argument('<file>')
    .addHelpText('after', '\nExamples:\n  orchard data inspect train-00000.parquet\n  orchard data inspect mine.jsonl')
    .action(async (file: string) => {
      const { readOrchardDataset } = await import('../../data/orchard-dataset.ts');
      const counts = new Map<string, number>();
      let turns = 0;
      for await (const row of readOrchardDataset(file)) {
        const key = `${row.metadata.source ?? 'unknown'}\t${row.metadata.verify_status}`;
        counts.set(key, (counts.get(key) ?? 0) + 1);
        turns += row.messages.filter(({ role }) => role === 'assistant').length;
      }
      for (const [key, count] of [...counts].sort()) console.log(`${key}\t${count}`);
      console.error(`${turns} assistant turns`);
    });
  data
    .command('export')
    .description('write the graded episodes of a stage as such a file')
    .argument('<run>')
    .argument('<stage>')
    .argument('<file>', 'ends in .parquet or .jsonl')
    .option(...runsOption)
    .addHelpText(
      'after',
      '\nExamples:\n  orchard data export tiny collect tiny.parquet\n  orchard data export tiny collect tiny.jsonl',
    )
    .action(async (run: string, stage: string, file: string, options: { runs: string }) => {
      const { exportStage } = await import('../export.ts');
      const { openRun } = await import('../look.ts');
      const rows = await exportStage(await openRun(run, options.runs), { stage, file });
      console.error(`${rows} episodes written to ${file}`);
    });
}
