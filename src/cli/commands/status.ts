import type { Command } from 'commander';
import { runsOption } from '../options.ts';

export function register(program: Command): void {
  program
    .command('status')
    .description('how far a run is, from any terminal')
    .argument('<run>', 'name of a run')
    .option(...runsOption)
    .option('--failures', 'every attempt that failed for reasons of the infrastructure')
    .option('--json', 'as one JSON object')
    .addHelpText('after', '\nExamples:\n  orchard status tiny\n  orchard status tiny --failures')
    .action(async (name: string, options: { runs: string; failures?: boolean; json?: boolean }) => {
      const { openRun, stateOf } = await import('../look.ts');
      const { failuresOf, progressOf } = await import('../status.ts');
      const { reportTable, table } = await import('../output.ts');
      const view = await openRun(name, options.runs);
      if (options.failures) {
        const failures = await failuresOf(view);
        if (options.json) console.log(JSON.stringify(failures));
        else if (failures.length === 0) console.log('no infrastructure failures');
        else
          for (const { owner, code, id, cause, wayOut } of failures)
            console.log(`${id}  ${owner}/${code}: ${cause}\n  ${wayOut}`);
        return;
      }
      const state = await stateOf(view);
      const stages = await Promise.all(view.stages.map((stage) => progressOf(view, stage)));
      const { existsSync } = await import('node:fs');
      const { readJson } = await import('../../core/folder.ts');
      const { join } = await import('node:path');
      const reportFile = join(view.dir, 'report.json');
      const report = existsSync(reportFile) ? await readJson(reportFile) : null;
      if (options.json) {
        console.log(JSON.stringify({ run: view.name, state, stages, report }));
        return;
      }
      console.log(`run ${view.name}: ${state}\n`);
      console.log(
        table(
          ['stage', 'state', ''],
          stages.map(({ name: stage, state: at, note }) => [stage, at, note]),
        ),
      );
      if (report) console.log(`\n${reportTable(report as Parameters<typeof reportTable>[0])}`);
    });
}
