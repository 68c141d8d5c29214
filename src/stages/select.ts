import { join } from 'node:path';
import { z } from 'zod';
import { keepTask } from '../algo/balance.ts';
import { userError } from '../core/errors.ts';
import { readJson, writeJson } from '../core/folder.ts';
import type { Task } from '../records/task.ts';
import { finishedStage, type Stage, type StageContext, stageDir, tasksWithout, weightsNeeded } from './context.ts';
import { checkInfrastructure, type Outcome } from './outcomes.ts';
import { runRollouts } from './rollouts.ts';
import { weightsOf } from './weights.ts';

const config = z.strictObject({
  name: z.string().default('select'),
  policy: z.string().default('sft').describe('who tries the tasks: base, or a training stage before'),
  unseenBy: z.array(z.string()).default([]).describe('collect stages whose tasks are left out'),
  tries: z.number().int().positive().default(8).describe('attempts at each task'),
  keep: z
    .tuple([z.number().min(0).max(1), z.number().min(0).max(1)])
    .default([0, 0.5])
    .describe('a task stays when more than the first and at most the second share of its attempts are resolved'),
  temperature: z.number().positive().default(1),
  maxTokensPerCall: z.number().int().positive().default(4096),
});

/** pool.json: how often each task was resolved, and whether it stays. */
const Pool = z.array(
  z.strictObject({ task: z.string(), resolved: z.number().int(), tries: z.number().int(), kept: z.boolean() }),
);

/** The tasks that a policy can learn from: neither beyond it nor done with (Orchard paper, 3.4.1). */
export const select: Stage<z.infer<typeof config>> = {
  config,
  nameOf: (settings) => settings.name,
  split: 'train',
  gives: ['pool', 'episodes'],
  needs: ({ policy, unseenBy }) => [
    ...weightsNeeded(policy),
    ...unseenBy.map((stage) => ({ stage, result: 'tasks' as const })),
  ],
  plan: ({ policy, tries, keep }) => [
    `${tries} attempts of ${policy} on each training task; those resolved more than ${keep[0]} and at most ${keep[1]} of the time stay`,
  ],
  async run(context, settings) {
    const dir = stageDir(context.runDir, settings.name);
    const tasks = await tasksWithout(context, settings.unseenBy);
    await using inference = await context.openInference(
      await weightsOf(context, settings.policy),
      join(dir, 'inference'),
    );
    await using sandboxes = await context.openSandboxes();
    const outcomes = await runRollouts(
      context,
      {
        dir,
        scope: settings.name,
        tasks,
        attempts: settings.tries,
        inference,
        sampling: { temperature: settings.temperature, topP: 1, maxTokensPerCall: settings.maxTokensPerCall },
        label: settings.name,
      },
      sandboxes,
    );
    checkInfrastructure(outcomes, settings.name);
    const byTask = Map.groupBy(outcomes.values(), ({ task }) => task.id);
    const pool = tasks.map(({ id }) => poolRow(id, { outcomes: byTask.get(id) ?? [], keep: settings.keep }));
    await writeJson(join(dir, 'pool.json'), pool);
    const kept = pool.filter((row) => row.kept).length;
    await writeJson(join(dir, 'summary.json'), { policy: settings.policy, tasks: tasks.length, kept });
    context.progress.line(
      `${settings.name}: ${kept} of ${tasks.length} tasks stay, ${pool.filter(({ resolved }) => resolved === 0).length} were never resolved`,
    );
  },
};

function poolRow(
  task: string,
  { outcomes, keep }: { outcomes: Outcome[]; keep: [number, number] },
): z.infer<typeof Pool>[number] {
  // What failed for other reasons than the model says nothing about the task.
  const scored = outcomes.filter(({ verdict }) => verdict.class === 'graded' || verdict.class === 'empty_patch');
  const resolved = scored.filter(({ verdict }) => verdict.resolved).length;
  return { task, resolved, tries: scored.length, kept: keepTask({ resolved, tries: scored.length }, keep) };
}

/** Tasks that a finished select stage left. @throws OrchardError owner `user` when there is none */
export async function poolOf(
  context: StageContext,
  { stage, tasks }: { stage: string; tasks: Task[] },
): Promise<Task[]> {
  const rows = Pool.parse(await readJson(join(finishedStage(context, stage), 'pool.json')));
  const kept = new Set(rows.filter((row) => row.kept).map(({ task }) => task));
  if (kept.size === 0)
    throw userError(stage, `stage ${stage} left no task`, 'widen its keep, or select with other weights');
  return tasks.filter(({ id }) => kept.has(id));
}
