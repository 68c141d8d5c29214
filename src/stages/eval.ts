import { join } from 'node:path';
import { z } from 'zod';
import { isReady, markReady, writeJson } from '../core/folder.ts';
import { openStopwatch, secondsOf } from '../core/stopwatch.ts';
import type { SandboxDriver } from '../ports/sandbox.ts';
import type { ReportRow } from '../records/report.ts';
import type { Task } from '../records/task.ts';
import { type Stage, type StageContext, stageDir, weightsNeeded } from './context.ts';
import { checkInfrastructure, type Outcome, readOutcomes } from './outcomes.ts';
import { runRollouts } from './rollouts.ts';
import { rowOf, writePredictions } from './rows.ts';
import { weightsOf } from './weights.ts';

const config = z.strictObject({
  name: z.string().default('eval'),
  models: z
    .array(z.string())
    .min(1)
    .default(['base', 'sft'])
    .describe('base, or names of training stages; one row each'),
  temperature: z.number().min(0).default(0),
  topP: z.number().positive().max(1).default(1),
  maxTokensPerCall: z.number().int().positive().default(4096),
});
type Config = z.infer<typeof config>;

/** Each model once on every held-out task: predictions, verdicts in fresh sandboxes, and one table row. */
export const evaluate: Stage<Config> = {
  config,
  nameOf: (settings) => settings.name,
  split: 'test',
  gives: ['rows'],
  needs: (settings) => settings.models.flatMap(weightsNeeded),
  plan: (settings) => [
    `one episode on each held-out task for ${settings.models.join(', ')}; graded in fresh sandboxes`,
  ],
  async run(context, settings) {
    const dir = stageDir(context.runDir, settings.name);
    const tasks = await context.tasks('test');
    await using sandboxes = await context.openSandboxes();
    const rows: ReportRow[] = [];
    let above: { name: string; outcomes: Outcome[] } | null = null;
    for (const name of settings.models) {
      const folder = join(dir, name);
      await evaluateModel(context, { settings, dir: folder, model: name, tasks, sandboxes });
      const outcomes = [...(await readOutcomes(folder, tasks)).values()];
      const trainedBy = name === 'base' ? null : name;
      rows.push(await rowOf(context, { name, outcomes, above, trainedBy, seconds: await secondsOf(folder) }));
      above = { name, outcomes };
    }
    await writeJson(join(dir, 'rows.json'), rows);
  },
};

async function evaluateModel(
  context: StageContext,
  {
    settings,
    dir,
    model,
    tasks,
    sandboxes,
  }: { settings: Config; dir: string; model: string; tasks: Task[]; sandboxes: SandboxDriver },
): Promise<void> {
  if (isReady(dir)) return;
  await using _stopwatch = await openStopwatch(dir);
  const weights = await weightsOf(context, model);
  await using inference = await context.openInference(weights, join(dir, 'inference'));
  const outcomes = await runRollouts(
    context,
    {
      dir,
      scope: `${settings.name}.${model}`,
      tasks,
      attempts: 1,
      inference,
      sampling: { temperature: settings.temperature, topP: settings.topP, maxTokensPerCall: settings.maxTokensPerCall },
      label: `${settings.name} ${model}`,
    },
    sandboxes,
  );
  checkInfrastructure(outcomes, `${settings.name} ${model}`);
  await writePredictions(context, { dir, model, outcomes: [...outcomes.values()] });
  await markReady(dir);
}
