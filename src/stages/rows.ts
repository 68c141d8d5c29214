import { join } from 'node:path';
import { mcnemar, wilson } from '../algo/stats.ts';
import { readJson, writeWhole } from '../core/folder.ts';
import type { Prediction } from '../records/prediction.ts';
import { ReportRow } from '../records/report.ts';
import { type StageContext, stageDir } from './context.ts';
import type { Outcome } from './outcomes.ts';

/** predictions.jsonl in SWE-bench's format: one line per task that left a patch, byte for byte. */
export async function writePredictions(
  context: StageContext,
  { dir, model, outcomes }: { dir: string; model: string; outcomes: Outcome[] },
): Promise<void> {
  const lines: string[] = [];
  for (const { task, episode } of [...outcomes].sort((a, b) => (a.task.id < b.task.id ? -1 : 1))) {
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

/** A line of the table: one attempt on each task, in exactly one class each. */
export async function rowOf(
  context: StageContext,
  {
    name,
    outcomes,
    above,
    seconds,
    trainedBy,
  }: {
    name: string;
    outcomes: Outcome[];
    /** The row to compare with, and its attempts. */
    above: { name: string; outcomes: Outcome[] } | null;
    seconds: number;
    /** The training stage whose tokens are told; null for none. */
    trainedBy: string | null;
  },
): Promise<ReportRow> {
  const classes = { graded: 0, empty_patch: 0, infrastructure: 0, unknown: 0 };
  for (const { verdict } of outcomes) classes[verdict.class]++;
  const resolved = outcomes.filter(({ verdict }) => verdict.resolved).length;
  const tokens = { prompt: 0, completion: 0 };
  for (const { episode } of outcomes) {
    tokens.prompt += episode.tokens.prompt;
    tokens.completion += episode.tokens.completion;
  }
  return ReportRow.parse({
    name,
    resolved,
    total: outcomes.length,
    // Only attempts that say something about the model stand under the fraction.
    interval: wilson(resolved, classes.graded + classes.empty_patch),
    classes,
    infrastructure: classes.infrastructure,
    versus: above && compare(outcomes, above),
    tokens,
    trainedTokens: trainedBy === null ? null : await trainedTokens(context, trainedBy),
    seconds,
  });
}

/** Paired with another row over the tasks that were scored in both (exact McNemar). */
function compare(outcomes: Outcome[], above: { name: string; outcomes: Outcome[] }): ReportRow['versus'] {
  const before = new Map(above.outcomes.map(({ task, verdict }) => [task.id, verdict]));
  const gainedIds: string[] = [];
  const lostIds: string[] = [];
  for (const { task, verdict } of outcomes) {
    const old = before.get(task.id);
    if (!old || [old, verdict].some(({ class: kind }) => kind === 'infrastructure' || kind === 'unknown')) continue;
    if (verdict.resolved && !old.resolved) gainedIds.push(task.id);
    if (!verdict.resolved && old.resolved) lostIds.push(task.id);
  }
  return {
    name: above.name,
    gained: gainedIds.length,
    lost: lostIds.length,
    p: mcnemar(gainedIds.length, lostIds.length),
    gainedIds: gainedIds.sort(),
    lostIds: lostIds.sort(),
  };
}

/** Tokens with a weight that the model was trained on, from the state that its trainer left. */
async function trainedTokens(context: StageContext, model: string): Promise<number> {
  const state = (await readJson(join(stageDir(context.runDir, model), 'state.json'))) as { trained_tokens: number };
  return state.trained_tokens;
}
