import { join } from 'node:path';
import { writeJson } from '../../core/folder.ts';
import { type Stage, stageDir, tasksWithout, weightsNeeded } from '../context.ts';
import { poolOf } from '../select.ts';
import { keepWeights } from '../training.ts';
import { type Config, clipOf, config, rewardsOf } from './config.ts';
import { runLoop } from './loop.ts';

/** Reinforcement learning with balanced adaptive rollout and dense rewards (Orchard paper, 3.4). */
export const rl: Stage<Config> = {
  config,
  nameOf: (settings) => settings.name,
  split: 'train',
  gives: ['weights', 'episodes'],
  needs: ({ from, pool, unseenBy, distill }) => [
    ...weightsNeeded(from),
    ...(pool ? [{ stage: pool, result: 'pool' as const }] : []),
    ...unseenBy.map((stage) => ({ stage, result: 'tasks' as const })),
    ...(distill && distill.teacher !== 'scorer' ? weightsNeeded(distill.teacher) : []),
  ],
  plan: (settings) => {
    const { rollout, distill, validate } = settings;
    const [low, high] = clipOf(settings);
    return [
      `${settings.steps} steps${settings.episodes ? ` or ${settings.episodes} episodes` : ''} from ${settings.from}: ${settings.prompts} groups of ${rollout.n} episodes a step, up to ${rollout.max} in strides of ${rollout.stride}, ${rollout.band[0]} to ${rollout.band[1]} of them resolved`,
      `${settings.objective}, ratio clipped to ${1 - low} to ${1 + high}, learning rate ${settings.learningRate}, ${settings.epochs * settings.updates} updates a step, staleness ${settings.staleness}`,
      `rewards: ${rewardsOf(settings)
        .map(({ name }) => name)
        .join(
          ' + ',
        )}${distill ? `; distilled from ${distill.teacher} (${distill.divergence}, ${distill.beta} in the ${distill.into})` : ''}`,
      validate.tasks > 0
        ? `validated every ${validate.every} steps on ${validate.tasks} training tasks that are held out; the latest version within a standard error of the best is kept`
        : 'the last version is kept',
    ];
  },
  async run(context, settings) {
    const dir = stageDir(context.runDir, settings.name);
    const all = await tasksWithout(context, settings.unseenBy);
    const tasks = settings.pool ? await poolOf(context, { stage: settings.pool, tasks: all }) : all;
    const { weights, steps, stopped, validated } = await runLoop(context, {
      dir,
      settings,
      tasks,
      seed: settings.seed ?? context.seed,
    });
    await keepWeights(dir, weights);
    await writeJson(join(dir, 'summary.json'), { policy: settings.name, steps: steps.length, stopped, validated });
  },
};
