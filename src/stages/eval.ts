import { join } from 'node:path';
import { z } from 'zod';
import { mcnemar, wilson } from '../algo/stats.ts';
import { isReady, markReady, readJson, writeJson, writeWhole } from '../core/folder.ts';
import { openStopwatch, secondsOf } from '../core/stopwatch.ts';
import type { SandboxDriver } from '../ports/sandbox.ts';
import type { Prediction } from '../records/prediction.ts';
import { ReportRow } from '../records/report.ts';
import type { Task } from '../records/task.ts';
import { type Stage, type StageContext, stageDir, weightsNeeded } from './context.ts';
import { checkInfrastructure, type Outcome, readOutcomes } from './outcomes.ts';
import { runRollouts } from './rollouts.ts';
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
  gives: 'rows',
  needs: (settings) => settings.models.flatMap(weightsNeeded),
  plan: (settings) => [
    `one episode on each held-out task for ${settings.models.join(', ')}; graded in fresh sandboxes`,
  ],
  async run(context, settings) {
    const dir = stageDir(context.runDir, settings.name);
    const tasks = await context.tasks('test');
    await using sandboxes = await context.openSandboxes();
    const rows: ReportRow[] = [];
    for (const model of settings.models) {
      await evaluateModel(context, { settings, dir: join(dir, model), model, tasks, sandboxes });
      rows.push(await rowOf(context, { dir: join(dir, model), model, tasks, above: rows.at(-1) ?? null, stage: dir }));
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
  await writePredictions(context, { dir, model, outcomes });
  await markReady(dir);
}

/** predictions.jsonl in SWE-bench's format: one line per task that left a patch, byte for byte. */
async function writePredictions(
  context: StageContext,
  { dir, model, outcomes }: { dir: string; model: string; outcomes: Map<string, Outcome> },
): Promise<void> {
  const lines: string[] = [];
  for (const { task, episode } of [...outcomes.values()].sort((a, b) => (a.task.id < b.task.id ? -1 : 1))) {
    const bytes = episode.patch ? await context.blobs.get(episode.patch.sha256) : Buffer.alloc(0);
    const text = bytes.toString('utf8');
    const prediction: Prediction = {
      instance_id: task.id,
      model_name_or_path: `${context.runName}/${model}`,
      model_patch: text,
    };
    if (!Buffer.from(text, 'utf8').equals(bytes)) prediction.model_patch_base64 = bytes.toString('base64');
    lines.push(`${JSON.stringify(prediction)}\n`);
  }
  await writeWhole(join(dir, 'predictions.jsonl'), lines.join(''));
}

async function rowOf(
  context: StageContext,
  {
    dir,
    model,
    tasks,
    above,
    stage,
  }: { dir: string; model: string; tasks: Task[]; above: ReportRow | null; stage: string },
): Promise<ReportRow> {
  const outcomes = await readOutcomes(dir, tasks);
  const verdicts = [...outcomes.values()].map((outcome) => outcome.verdict);
  const classes = { graded: 0, empty_patch: 0, infrastructure: 0, unknown: 0 };
  for (const verdict of verdicts) classes[verdict.class]++;
  const resolved = verdicts.filter((verdict) => verdict.resolved).length;
  // Only attempts that say something about the model stand under the fraction.
  const scored = classes.graded + classes.empty_patch;
  const tokens = { prompt: 0, completion: 0 };
  for (const { episode } of outcomes.values()) {
    tokens.prompt += episode.tokens.prompt;
    tokens.completion += episode.tokens.completion;
  }
  const seconds = await secondsOf(dir);
  return ReportRow.parse({
    name: model,
    resolved,
    total: verdicts.length,
    interval: wilson(resolved, scored),
    classes,
    infrastructure: classes.infrastructure,
    versus: above && (await compare(outcomes, { stage, tasks, against: above.name })),
    tokens,
    trainedTokens: await trainedTokens(context, model),
    seconds,
  });
}

/** Paired with the row above over the tasks that were scored in both (exact McNemar). */
async function compare(
  outcomes: Map<string, Outcome>,
  { stage, tasks, against }: { stage: string; tasks: Task[]; against: string },
): Promise<ReportRow['versus']> {
  const before = new Map(
    [...(await readOutcomes(join(stage, against), tasks)).values()].map((outcome) => [
      outcome.task.id,
      outcome.verdict,
    ]),
  );
  const gainedIds: string[] = [];
  const lostIds: string[] = [];
  for (const { task, verdict } of outcomes.values()) {
    const old = before.get(task.id);
    if (!old || [old, verdict].some(({ class: kind }) => kind === 'infrastructure' || kind === 'unknown')) continue;
    if (verdict.resolved && !old.resolved) gainedIds.push(task.id);
    if (!verdict.resolved && old.resolved) lostIds.push(task.id);
  }
  const p = mcnemar(gainedIds.length, lostIds.length);
  return {
    name: against,
    gained: gainedIds.length,
    lost: lostIds.length,
    p,
    gainedIds: gainedIds.sort(),
    lostIds: lostIds.sort(),
  };
}

/** Tokens with a weight that the model was trained on, from the state that its trainer left. */
async function trainedTokens(context: StageContext, model: string): Promise<number | null> {
  if (model === 'base') return null;
  const state = (await readJson(join(stageDir(context.runDir, model), 'state.json'))) as { trained_tokens: number };
  return state.trained_tokens;
}
