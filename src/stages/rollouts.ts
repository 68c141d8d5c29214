import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { failureOf, OrchardError, userError } from '../core/errors.ts';
import { readJson, writeJson } from '../core/folder.ts';
import { openJsonl } from '../core/jsonl.ts';
import { forEachLimited, openGate } from '../core/limit.ts';
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
  inference: Inference;
  sampling: Sampling;
}

export const episodeId = (scope: string, task: string, attempt: number): string => `${scope}:${task}:${attempt}`;

/** More failures in a row than this, all of the infrastructure, and going on would only burn time. */
const failuresInARow = (concurrency: number): number => Math.max(8, 2 * concurrency);

/** A folder of attempts: each is run once, graded once, and on disk from then on. */
export interface Attempts extends AsyncDisposable {
  /** The last word on each attempt so far, by episode id. */
  readonly outcomes: Map<string, Outcome>;
  /**
   * The outcome of one attempt: known already, or run, graded and tried again after infrastructure failures. At most
   * `concurrency` run at a time. null when `stop` ended it: then it is recorded as aborted, and not as a failure.
   * @throws OrchardError when infrastructure failures come in an unbroken row; the abort reason when cancelled
   */
  run(task: Task, options: { attempt: number; stop?: AbortSignal }): Promise<Outcome | null>;
}

/** Opens a folder of attempts. Safe to kill at any moment and open again. */
export async function openAttempts(
  context: StageContext,
  plan: RolloutPlan,
  sandboxes: SandboxDriver,
): Promise<Attempts> {
  await holdTasks(plan);
  const outcomes = await readOutcomes(plan.dir, plan.tasks);
  await using opening = new AsyncDisposableStack();
  const jsonl = async (name: string) => opening.use(await openJsonl(join(plan.dir, name)));
  const episodes = await jsonl('episodes.jsonl');
  const verdicts = await jsonl('verdicts.jsonl');
  const calls = await jsonl('calls.jsonl');
  const proxy = opening.use(
    await startProxy({
      blobs: context.blobs,
      calls,
      upstream: {
        baseUrl: plan.inference.baseUrl,
        apiKey: plan.inference.apiKey,
        model: plan.inference.model,
        tokenIds: plan.inference.capabilities.tokenIds,
      },
    }),
  );
  const gate = openGate(context.concurrency);
  let inARow = 0;
  let broken: OrchardError | null = null;

  const attemptOnce = async (task: Task, attempt: number, stop: AbortSignal | undefined): Promise<Outcome | null> => {
    const id = episodeId(plan.scope, task.id, attempt);
    for (let tries = 0; ; tries++) {
      context.signal.throwIfAborted(); // what was in flight is done again, it was not the model's fault
      if (broken !== null) throw broken;
      const before = outcomes.get(id);
      if (before && isSettled(before)) return before;
      if (stop?.aborted) return null;
      await plan.inference.ready?.();
      // Where only the grading failed, the model is not asked again.
      const isSound = before !== undefined && before.episode.end.failure === undefined;
      const episode = isSound
        ? before.episode
        : await runEpisode(context, plan, { proxy, sandboxes, task, attempt, id, stop });
      context.signal.throwIfAborted();
      if (!isSound) await episodes.append(episode);
      if (episode.end.kind === 'aborted') return null;
      const verdict = await gradeEpisode(context, { task, episode, sandboxes });
      context.signal.throwIfAborted();
      await verdicts.append(verdict);
      const outcome = { task, episode, verdict };
      outcomes.set(id, outcome);
      if (isSettled(outcome)) {
        inARow = 0;
        return outcome;
      }
      if (++inARow >= failuresInARow(context.concurrency)) {
        broken = stoppedBecause(verdict.failure!, inARow);
        throw broken;
      }
      if (tries >= context.limits.retries) return outcome;
      await sleep(500 * 2 ** tries, undefined, { signal: context.signal });
    }
  };
  const opened = opening.move();
  return {
    outcomes,
    run: (task, { attempt, stop }) => gate(() => attemptOnce(task, attempt, stop)),
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  };
}

/**
 * Runs `attempts` attempts of every task behind a bar and returns all outcomes.
 * @throws as Attempts.run does
 */
export async function runRollouts(
  context: StageContext,
  plan: RolloutPlan & { attempts: number; label: string },
  sandboxes: SandboxDriver,
): Promise<Map<string, Outcome>> {
  await using attempts = await openAttempts(context, plan, sandboxes);
  const todo = plan.tasks.flatMap((task) => Array.from({ length: plan.attempts }, (_, attempt) => ({ task, attempt })));
  const bar = context.progress.start(plan.label, todo.length, 'episodes');
  const note = (): string => countWords(attempts.outcomes.values());
  let done = 0;
  await forEachLimited(todo, context, async ({ task, attempt }) => {
    await attempts.run(task, { attempt });
    bar.update(++done, note());
  });
  context.signal.throwIfAborted();
  bar.end(note());
  return attempts.outcomes;
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
    stop,
  }: {
    proxy: RecordingProxy;
    sandboxes: SandboxDriver;
    task: Task;
    attempt: number;
    id: string;
    stop: AbortSignal | undefined;
  },
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
      signal: AbortSignal.any([context.signal, outOfTime, ...(stop ? [stop] : [])]),
    };
    end = await context.harness.run(launch).catch((error: unknown) => {
      // The agent's own commands took too long: its end, not a failure of the harness.
      if (!outOfTime.aborted || context.signal.aborted || stop?.aborted) throw error;
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
  const stats = channel.stats();
  const isAborted = stop?.aborted && end.kind === 'failed';
  if (isAborted) end = { ...end, kind: 'aborted', detail: 'its step needed no more episodes', failure: undefined };
  const failure = isAborted ? undefined : (stats.failure ?? end.failure);
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
