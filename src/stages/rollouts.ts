import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { failureOf, OrchardError, userError } from '../core/errors.ts';
import { readJson, writeJson } from '../core/folder.ts';
import { openJsonl } from '../core/jsonl.ts';
import { forEachLimited } from '../core/limit.ts';
import type { HarnessEnd } from '../ports/harness.ts';
import type { Inference } from '../ports/inference.ts';
import type { Sandbox, SandboxDriver } from '../ports/sandbox.ts';
import { type RecordingProxy, startProxy } from '../proxy/server.ts';
import type { BlobRef, Failure } from '../records/common.ts';
import type { Episode } from '../records/episode.ts';
import type { Task } from '../records/task.ts';
import type { Verdict } from '../records/verdict.ts';
import type { Sampling, StageContext } from './context.ts';
import { countWords, isSettled, type Outcome, readOutcomes } from './outcomes.ts';
import { takePatch } from './patch.ts';

export interface RolloutPlan {
  /** Folder of episodes.jsonl, calls.jsonl and verdicts.jsonl. */
  dir: string;
  /** First word of the episode ids. */
  scope: string;
  tasks: Task[];
  attempts: number;
  inference: Inference;
  sampling: Sampling;
  /** Text in front of the bar. */
  label: string;
}

export const episodeId = (scope: string, task: string, attempt: number): string => `${scope}:${task}:${attempt}`;

/** More failures in a row than this, all of the infrastructure, and going on would only burn time. */
const failuresInARow = (concurrency: number): number => Math.max(8, 2 * concurrency);

/**
 * Runs every attempt of every task that is not settled yet, grades it, and returns all outcomes. Safe to kill at any
 * moment and call again: an attempt counts once both its episode and its verdict are on disk.
 * @throws OrchardError when infrastructure failures come in an unbroken row; the abort reason when cancelled
 */
export async function runRollouts(
  context: StageContext,
  plan: RolloutPlan,
  sandboxes: SandboxDriver,
): Promise<Map<string, Outcome>> {
  await holdTasks(plan);
  const outcomes = await readOutcomes(plan.dir, plan.tasks);
  const todo = plan.tasks.flatMap((task) =>
    Array.from({ length: plan.attempts }, (_, attempt) => ({
      task,
      attempt,
      id: episodeId(plan.scope, task.id, attempt),
    })),
  );
  const open = todo.filter((each) => !isSettled(outcomes.get(each.id)));
  const bar = context.progress.start(plan.label, todo.length, 'episodes');
  const note = (): string => countWords(outcomes.values());
  bar.update(todo.length - open.length, note());
  await using episodes = await openJsonl(join(plan.dir, 'episodes.jsonl'));
  await using verdicts = await openJsonl(join(plan.dir, 'verdicts.jsonl'));
  await using calls = await openJsonl(join(plan.dir, 'calls.jsonl'));
  await using proxy = await startProxy({
    blobs: context.blobs,
    calls,
    upstream: {
      baseUrl: plan.inference.baseUrl,
      apiKey: plan.inference.apiKey,
      model: plan.inference.model,
      tokenIds: plan.inference.capabilities.tokenIds,
    },
  });
  let inARow = 0;
  let done = todo.length - open.length;
  await forEachLimited(
    open,
    { concurrency: context.concurrency, signal: context.signal },
    async ({ task, attempt, id }) => {
      for (let tries = 0; ; tries++) {
        // Where only the grading failed, the model is not asked again.
        const before = outcomes.get(id)?.episode;
        const isSound = before !== undefined && before.end.failure === undefined;
        const episode = isSound ? before : await runEpisode(context, plan, { proxy, sandboxes, task, attempt, id });
        if (context.signal.aborted) return; // what was in flight is done again, it was not the model's fault
        if (!isSound) await episodes.append(episode);
        const verdict = await gradeEpisode(context, { task, episode, sandboxes });
        if (context.signal.aborted) return;
        await verdicts.append(verdict);
        const outcome = { task, episode, verdict };
        outcomes.set(id, outcome);
        if (isSettled(outcome)) {
          inARow = 0;
          break;
        }
        if (++inARow >= failuresInARow(context.concurrency)) throw stoppedBecause(verdict.failure!, inARow);
        if (tries >= context.limits.retries) break;
        await sleep(500 * 2 ** tries, undefined, { signal: context.signal }).catch(() => {});
      }
      bar.update(++done, note());
    },
  );
  context.signal.throwIfAborted();
  bar.end(note());
  return outcomes;
}

/** Attempts of one folder are of the same tasks, however often it is gone on with. @throws OrchardError owner `user` */
async function holdTasks({ dir, tasks }: RolloutPlan): Promise<void> {
  const file = join(dir, 'tasks.json');
  const rows = Object.fromEntries(tasks.map(({ id, rowSha256 }) => [id, rowSha256]));
  if (!existsSync(file)) {
    await mkdir(dir, { recursive: true });
    return writeJson(file, rows);
  }
  const before = (await readJson(file)) as Record<string, string>;
  const changed = [...new Set([...Object.keys(before), ...Object.keys(rows)])].filter((id) => before[id] !== rows[id]);
  if (changed.length > 0) {
    throw userError(
      changed[0]!,
      `${changed.length} tasks are not those that ${dir} was started with, the first: ${changed[0]}`,
      'bring the old rows back, or choose another run with --name',
    );
  }
}

/** Beyond the wall clock that the proxy keeps: a command may still run when the last call is refused. */
const WALL_GRACE_MS = 30_000;
/** Taking the patch of a large repository. */
const PATCH_MS = 180_000;

/** One execution in a fresh sandbox. Failures become part of the episode; only programming errors are thrown. */
async function runEpisode(
  context: StageContext,
  plan: RolloutPlan,
  {
    proxy,
    sandboxes,
    task,
    attempt,
    id,
  }: { proxy: RecordingProxy; sandboxes: SandboxDriver; task: Task; attempt: number; id: string },
): Promise<Episode> {
  const session = randomBytes(8).toString('hex');
  const startedAt = Date.now();
  const wallMs = context.limits.wallS * 1000;
  const version = plan.inference.version();
  const channel = proxy.openEpisode({
    episode: id,
    task: task.id,
    session,
    limits: { calls: context.limits.calls, tokens: context.limits.tokens, wallMs },
  });
  let end: HarnessEnd & { failure?: Failure };
  let patch: BlobRef | null = null;
  try {
    await using sandbox: Sandbox = await sandboxes.create({
      id,
      workspace: task.workspace,
      ...context.sandbox,
      lifetimeMs: wallMs + WALL_GRACE_MS + PATCH_MS,
    });
    const outOfTime = AbortSignal.timeout(wallMs + WALL_GRACE_MS);
    const launch = {
      episode: id,
      statement: task.statement,
      endpoint: { baseUrl: channel.baseUrl, apiKey: channel.apiKey, model: plan.inference.model },
      sandbox,
      sampling: plan.sampling,
      signal: AbortSignal.any([context.signal, outOfTime]),
    };
    end = await context.harness.run(launch).catch((error: unknown) => {
      // The agent's own commands took too long: its end, not a failure of the harness.
      if (!outOfTime.aborted || context.signal.aborted) throw error;
      return { kind: 'time_limit' as const, detail: 'in a command', oddities: { unknownTools: 0, unparsable: 0 } };
    });
    const bytes = await takePatch(sandbox, task);
    if (bytes === null) end = { ...end, detail: 'it left a change too large for a patch' };
    else if (bytes.length > 0) patch = await context.blobs.put(bytes);
    if (channel.stats().calls === 0) {
      throw new OrchardError({
        owner: 'harness',
        code: 'no_calls',
        id,
        cause: `the harness ended ${id} without one model call`,
        wayOut: 'look at the harness settings of the recipe',
      });
    }
  } catch (error) {
    const failure = failureOf(error, {
      owner: 'harness',
      code: 'episode_failed',
      id,
      wayOut: 'run again; if it stays, see `orchard show`',
    });
    const { refusal } = channel.stats();
    if (refusal && failure.owner === 'harness') failure.cause += `; the model had refused: ${refusal}`;
    end = { kind: 'failed', detail: failure.cause, oddities: { unknownTools: 0, unparsable: 0 }, failure };
  } finally {
    await channel.close();
  }
  // What the proxy saw is the cause of what the harness then said.
  const failure = channel.stats().failure ?? end.failure;
  const stats = channel.stats();
  return {
    v: 'orchard.episode/1',
    id,
    session,
    task: task.id,
    attempt,
    harness: { name: context.harness.name, version: context.harness.version },
    model: { name: plan.inference.model, version },
    sampling: { temperature: plan.sampling.temperature, topP: plan.sampling.topP },
    end: failure ? { kind: 'failed', detail: end.detail, failure } : { kind: end.kind, detail: end.detail },
    calls: stats.calls,
    tokens: stats.tokens,
    patch: failure ? null : patch,
    oddities: end.oddities,
    startedAt,
    endedAt: Date.now(),
  };
}

async function gradeEpisode(
  context: StageContext,
  { task, episode, sandboxes }: { task: Task; episode: Episode; sandboxes: SandboxDriver },
): Promise<Verdict> {
  const { id, patch, end } = episode;
  if (end.failure) {
    return {
      v: 'orchard.verdict/1',
      episode: id,
      task: task.id,
      class: 'infrastructure',
      resolved: false,
      tests: {},
      log: null,
      ms: 0,
      failure: end.failure,
    };
  }
  return await context.benchmark.grade(task, patch ? await context.blobs.get(patch.sha256) : Buffer.alloc(0), {
    episode: id,
    sandboxes,
    blobs: context.blobs,
    memoryMiB: context.sandbox.memoryMiB,
    processes: context.sandbox.processes,
    signal: context.signal,
  });
}

function stoppedBecause(last: Failure, times: number): OrchardError {
  return new OrchardError({
    ...last,
    cause: `${last.cause} (${times} infrastructure failures in a row, stopped; nothing done is lost)`,
  });
}
