import { join } from 'node:path';
import { z } from 'zod';
import { chooseBest } from '../algo/select.ts';
import { poissonBinomialTail } from '../algo/stats.ts';
import { userError } from '../core/errors.ts';
import { writeJson, writeWhole } from '../core/folder.ts';
import { secondsOf } from '../core/stopwatch.ts';
import { loadChat } from '../data/chat.ts';
import type { ReportRow } from '../records/report.ts';
import { type Stage, type StageContext, stageDir, weightsNeeded } from './context.ts';
import { checkInfrastructure, type Outcome } from './outcomes.ts';
import { runRollouts } from './rollouts.ts';
import { rowOf, writePredictions } from './rows.ts';
import { encodeFolder } from './value/candidates.ts';
import { Classifier, openClassifier, openOnnx, type Scorer, sameTokenizer } from './value/scorer.ts';
import { weightsOf } from './weights.ts';

const config = z.strictObject({
  name: z.string().default('rerank'),
  policy: z.string().default('rl').describe('whose attempts: base, or a training stage before'),
  candidates: z.number().int().min(2).default(4).describe('attempts at each held-out task'),
  value: z.string().default('value').describe('the value stage that chooses'),
  classifier: Classifier.optional().describe(
    'where the value model is too large for the CPU: an engine that serves it',
  ),
  maxTokens: z.number().int().positive().default(65_536).describe('as the value stage'),
  temperature: z.number().positive().default(1),
  topP: z.number().positive().max(1).default(1),
  maxTokensPerCall: z.number().int().positive().default(4096),
});
type Config = z.infer<typeof config>;

/** Several attempts at each held-out task, the one that the value model likes best is handed in. */
export const rerank: Stage<Config> = {
  config,
  nameOf: (settings) => settings.name,
  split: 'test',
  gives: ['rows'],
  needs: ({ policy, value }) => [...weightsNeeded(policy), { stage: value, result: 'value' }],
  plan: ({ candidates, policy, value, classifier }) => [
    `${candidates} attempts of ${policy} on each held-out task; the best by ${classifier ? `the classifier ${classifier.model}` : value} is handed in, of equals the shorter one`,
  ],
  async run(context, settings) {
    const dir = stageDir(context.runDir, settings.name);
    const tasks = await context.tasks('test');
    const policy = await weightsOf(context, settings.policy);
    // Before anything is sampled: a value model that does not fit is told at once.
    await using scorer = await openScorer(context, { settings, base: policy.path });
    const folder = join(dir, 'candidates');
    const outcomes = await rollCandidates(context, { settings, folder, policy });
    const chat = await loadChat(policy.path);
    const maxTokens = Math.min(settings.maxTokens, context.contextTokens);
    const encoded = await Array.fromAsync(encodeFolder(context, { folder, tasks, chat, maxTokens }));
    const began = performance.now();
    const values = await scorer.score(encoded.map(({ ids }) => ids));
    const scoringS = (performance.now() - began) / 1000;
    const scored = encoded.map(({ outcome, ids }, at) => ({
      id: outcome.episode.id,
      value: values[at]!,
      length: ids.length,
      outcome,
    }));
    await writeWhole(
      join(dir, 'values.jsonl'),
      scored
        .map(
          ({ id, value, length, outcome }) =>
            `${JSON.stringify({ episode: id, task: outcome.task.id, value, tokens: length })}\n`,
        )
        .join(''),
    );
    const byTask = Map.groupBy(scored, ({ outcome }) => outcome.task.id);
    // A task none of whose attempts came to an end stands in the table with the class of the first.
    const first = (id: string): Outcome[] => [...outcomes.values()].filter(({ task }) => task.id === id).slice(0, 1);
    const chosen = tasks.flatMap(({ id }) => {
      const candidates = byTask.get(id);
      return candidates ? [chooseBest(candidates)!.outcome] : first(id);
    });
    await writePredictions(context, { dir, model: settings.name, outcomes: chosen });
    const row: ReportRow = {
      ...(await rowOf(context, {
        name: settings.name,
        outcomes: chosen,
        above: null,
        trainedBy: null,
        seconds: await secondsOf(dir),
      })),
      candidates: chances([...byTask.values()], { k: settings.candidates, chosen }),
    };
    await writeJson(join(dir, 'summary.json'), { policy: settings.policy, candidates: scored.length, scoringS });
    await writeJson(join(dir, 'rows.json'), [row]);
  },
};

async function openScorer(
  context: StageContext,
  { settings, base }: { settings: Config; base: string },
): Promise<Scorer> {
  const { classifier } = settings;
  const value = await weightsOf(context, settings.value);
  if (!classifier) return openOnnx(value.path, { base });
  await sameTokenizer(value.path, base);
  const apiKey = classifier.apiKeyEnv === undefined ? null : (context.secret(classifier.apiKeyEnv) ?? null);
  if (classifier.apiKeyEnv !== undefined && apiKey === null)
    throw userError(
      classifier.apiKeyEnv,
      `the environment variable ${classifier.apiKeyEnv} is not set`,
      `export ${classifier.apiKeyEnv}=… and run again`,
    );
  return openClassifier(classifier, { apiKey, concurrency: context.concurrency, signal: context.signal });
}

async function rollCandidates(
  context: StageContext,
  { settings, folder, policy }: { settings: Config; folder: string; policy: Awaited<ReturnType<typeof weightsOf>> },
): Promise<Map<string, Outcome>> {
  await using inference = await context.openInference(policy, join(folder, 'inference'));
  await using sandboxes = await context.openSandboxes();
  const { temperature, topP, maxTokensPerCall } = settings;
  const outcomes = await runRollouts(
    context,
    {
      dir: folder,
      scope: settings.name,
      tasks: await context.tasks('test'),
      attempts: settings.candidates,
      inference,
      sampling: { temperature, topP, maxTokensPerCall },
      label: settings.name,
    },
    sandboxes,
  );
  checkInfrastructure(outcomes, settings.name);
  return outcomes;
}

/** What other ways of choosing would have come to, and whether this one is better than chance. */
function chances(
  tasks: { outcome: Outcome }[][],
  { k, chosen }: { k: number; chosen: Outcome[] },
): NonNullable<ReportRow['candidates']> {
  const shares = tasks.map(
    (candidates) => candidates.filter(({ outcome }) => outcome.verdict.resolved).length / candidates.length,
  );
  const patchBytes = ({ outcome }: { outcome: Outcome }): number => outcome.episode.patch?.bytes ?? 0;
  const shortest = tasks.filter((candidates) => {
    // An attempt that changed nothing hands in nothing.
    const some = candidates.filter((each) => patchBytes(each) > 0);
    const [least] = some.sort((a, b) => patchBytes(a) - patchBytes(b));
    return least?.outcome.verdict.resolved ?? false;
  }).length;
  const total = Math.max(1, tasks.length);
  return {
    k,
    mean: shares.reduce((sum, share) => sum + share, 0) / total,
    shortest: shortest / total,
    pass: shares.filter((share) => share > 0).length / total,
    p: poissonBinomialTail(shares, chosen.filter(({ verdict }) => verdict.resolved).length),
  };
}
