import { join } from 'node:path';
import { z } from 'zod';
import { writeJson } from '../core/folder.ts';
import { type Stage, stageDir } from './context.ts';
import { checkInfrastructure, countOutcomes, runRollouts } from './rollouts.ts';

const config = z.strictObject({
  name: z.string().default('collect'),
  episodesPerTask: z.number().int().positive().default(5),
  temperature: z.number().min(0).default(1),
  maxTokensPerCall: z.number().int().positive().default(4096),
});

/** Episodes of the teacher on the training tasks, graded. */
export const collect: Stage<z.infer<typeof config>> = {
  config,
  nameOf: (settings) => settings.name,
  needs: () => [],
  plan: (settings) => [
    `${settings.episodesPerTask} episodes of the teacher on each training task, graded in fresh sandboxes`,
  ],
  async run(context, settings) {
    const dir = stageDir(context.runDir, settings.name);
    const tasks = await context.tasks('train');
    await using teacher = await context.openTeacher(join(dir, 'teacher'));
    await using sandboxes = await context.openSandboxes();
    const outcomes = await runRollouts(
      context,
      {
        dir,
        scope: settings.name,
        tasks,
        attempts: settings.episodesPerTask,
        inference: teacher,
        sampling: { temperature: settings.temperature, topP: 1, maxTokensPerCall: settings.maxTokensPerCall },
        label: settings.name,
      },
      sandboxes,
    );
    checkInfrastructure(outcomes, settings.name);
    await writeJson(join(dir, 'summary.json'), {
      tasks: tasks.length,
      episodes: outcomes.size,
      ...countOutcomes(outcomes.values()),
    });
  },
};
