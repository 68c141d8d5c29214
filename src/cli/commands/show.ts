import type { Command } from 'commander';
import { runsOption } from '../options.ts';

export function register(program: Command): void {
  program
    .command('show')
    .description('the table of a run, or one episode with its turns, tests, values, credits and trained steps')
    .argument('<run>', 'name of a run')
    .argument('[episode]', 'an episode id, e.g. collect:TASK:0; or the name of a stage, to list its episodes')
    .option(...runsOption)
    .option('--json', 'as JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  orchard show tiny\n  orchard show tiny collect\n  orchard show tiny collect:tiny__sprocket-3:1',
    )
    .action(async (name: string, episode: string | undefined, options: { runs: string; json?: boolean }) => {
      const { openRun } = await import('../look.ts');
      const { showEpisode, showReport, showStage } = await import('../show.ts');
      const view = await openRun(name, options.runs);
      const json = options.json ?? false;
      if (episode === undefined) await showReport(view, json);
      else if (view.stages.some((stage) => stage.name === episode)) await showStage(view, { stage: episode, json });
      else await showEpisode(view, { id: episode, json });
    });
}
