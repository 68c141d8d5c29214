import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { creditOf, riseSegments } from '../algo/credit.ts';
import { filterReason } from '../algo/filter.ts';
import { isReady, writeJson } from '../core/folder.ts';
import { openJsonl } from '../core/jsonl.ts';
import { mapInOrder } from '../core/limit.ts';
import { writeBatch } from '../data/batches.ts';
import { type Chat, loadChat } from '../data/chat.ts';
import type { Sample } from '../records/sample.ts';
import { type Stage, type StageContext, stageDir, weightsNeeded } from './context.ts';
import { type Judge, openJudge } from './judge.ts';
import { samplesOf, weighTurns } from './samples.ts';
import { trainWithBar } from './training.ts';
import { type Trajectory, trajectoriesOfDataset, trajectoriesOfStage } from './trajectories.ts';
import { weightsOf } from './weights.ts';

const config = z.strictObject({
  name: z.string().default('sft'),
  base: z.string().default('base').describe('what training starts from: base, or a training stage before this one'),
  from: z.array(z.string()).default(['collect']).describe('stages whose episodes are trained on'),
  datasets: z.array(z.string()).default([]).describe('files in the schema of microsoft/Orchard (parquet or JSONL)'),
  credit: z
    .union([
      z.literal('none'),
      z.strictObject({
        epsilon: z.number().positive().default(0.05).describe('least rise of P(resolve) in one step'),
        mergeGaps: z.number().int().min(0).default(0).describe('steps between two rises that are trained as well'),
      }),
    ])
    .default({ epsilon: 0.05, mergeGaps: 0 })
    .describe('none: resolved attempts only; else rises of failed ones as well'),
  maxTokens: z.number().int().positive().default(65_536).describe('longer attempts are left out'),
  epochs: z.number().int().positive().default(5),
  trainedTokens: z.number().int().positive().optional().describe('stop after this many trained tokens'),
  batchRows: z.number().int().positive().default(128),
  learningRate: z.number().positive().default(1e-5),
  minLearningRate: z.number().min(0).default(1e-6),
  schedule: z.enum(['cosine', 'constant']).default('cosine'),
  warmupSteps: z.number().int().min(0).default(0),
  weightDecay: z.number().min(0).default(0.1),
  seed: z.number().int().optional(),
});
type Config = z.infer<typeof config>;

/** selection.jsonl: what became of one attempt. `orchard show` draws it. */
export interface Selected {
  id: string;
  task: string;
  resolved: boolean;
  /** `full`, `rise`, or why it is left out. */
  use: string;
  detail?: string;
  /** P(resolve) before each turn and after the last, and the credit of each turn, for judged attempts. */
  values?: number[];
  credit?: number[];
  trainedTurns: number[];
  tokens: number;
  trainedTokens: number;
}

/** Weighted supervised fine-tuning: resolved attempts in full, of failed ones the rises (Orchard paper, 3.3.1). */
export const sft: Stage<Config> = {
  config,
  nameOf: (settings) => settings.name,
  gives: ['weights'],
  needs: ({ from, base }) => [...from.map((stage) => ({ stage, result: 'episodes' as const })), ...weightsNeeded(base)],
  plan: (settings) => [
    `from ${[...settings.from, ...settings.datasets].join(', ')}: resolved attempts in full${settings.credit === 'none' ? '' : `, failed ones where P(resolve) rises by ${settings.credit.epsilon} or more`}`,
    `${settings.epochs} epochs of ${settings.batchRows} rows a step${settings.trainedTokens ? `, at most ${settings.trainedTokens} trained tokens` : ''}, learning rate ${settings.learningRate}`,
  ],
  async run(context, settings) {
    const dir = stageDir(context.runDir, settings.name);
    const base = await weightsOf(context, settings.base);
    const batch = join(dir, 'batches', 'step_000000');
    if (!isReady(batch)) await selectAndPack(context, { settings, dir, batch, chat: await loadChat(base.path) });
    await trainWithBar(context, {
      dir,
      label: settings.name,
      config: {
        model: base.path,
        batches: join(dir, 'batches'),
        steps: 1,
        epochs: settings.epochs,
        batchRows: settings.batchRows,
        trainedTokens: settings.trainedTokens ?? null,
        learningRate: settings.learningRate,
        minLearningRate: Math.min(settings.minLearningRate, settings.learningRate),
        schedule: settings.schedule,
        warmupSteps: settings.warmupSteps,
        weightDecay: settings.weightDecay,
        versionPrefix: settings.name,
        seed: settings.seed ?? context.seed,
      },
    });
  },
};

interface Totals {
  attempts: number;
  uses: Record<string, number>;
  tokens: number;
  trainedTokensPerEpoch: number;
  fromFailed: number;
}

async function selectAndPack(
  context: StageContext,
  { settings, dir, batch, chat }: { settings: Config; dir: string; batch: string; chat: Chat },
): Promise<void> {
  const judge = settings.credit === 'none' ? null : await openJudge(context, dir);
  await rm(join(dir, 'selection.jsonl'), { force: true }); // derived; the judge's values are what is kept
  await using selection = await openJsonl(join(dir, 'selection.jsonl'));
  const bar = context.progress.start(`${settings.name} selection`, 1, 'attempts');
  const totals: Totals = { attempts: 0, uses: {}, tokens: 0, trainedTokensPerEpoch: 0, fromFailed: 0 };
  async function* samples(): AsyncIterable<Sample> {
    const chosen = mapInOrder(attempts(context, settings), context, (trajectory) => {
      context.signal.throwIfAborted();
      return select(trajectory, { settings, chat, judge, contextTokens: context.contextTokens });
    });
    for await (const { selected, rows } of chosen) {
      await selection.append(selected);
      bar.update(0, `${++totals.attempts} attempts`);
      totals.uses[selected.use] = (totals.uses[selected.use] ?? 0) + 1;
      totals.tokens += selected.trainedTokens > 0 ? selected.tokens : 0;
      totals.trainedTokensPerEpoch += selected.trainedTokens;
      if (!selected.resolved) totals.fromFailed += selected.trainedTokens;
      yield* rows;
    }
  }
  try {
    await writeBatch(batch, samples(), {
      kind: 'sft',
      step: 0,
      policyVersion: null,
      sampling: null,
      loss: { name: 'sft', params: {} },
    });
  } finally {
    await judge?.[Symbol.asyncDispose]();
  }
  await writeJson(join(dir, 'summary.json'), totals);
  bar.end(
    `${Object.entries(totals.uses)
      .map(([use, count]) => `${count} ${use}`)
      .join(
        ', ',
      )} · ${totals.trainedTokensPerEpoch} trained tokens an epoch (${totals.fromFailed} from failed attempts)`,
  );
}

async function* attempts(context: StageContext, settings: Config): AsyncIterable<Trajectory> {
  for (const name of settings.from) yield* trajectoriesOfStage(context, name);
  for (const file of settings.datasets) yield* trajectoriesOfDataset(file);
}

async function select(
  trajectory: Trajectory,
  {
    settings,
    chat,
    judge,
    contextTokens,
  }: { settings: Config; chat: Chat; judge: Judge | null; contextTokens: number },
): Promise<{ selected: Selected; rows: Sample[] }> {
  const { id, task, resolved } = trajectory;
  const leave = (use: string, more: Partial<Selected> = {}): { selected: Selected; rows: Sample[] } => ({
    selected: { id, task, resolved, use, trainedTurns: [], tokens: 0, trainedTokens: 0, ...more },
    rows: [],
  });
  if (trajectory.unusable) return leave(trajectory.unusable);
  const samples = samplesOf(trajectory, chat);
  const tokens = samples.reduce((sum, { sample }) => sum + sample.tokens.length, 0);
  const filtered = filterReason(
    { tokens, ...trajectory.oddities },
    { maxTokens: Math.min(settings.maxTokens, contextTokens) },
  );
  if (filtered) return leave(filtered, { tokens });
  const turns = trajectory.messages.filter(({ role }) => role === 'assistant').length;
  const take = (
    use: string,
    chosen: number[],
    more: Partial<Selected> = {},
  ): { selected: Selected; rows: Sample[] } => {
    const rows = samples
      .map((each) => weighTurns(each, new Set(chosen)))
      .filter(({ weights }) => weights.some((weight) => weight > 0));
    const trainedTokens = rows.reduce((sum, { weights }) => sum + weights.filter((weight) => weight > 0).length, 0);
    return { selected: { id, task, resolved, use, trainedTurns: chosen, tokens, trainedTokens, ...more }, rows };
  };
  if (resolved) return take('full', range(0, turns));
  if (judge === null || settings.credit === 'none') return leave('unresolved', { tokens });
  const { steps, problem } = await judge.judge(trajectory);
  if (steps === null) return leave('judge_failed', { tokens, detail: problem ?? undefined });
  const { values, credit } = creditOf(steps, turns);
  const rises = riseSegments(credit, settings.credit).flatMap(({ from, to }) => range(from, to));
  return rises.length === 0 ? leave('no_rise', { tokens, values, credit }) : take('rise', rises, { values, credit });
}

const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, index) => from + index);
