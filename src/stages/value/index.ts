import { join } from 'node:path';
import { z } from 'zod';
import { auc, bestAtK, ece, meanAucByTask, passAtK, shortestAtK } from '../../algo/select.ts';
import { userError } from '../../core/errors.ts';
import { isReady, readJson, writeJson } from '../../core/folder.ts';
import { unitHash } from '../../core/hash.ts';
import { type BatchRow, writeBatch } from '../../data/batches.ts';
import { type Chat, loadChat } from '../../data/chat.ts';
import { finishedStage, type Stage, type StageContext, stageDir, weightsNeeded } from '../context.ts';
import { attemptFolders } from '../outcomes.ts';
import { trainWithBar } from '../training.ts';
import { weightsOf } from '../weights.ts';
import { type Encoded, encodeFolder } from './candidates.ts';
import { openOnnx } from './scorer.ts';

const config = z.strictObject({
  name: z.string().default('value'),
  base: z.string().default('base').describe('what the head is put on: base, or a training stage before'),
  from: z.array(z.string()).min(1).default(['rl']).describe('stages whose attempts it learns from, dropped ones too'),
  epochs: z.number().int().positive().default(2),
  batchRows: z.number().int().positive().default(32),
  learningRate: z.number().positive().default(1e-5),
  minLearningRate: z.number().min(0).default(1e-6),
  warmupSteps: z.number().int().min(0).default(0),
  weightDecay: z.number().min(0).default(0.1),
  maxTokens: z.number().int().positive().default(65_536).describe('head and tail that are kept of a longer attempt'),
  attemptsPerTask: z.number().int().positive().default(64).describe('at most so many of each task, drawn'),
  holdOut: z.number().gt(0).lt(1).default(0.2).describe('share of tasks that it is measured on'),
  onnx: z.boolean().default(true).describe('publish as ONNX too, to score on the CPU'),
  seed: z.number().int().optional(),
});
type Config = z.infer<typeof config>;

/** How likely an attempt is to be right, from its text alone: a head on a language model (methods of SWE verifiers). */
export const value: Stage<Config> = {
  config,
  nameOf: (settings) => settings.name,
  split: 'train',
  gives: ['value'],
  needs: ({ from, base }) => [...from.map((stage) => ({ stage, result: 'episodes' as const })), ...weightsNeeded(base)],
  plan: ({ from, base, holdOut, epochs, learningRate }) => [
    `a scalar head on ${base}, trained on the attempts of ${from.join(', ')}, labels balanced within each task; measured on ${100 * holdOut} % of the tasks`,
    `${epochs} epochs, learning rate ${learningRate}`,
  ],
  async run(context, settings) {
    const dir = stageDir(context.runDir, settings.name);
    const base = await weightsOf(context, settings.base);
    const chat = await loadChat(base.path);
    const batch = join(dir, 'batches', 'step_000000');
    if (!isReady(batch)) await packAttempts(context, { settings, dir, batch, chat });
    const weights = await trainWithBar(context, {
      dir,
      label: settings.name,
      config: {
        task: 'value',
        onnx: settings.onnx,
        model: base.path,
        batches: join(dir, 'batches'),
        steps: 1,
        epochs: settings.epochs,
        batchRows: settings.batchRows,
        learningRate: settings.learningRate,
        minLearningRate: Math.min(settings.minLearningRate, settings.learningRate),
        warmupSteps: settings.warmupSteps,
        weightDecay: settings.weightDecay,
        versionPrefix: settings.name,
        seed: settings.seed ?? context.seed,
      },
    });
    const counts = await readJson(join(dir, 'selection.json'));
    const measured = settings.onnx
      ? await measure(context, { settings, folder: weights.path, base: base.path, chat })
      : null;
    await writeJson(join(dir, 'summary.json'), { ...(counts as object), measured });
    if (measured) context.progress.line(wordsOf(settings.name, measured));
  },
};

const isHeldOut = (task: string, { holdOut, seed, name }: Config): boolean =>
  unitHash('value', name, seed ?? 0, task) < holdOut;

/** Attempts by task, at most so many of each, drawn by their ids. */
async function attemptsByTask(
  context: StageContext,
  { settings, chat, held }: { settings: Config; chat: Chat; held: boolean },
): Promise<Map<string, Encoded[]>> {
  const tasks = (await context.tasks('train')).filter(({ id }) => isHeldOut(id, settings) === held);
  const maxTokens = Math.min(settings.maxTokens, context.contextTokens);
  const byTask = new Map<string, Encoded[]>();
  for (const stage of settings.from) {
    for (const folder of await attemptFolders(finishedStage(context, stage))) {
      for await (const encoded of encodeFolder(context, { folder, tasks, chat, maxTokens })) {
        const id = encoded.outcome.task.id;
        byTask.set(id, [...(byTask.get(id) ?? []), encoded]);
      }
    }
  }
  for (const [id, all] of byTask) {
    const draw = ({ outcome }: Encoded): number => unitHash('draw', outcome.episode.id);
    byTask.set(id, all.sort((a, b) => draw(a) - draw(b)).slice(0, settings.attemptsPerTask));
  }
  return byTask;
}

async function packAttempts(
  context: StageContext,
  { settings, dir, batch, chat }: { settings: Config; dir: string; batch: string; chat: Chat },
): Promise<void> {
  const byTask = await attemptsByTask(context, { settings, chat, held: false });
  const counts = { tasks: byTask.size, mixed: 0, attempts: 0, resolved: 0, oneSided: 0 };
  const rows: BatchRow[] = [];
  for (const attempts of byTask.values()) {
    const resolved = attempts.filter(({ outcome }) => outcome.verdict.resolved).length;
    // A task whose attempts all ended the same says how hard it is, not which attempt to choose.
    if (resolved === 0 || resolved === attempts.length) {
      counts.oneSided += attempts.length;
      continue;
    }
    counts.mixed++;
    counts.attempts += attempts.length;
    counts.resolved += resolved;
    for (const { outcome, ids } of attempts) {
      const label = outcome.verdict.resolved ? 1 : 0;
      const weight = attempts.length / (2 * (label ? resolved : attempts.length - resolved));
      rows.push(rowOf({ outcome, ids }, { label, weight }));
    }
  }
  if (rows.length === 0)
    throw userError(
      settings.name,
      `of ${counts.tasks} tasks none has both resolved and failed attempts to learn from`,
      'add stages to from, or collect more attempts at each task',
    );
  await writeBatch(batch, rows, {
    kind: 'value',
    step: 0,
    policyVersion: null,
    sampling: null,
    loss: { name: 'value', params: {} },
    streams: ['label'],
  });
  await writeJson(join(dir, 'selection.json'), counts);
}

/** The prediction is read at the last token, and nowhere else. */
function rowOf({ outcome, ids }: Encoded, { label, weight }: { label: number; weight: number }): BatchRow {
  const last = ids.map((_, at) => (at === ids.length - 1 ? 1 : 0));
  const { id, task } = outcome.episode;
  return {
    v: 'orchard.sample/1',
    id,
    episode: id,
    task,
    tokens: ids,
    mask: last,
    weights: last.map((one) => one * weight),
    logprobs: null,
    segments: [],
    rootReason: 'start',
    episodeShare: 1,
    source: 'retokenized',
    label,
  };
}

interface Measured {
  tasks: number;
  attempts: number;
  auc: number | null;
  aucWithinTasks: number | null;
  ece: number | null;
  k: { k: number; best: number; mean: number; pass: number; shortest: number }[];
}

/** On tasks it was not trained on: does it tell right from wrong, and what would choosing by it bring? */
async function measure(
  context: StageContext,
  { settings, folder, base, chat }: { settings: Config; folder: string; base: string; chat: Chat },
): Promise<Measured> {
  const byTask = await attemptsByTask(context, { settings, chat, held: true });
  await using scorer = await openOnnx(folder, { base });
  const all = [...byTask.values()].flat();
  const scores = await scorer.score(all.map(({ ids }) => ids));
  const scored = all.map(({ outcome, ids }, at) => ({
    task: outcome.task.id,
    value: scores[at]!,
    // An attempt that changed nothing hands in nothing: never the shortest patch.
    length: outcome.episode.patch?.bytes ?? Number.POSITIVE_INFINITY,
    tokens: ids.length,
    resolved: outcome.verdict.resolved,
  }));
  const tasks = [...Map.groupBy(scored, ({ task }) => task).values()];
  const mean = (pick: (members: typeof scored) => number, members: (typeof scored)[]): number =>
    members.reduce((sum, each) => sum + pick(each), 0) / members.length;
  const k = [1, 2, 4, 8].flatMap((count) => {
    const enough = tasks.filter((members) => members.length >= count);
    if (enough.length === 0) return [];
    const resolvedOf = (members: typeof scored): number => members.filter(({ resolved }) => resolved).length;
    return {
      k: count,
      best: mean(
        (members) =>
          bestAtK(
            members.map((each) => ({ ...each, length: each.tokens })),
            count,
          ),
        enough,
      ),
      mean: mean((members) => resolvedOf(members) / members.length, enough),
      pass: mean((members) => passAtK({ total: members.length, resolved: resolvedOf(members) }, count), enough),
      shortest: mean((members) => shortestAtK(members, count), enough),
    };
  });
  return {
    tasks: tasks.length,
    attempts: scored.length,
    auc: auc(scored.map(({ value: score, resolved }) => ({ value: score, positive: resolved }))),
    aucWithinTasks: meanAucByTask(
      scored.map(({ task, value: score, resolved }) => ({ task, value: score, positive: resolved })),
    ).mean,
    ece: ece(scored.map(({ value: score, resolved }) => ({ p: score, positive: resolved }))),
    k,
  };
}

function wordsOf(name: string, { tasks, attempts, auc: area, aucWithinTasks, ece: error, k }: Measured): string {
  const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;
  const widest = k.at(-1);
  return `${name}: on ${attempts} attempts at ${tasks} held-out tasks AUC ${area?.toFixed(3) ?? '-'}, within tasks ${aucWithinTasks?.toFixed(3) ?? '-'}, ECE ${error?.toFixed(3) ?? '-'}${widest ? `; of ${widest.k} candidates it finds ${percent(widest.best)}, one at random ${percent(widest.mean)}, the shortest patch ${percent(widest.shortest)}, the best possible ${percent(widest.pass)}` : ''}`;
}
