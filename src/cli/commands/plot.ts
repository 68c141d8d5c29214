import type { Command } from 'commander';
import { runsOption } from '../options.ts';

interface Options {
  runs: string;
  stage?: string;
  out?: string;
  tensorboard?: string;
  json?: boolean;
}

export function register(program: Command): void {
  program
    .command('plot')
    .description('reward, resolve rate and KL over the steps of reinforcement learning')
    .argument('<run>', 'name of a run')
    .option(...runsOption)
    .option('--stage <name>', 'only this stage')
    .option('--out <file>', 'draw them as an SVG file')
    .option('--tensorboard <dir>', 'write them for TensorBoard')
    .option('--json', 'the steps as JSON lines')
    .addHelpText(
      'after',
      '\nExamples:\n  orchard plot tiny\n  orchard plot tiny --out curves.svg\n  orchard plot tiny --tensorboard tb && tensorboard --logdir tb\n  orchard plot tiny --json | jq .resolveRate',
    )
    .action(async (name: string, options: Options) => {
      const { openRun } = await import('../look.ts');
      const { drawText, learnedOf, writeSvg } = await import('../plot.ts');
      const { join } = await import('node:path');
      const view = await openRun(name, options.runs);
      const stages = await learnedOf(view, options.stage);
      if (options.out) {
        await writeSvg(options.out, { title: view.name, stages });
        console.error(options.out);
      }
      if (options.tensorboard) {
        const { writeTensorboard } = await import('../tensorboard.ts');
        for (const { name: stage, steps } of stages)
          console.error(await writeTensorboard(join(options.tensorboard, view.name, stage), steps));
      }
      if (options.json)
        for (const { name: stage, steps } of stages)
          for (const step of steps) console.log(JSON.stringify({ stage, ...step }));
      else if (!options.out && !options.tensorboard) console.log(await drawText(stages));
    });
}
