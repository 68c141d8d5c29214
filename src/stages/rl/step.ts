import { join } from 'node:path';
import { OrchardError } from '../../core/errors.ts';
import { isReady, markReady, readJson, writeJson } from '../../core/folder.ts';
import { readJsonl } from '../../core/jsonl.ts';
import type { Inference } from '../../ports/inference.ts';
import type { SandboxDriver } from '../../ports/sandbox.ts';
import { Episode } from '../../records/episode.ts';
import type { Sample } from '../../records/sample.ts';
import type { RlStep } from '../../records/step.ts';
import type { Task } from '../../records/task.ts';
import type { StageContext } from '../context.ts';
import { openCalls } from '../conversations.ts';
import { countOutcomes, type Outcome } from '../outcomes.ts';
import { openAttempts } from '../rollouts.ts';
import { type Chosen, samplesOfEpisode, writeRlBatch } from './batch.ts';
import type { Config } from './config.ts';
import { type Group, type Groups, rollGroups } from './groups.ts';
import type { Rewarded, Rewards } from './rewards.ts';
import type { Teacher } from './teacher.ts';

export const stepFolder = (step: number): string => `step_${String(step).padStart(6, '0')}`;

/** generated.json: what a step knows before it is trained. */
export type Generated = Pick<
  RlStep,
  | 'version'
  | 'resolveRate'
  | 'reward'
  | 'rewardParts'
  | 'groups'
  | 'episodes'
  | 'tokens'
  | 'entropy'
  | 'teacherFailures'
  | 'judgeFailures'
> & { cursor: number; seconds: { rollout: number; reward: number; teacher: number; batch: number } };

export interface StepPlan {
  step: number;
  /** Folder of the stage. */
  dir: string;
  settings: Config;
  inference: Inference;
  sandboxes: SandboxDriver;
  rewards: Rewards;
  teacher: Teacher | null;
  pool: Task[];
  promptAt: (position: number) => Task;
  onChange: (phase: string) => void;
}

/** A step that found nothing to train on, and why its groups were dropped. */
export interface Barren {
  reasons: Record<string, number>;
}

export const generatedOf = async (dir: string, step: number): Promise<Generated> =>
  (await readJson(join(dir, 'steps', stepFolder(step), 'generated.json'))) as Generated;

/**
 * One step up to its batch: rollouts, selection, rewards, the teacher's scores, samples. Goes on with what is in its
 * folder; READY in `batches/step_N` is what the trainer waits for.
 */
export async function generateStep(context: StageContext, plan: StepPlan): Promise<Generated | Barren> {
  const { step, settings, onChange } = plan;
  const dir = join(plan.dir, 'steps', stepFolder(step));
  const batch = join(plan.dir, 'batches', stepFolder(step));
  const clock = stopClock();
  const version = plan.inference.version();
  const rolled = await roll(context, { ...plan, dir });
  const rollout = clock();
  checkInfrastructure(rolled, settings, plan);
  const kept = rolled.groups.filter(({ drop }) => drop === null);
  if (kept.length === 0) return { reasons: countBy(rolled.groups.map(({ drop }) => drop!)) };

  onChange('rewards');
  const outcomes = kept.map(({ chosen }) => chosen.map((id) => rolled.outcomes.get(id)!));
  const rewarded = await plan.rewards.score(outcomes.flat(), dir);
  const reward = clock();

  await using reader = await openCalls(dir);
  const chosen: Chosen[] = outcomes.flatMap((members, group) =>
    members.map(({ episode }) => ({ episode, group, reward: rewarded.get(episode.id)!.value })),
  );
  const samples = new Map<string, Sample[]>();
  for (const { episode } of chosen) samples.set(episode.id, await samplesOfEpisode(episode, { reader, version }));
  const all = [...samples.values()].flat();
  const sampling = clock();

  if (plan.teacher) onChange('teacher');
  const scores = plan.teacher ? await plan.teacher.score(all, dir) : null;
  const teacher = clock();

  const manifest = await writeRlBatch(batch, { step, version, settings, chosen, samples, scores });
  const generated: Generated = {
    ...(await summary({ ...rolled, dir, rewarded, chosen, samples: all, version })),
    teacherFailures: [...(scores?.values() ?? [])].filter(({ logprobs }) => logprobs === null).length,
    seconds: { rollout, reward, teacher, batch: sampling + clock() },
  };
  generated.tokens.trained = manifest.tokens.trained;
  await writeJson(join(dir, 'generated.json'), generated);
  await markReady(dir);
  return generated;
}

export const isGenerated = (dir: string, step: number): boolean => isReady(join(dir, 'steps', stepFolder(step)));

type Rolled = Groups & { outcomes: Map<string, Outcome> };

async function roll(context: StageContext, plan: StepPlan): Promise<Rolled> {
  const { dir, step, settings, inference, sandboxes, pool, promptAt, onChange } = plan;
  const cursor = step === 0 ? 0 : (await generatedOf(join(dir, '../..'), step - 1)).cursor;
  await using attempts = await openAttempts(
    context,
    {
      dir,
      scope: `${settings.name}.${step}`,
      tasks: pool,
      inference,
      sampling: { temperature: settings.temperature, topP: settings.topP, maxTokensPerCall: settings.maxTokensPerCall },
    },
    sandboxes,
  );
  const show = (groups: Group[]): void => {
    const full = groups.filter(({ drop }) => drop === null).length;
    onChange(`${Math.min(full, settings.prompts)}/${settings.prompts} groups, ${groups.length - full} dropped`);
  };
  show([]);
  const rolled = await rollGroups(attempts, { promptAt, cursor, poolSize: pool.length, settings }, show);
  await writeJson(join(dir, 'groups.json'), rolled.groups);
  return { ...rolled, outcomes: attempts.outcomes };
}

/** @throws OrchardError when so much of a step failed for other reasons than the model that it says little about it */
function checkInfrastructure({ outcomes }: Rolled, { stop }: Config, { step, dir }: StepPlan): void {
  const failed = [...outcomes.values()].filter(({ verdict }) => verdict.class === 'infrastructure');
  const first = failed[0]?.verdict.failure;
  if (!first || failed.length <= stop.infrastructure * outcomes.size) return;
  throw new OrchardError({
    ...first,
    cause: `step ${step} of ${dir}: ${failed.length} of ${outcomes.size} episodes failed for reasons of the infrastructure, the first: ${first.cause}`,
    wayOut: `${first.wayOut}; then run again: only those are repeated`,
  });
}

async function summary({
  groups,
  cursor,
  outcomes,
  dir,
  rewarded,
  chosen,
  samples,
  version,
}: Rolled & {
  dir: string;
  rewarded: Map<string, Rewarded>;
  chosen: Chosen[];
  samples: Sample[];
  version: string;
}): Promise<Omit<Generated, 'seconds' | 'teacherFailures'>> {
  const counts = countOutcomes(outcomes.values());
  const scored = counts.resolved + counts.failed + counts.empty_patch;
  const last = new Map<string, string>();
  for await (const { id, end } of readJsonl(join(dir, 'episodes.jsonl'), Episode)) last.set(id, end.kind);
  const earned = chosen.map(({ episode }) => rewarded.get(episode.id)!);
  const parts = new Map<string, number>();
  for (const { parts: each } of earned)
    for (const [name, value] of Object.entries(each)) parts.set(name, (parts.get(name) ?? 0) + value / earned.length);
  let logprobs = 0;
  let sampled = 0;
  for (const { mask, logprobs: given } of samples) {
    for (const [at, one] of mask.entries()) {
      sampled += one;
      logprobs += one * given![at]!;
    }
  }
  const sum = (pick: (outcome: Outcome) => number): number =>
    [...outcomes.values()].reduce((total, outcome) => total + pick(outcome), 0);
  const keptGroups = groups.filter(({ drop }) => drop === null);
  return {
    version,
    cursor,
    resolveRate: scored === 0 ? 0 : counts.resolved / scored,
    reward: earned.reduce((total, { value }) => total + value, 0) / earned.length,
    rewardParts: Object.fromEntries(parts),
    groups: {
      kept: keptGroups.length,
      dropped: countBy(groups.flatMap(({ drop }) => drop ?? [])),
      ends: countBy(keptGroups.map(({ end }) => end)),
    },
    episodes: {
      run: last.size,
      trained: chosen.length,
      aborted: [...last.values()].filter((kind) => kind === 'aborted').length,
      infrastructure: counts.infrastructure,
    },
    tokens: {
      prompt: sum(({ episode }) => episode.tokens.prompt),
      sampled: sum(({ episode }) => episode.tokens.completion),
      trained: 0,
    },
    entropy: -logprobs / sampled,
    judgeFailures: earned.filter(({ problem }) => problem !== null).length,
  };
}

function countBy(words: string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const word of words) counts[word] = (counts[word] ?? 0) + 1;
  return counts;
}

/** Seconds since it was asked last. */
function stopClock(): () => number {
  let last = performance.now();
  return () => {
    const before = last;
    last = performance.now();
    return (last - before) / 1000;
  };
}
