import type { Command } from 'commander';
import { runsOption } from '../options.ts';

export function register(program: Command): void {
  const data = program
    .command('data')
    .description('data sets of tasks and of trajectories: look at them, convert them');
  data
    .command('inspect')
    .description(
      'what a file holds: tasks by source and by what keeps them from being graded, or trajectories by status',
    )
    .argument('<file>', 'JSON, JSONL, Parquet, a folder with <split>.parquet, or a task repository')
    .option('--split <name>', 'split of a folder or task repository', 'test')
    .addHelpText(
      'after',
      '\nExamples:\n  orchard data inspect verified.parquet\n  orchard data inspect trajectories.jsonl',
    )
    .action(async (file: string, { split }: { split: string }) => {
      const { firstRow } = await import('../../benchmarks/swe-bench/read.ts');
      const first = (await firstRow(file, split)) as { messages?: unknown } | null;
      await (Array.isArray(first?.messages) ? inspectTrajectories(file) : inspectTasks(file, split));
    });
  data
    .command('convert')
    .description('tasks of any source as rows that an official grader reads, out of envelopes, tests as lists')
    .argument('<dataset>', 'as for inspect; or tiny, the built-in one')
    .argument('<file>', 'ends in .jsonl, .json or .parquet')
    .option('--split <name>', 'split of a folder, task repository or tiny', 'test')
    .option('--count <n>', 'tasks of tiny', '240')
    .option('--seed <n>', 'which tasks tiny makes', '1')
    .addHelpText(
      'after',
      '\nExamples:\n  orchard data convert tiny tiny.jsonl\n  orchard data convert envelopes.jsonl rows.parquet',
    )
    .action(convert);
  data
    .command('export')
    .description('write the graded episodes of a stage in the schema of microsoft/Orchard')
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

async function inspectTrajectories(file: string): Promise<void> {
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
}

async function inspectTasks(file: string, split: string): Promise<void> {
  const { readRows } = await import('../../benchmarks/swe-bench/read.ts');
  const { isRefused, OTHER_RULES, readInstance } = await import('../../benchmarks/swe-bench/sources.ts');
  const { profileOf } = await import('../../benchmarks/swe-bench/official.ts');
  const { rows, source } = await readRows(file, split);
  const counts = new Map<string, number>();
  const refused: string[] = [];
  for (const [index, row] of rows.entries()) {
    const read = readInstance(row, { index });
    const key = isRefused(read)
      ? 'refused'
      : `${read.source}\t${OTHER_RULES[read.source] ?? `official profile ${profileOf(read)}`}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
    if (isRefused(read)) refused.push(`${read.id}: ${read.field}: ${read.cause}`);
  }
  for (const [key, count] of [...counts].sort()) console.log(`${count}\t${key}`);
  for (const line of refused.slice(0, 20)) console.error(line);
  if (refused.length > 20) console.error(`and ${refused.length - 20} more refused`);
  console.error(`${rows.length} rows of ${source}`);
}

async function convert(
  dataset: string,
  file: string,
  options: { split: string; count: string; seed: string },
): Promise<void> {
  const { readRows, writeRows } = await import('../../benchmarks/swe-bench/read.ts');
  const { isRefused, readInstance } = await import('../../benchmarks/swe-bench/sources.ts');
  const { toOfficial } = await import('../../benchmarks/swe-bench/official.ts');
  const { tiny } = await import('../../benchmarks/tiny/index.ts');
  const rows =
    dataset === 'tiny'
      ? tiny.rows(options.split, { count: Number(options.count), extra: 0, seed: Number(options.seed) })
      : (await readRows(dataset, options.split)).rows;
  const read = rows.map((row, index) => readInstance(row, { index }));
  const good = read.flatMap((each) => (isRefused(each) ? [] : [toOfficial(each).row]));
  await writeRows(file, good);
  for (const each of read.filter(isRefused)) console.error(`left out ${each.id}: ${each.field}: ${each.cause}`);
  console.error(`${good.length} rows written to ${file}`);
}
