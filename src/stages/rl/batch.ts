import { advantages } from '../../algo/advantage.ts';
import { foldTeacher } from '../../algo/distill.ts';
import { mergeCalls } from '../../algo/merge.ts';
import { OrchardError } from '../../core/errors.ts';
import { type BatchOptions, type BatchRow, writeBatch } from '../../data/batches.ts';
import { decodePrompts } from '../../proxy/lineage.ts';
import type { BatchManifest } from '../../records/batch.ts';
import type { Episode } from '../../records/episode.ts';
import type { Sample } from '../../records/sample.ts';
import type { CallReader } from '../conversations.ts';
import { type Config, clipOf } from './config.ts';
import type { Scored } from './teacher.ts';

/** A chosen episode, what it earned, and its group's. */
export interface Chosen {
  episode: Episode;
  reward: number;
  group: number;
}

/**
 * Samples of an episode from the engine's own token ids, merged by exact prefix.
 * @throws OrchardError owner `provider` when other weights than `version` wrote a token, or one has no log-probability
 */
export async function samplesOfEpisode(
  episode: Episode,
  { reader, version }: { reader: CallReader; version: string },
): Promise<Sample[]> {
  const calls = await reader.callsOf(episode);
  const wrong = calls.find(({ tokens }) => tokens.source === 'engine' && tokens.version !== version);
  if (wrong)
    throw new OrchardError({
      owner: 'provider',
      code: 'wrong_version',
      id: wrong.id,
      cause: `call ${wrong.id} was answered by ${wrong.tokens.version}, not by ${version}`,
      wayOut: 'remove the folder of this step and run again; see that nothing else uses the engine',
    });
  const prompts = decodePrompts(calls);
  const samples = mergeCalls(
    calls.map((call) => ({ call, promptIds: prompts.get(call.id)! })),
    { episode: episode.id, task: episode.task },
  );
  const bare = samples.find(({ logprobs }) => logprobs === null);
  if (bare)
    throw new OrchardError({
      owner: 'provider',
      code: 'no_logprobs',
      id: bare.id,
      cause: `the engine gave no log-probabilities for ${bare.id}`,
      wayOut: 'use an engine that returns logprobs with token ids',
    });
  return samples;
}

export interface RlBatch {
  step: number;
  version: string;
  settings: Config;
  chosen: Chosen[];
  /** By episode. */
  samples: Map<string, Sample[]>;
  /** By sample; null without distillation. */
  scores: Map<string, Scored> | null;
}

/** Rows of a step with their advantages, weights and the teacher's scores; written as a batch folder. */
export function writeRlBatch(dir: string, batch: RlBatch): Promise<BatchManifest> {
  const { settings, version, step } = batch;
  const options: BatchOptions = {
    kind: 'rl',
    step,
    policyVersion: version,
    sampling: { temperature: settings.temperature, top_p: settings.topP },
    loss: { name: 'policy', params: lossParams(settings) },
    streams: [
      'advantage',
      'sampler_logprob',
      ...(distilsInLoss(settings) ? (['reference_logprob', 'reference_mask'] as const) : []),
    ],
  };
  return writeBatch(dir, rowsOf(batch), options);
}

const distilsInLoss = ({ distill }: Config): boolean => distill?.into === 'loss';

function lossParams(settings: Config): BatchManifest['loss']['params'] {
  const [low, high] = clipOf(settings);
  const { truncate, geometric } = settings.correction;
  const params: BatchManifest['loss']['params'] = {
    ratio: settings.objective === 'gspo' ? 'sequence' : 'token',
    clip_low: low,
    clip_high: high,
  };
  if (truncate !== undefined) params.truncate = truncate;
  if (geometric !== null) [params.geometric_low, params.geometric_high] = geometric;
  // Dr.GRPO divides by a constant: what an episode could have said at most.
  if (settings.objective === 'dr-grpo') params.row_tokens = settings.maxTokensPerCall;
  if (settings.distill && distilsInLoss(settings)) {
    const { divergence, beta, lambda } = settings.distill;
    Object.assign(params, { divergence, beta, ...(divergence === 'js_skew' ? { lambda } : {}) });
  }
  return params;
}

function* rowsOf({ settings, chosen, samples, scores }: RlBatch): Iterable<BatchRow> {
  const groups = Map.groupBy(chosen, ({ group }) => group);
  for (const members of groups.values()) {
    const gains = advantages(
      members.map(({ reward }) => reward),
      settings.objective,
    );
    for (const [index, { episode }] of members.entries()) {
      if (settings.maskTruncated && episode.end.kind !== 'submitted') continue;
      const advantage = settings.distill?.only ? 0 : gains[index]!;
      for (const sample of samples.get(episode.id)!) yield rowOf(sample, { advantage, settings, scores });
    }
  }
}

function rowOf(
  sample: Sample,
  { advantage, settings, scores }: { advantage: number; settings: Config; scores: Map<string, Scored> | null },
): BatchRow {
  const { mask, logprobs } = sample;
  const trained = mask.reduce((sum, one) => sum + one, 0);
  // GSPO counts sequences, not tokens.
  const weight = settings.objective === 'gspo' ? 1 / trained : 1;
  const row: BatchRow = {
    ...sample,
    weights: mask.map((one) => one * weight),
    advantages: mask.map((one) => one * advantage),
  };
  if (scores === null) return row;
  const given = scores.get(sample.id)?.logprobs ?? null;
  // A sample that the teacher failed on is left out of its part of the loss, and of nothing else.
  const reference = {
    logprobs: given === null ? mask.map(() => 0) : given.map((logprob, at) => logprob * mask[at]!),
    mask: given === null ? mask.map(() => 0) : mask,
  };
  if (distilsInLoss(settings)) return { ...row, reference };
  return {
    ...row,
    advantages: foldTeacher({
      advantages: row.advantages!,
      mask,
      samplerLogprobs: logprobs!,
      teacherLogprobs: reference.logprobs,
      teacherMask: reference.mask,
      beta: settings.distill!.beta,
    }),
  };
}
