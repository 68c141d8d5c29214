import { join } from 'node:path';
import { z } from 'zod';
import { writeJson } from '../core/folder.ts';
import { type Stage, stageDir, weightsNeeded } from './context.ts';
import { checkInfrastructure, countOutcomes } from './outcomes.ts';
import { runRollouts } from './rollouts.ts';
import { weightsOf } from './weights.ts';

const config = z.strictObject({
  name: z.string().default('collect'),
  policy: z.string().default('teacher').describe('who works: the teacher, base, or a training stage before this one'),
  tasks: z.number().int().positive().optional().describe('the first so many training tasks; all when left out'),
  episodesPerTask: z.number().int().positive().default(5),
  temperature: z.number().min(0).default(1),
  maxTokensPerCall: z.number().int().positive().default(4096),
});

/** Episodes on the training tasks, graded: the teacher's to imitate, or the model's own to sharpen. */
export const collect: Stage<z.infer<typeof config>> = {
  config,
  nameOf: (settings) => settings.name,
  split: 'train',
  gives: ['episodes', 'tasks'],
  needs: ({ policy }) => (policy === 'teacher' ? [] : weightsNeeded(policy)),
  plan: (settings) => [
    `${settings.episodesPerTask} episodes of ${settings.policy === 'teacher' ? 'the teacher' : settings.policy} on ${settings.tasks ? `the first ${settings.tasks} training tasks` : 'each training task'}, graded in fresh sandboxes`,
  ],
  async run(context, settings) {
    const dir = stageDir(context.runDir, settings.name);
    const tasks = (await context.tasks('train')).slice(0, settings.tasks);
    const engineDir = join(dir, 'inference');
    await using inference =
      settings.policy === 'teacher'
        ? await context.openTeacher(engineDir)
        : await context.openInference(await weightsOf(context, settings.policy), engineDir);
    await using sandboxes = await context.openSandboxes();
    const outcomes = await runRollouts(
      context,
      {
        dir,
        scope: settings.name,
        tasks,
        attempts: settings.episodesPerTask,
        inference,
        sampling: { temperature: settings.temperature, topP: 1, maxTokensPerCall: settings.maxTokensPerCall },
        label: settings.name,
      },
      sandboxes,
    );
    checkInfrastructure(outcomes, settings.name);
    await writeJson(join(dir, 'summary.json'), {
      policy: settings.policy,
      tasks: tasks.length,
      episodes: outcomes.size,
      ...countOutcomes(outcomes.values()),
    });
  },
};
