import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { benchmarks } from '../benchmarks/index.ts';
import { openBlobs } from '../core/blobs.ts';
import { userError } from '../core/errors.ts';
import type { Progress } from '../core/progress.ts';
import { harnesses } from '../harnesses/index.ts';
import { inferences } from '../inference/index.ts';
import type { Script } from '../ports/inference.ts';
import type { Task } from '../records/task.ts';
import type { Weights } from '../records/weights.ts';
import { sandboxes } from '../sandboxes/index.ts';
import type { StageContext } from '../stages/context.ts';
import { trainers } from '../trainers/index.ts';
import type { Recipe } from './schema.ts';

/** What the command line knows and a recipe must not: where things are on this machine, and secrets. */
export interface Machine {
  python: string;
  /** Value of an environment variable that a recipe names, e.g. for an API key. */
  secret(name: string): string | undefined;
  /** Sandbox caches that outlive a run. */
  scratchDir: string;
}

type Chosen = { kind: string } & Record<string, unknown>;

/** Settings without the word that chose their kind. */
function settingsOf(chosen: Chosen): Record<string, unknown> {
  const { kind: _, ...settings } = chosen;
  return settings;
}

/**
 * Makes the context that every stage of a recipe works in.
 * @throws OrchardError owner `user` when the recipe asks for a kind that can be planned but not run yet
 */
export async function openContext(
  recipe: Recipe,
  options: { runDir: string; machine: Machine; progress: Progress; signal: AbortSignal },
): Promise<StageContext & AsyncDisposable> {
  const { runDir, machine, progress, signal } = options;
  const harness = pick('harness', harnesses, recipe.harness);
  const sandboxKind = pick('sandbox', sandboxes, recipe.sandbox);
  const inferenceKind = pick('inference', inferences, recipe.inference);
  const trainerKind = pick('trainer', trainers, recipe.trainer);
  const {
    benchmark: benchmarkName,
    train,
    test,
    limit,
    ...benchmarkSettings
  } = recipe.tasks as typeof recipe.tasks & Record<string, unknown>;
  const benchmark = benchmarks[benchmarkName]!;
  const splits = { train, test };
  const loaded = new Map<string, Promise<Task[]>>();
  const tasks = (split: 'train' | 'test'): Promise<Task[]> => {
    const known =
      loaded.get(split) ?? benchmark.tasks(benchmarkSettings, splits[split]).then((all) => all.slice(0, limit));
    loaded.set(split, known);
    return known;
  };
  const base: Weights | null = recipe.model.base === null ? null : { path: recipe.model.base, version: 'base' };
  if (base !== null && !existsSync(join(base.path, 'config.json'))) {
    throw userError(
      'model.base',
      `model.base: there is no model in ${base.path}`,
      'set model.base to a folder in Hugging Face layout',
    );
  }
  const open = async (
    chosen: Chosen,
    { dir, weights, script }: { dir: string; weights: Weights | null; script?: Script },
  ) => {
    const kind = pick('inference', inferences, chosen);
    const known = script
      ? new Map([...(await tasks('train')), ...(await tasks('test'))].map((task) => [task.id, task]))
      : undefined;
    return kind.open(settingsOf(chosen), {
      dir,
      weights,
      signal,
      python: machine.python,
      secret: machine.secret,
      ...(script && known ? { script: { play: script, tasks: known } } : {}),
    });
  };
  const { teacher, judge, scorer } = recipe as { teacher?: Chosen; judge?: Chosen; scorer?: Chosen };
  const trainerSettings = recipe.trainer as unknown as {
    precision: 'fp32' | 'bf16';
    microTokens: number;
    checkpointEverySteps: number;
  };
  const sandboxSettings = recipe.sandbox as unknown as {
    network: 'none' | 'open';
    memoryMiB: number;
    processes: number;
  };
  const blobs = await openBlobs(join(runDir, 'blobs'));
  return {
    runDir,
    runName: recipe.name,
    seed: recipe.seed,
    base,
    contextTokens: recipe.model.context,
    benchmark,
    tasks,
    harness: harness.open(settingsOf(recipe.harness)),
    openSandboxes: () => sandboxKind.open(settingsOf(recipe.sandbox), { scratchDir: machine.scratchDir }),
    sandbox: {
      network: sandboxSettings.network,
      memoryMiB: sandboxSettings.memoryMiB,
      processes: sandboxSettings.processes,
    },
    openInference: async (weights, dir) =>
      inferenceKind.open(settingsOf(recipe.inference), {
        dir,
        weights,
        signal,
        python: machine.python,
        secret: machine.secret,
      }),
    async openTeacher(dir) {
      if (!teacher)
        throw userError(
          'teacher',
          'the recipe has no teacher',
          'add for example teacher: { kind: openai, baseUrl: …, model: … }',
        );
      return open(teacher, { dir, weights: null, script: benchmark.scripted?.teacher });
    },
    async openScorer(dir) {
      if (!scorer)
        throw userError(
          'scorer',
          'the recipe has no scorer to distil from',
          'add for example scorer: { kind: openai, baseUrl: …, model: … }, or name a training stage in distill.teacher',
        );
      return open(scorer, { dir, weights: null });
    },
    openJudge: judge && judge.kind !== 'scripted' ? (dir) => open(judge, { dir, weights: null }) : null,
    trainer: trainerKind.open(settingsOf(recipe.trainer), { python: machine.python }),
    trainerDefaults: {
      precision: trainerSettings.precision,
      microTokens: trainerSettings.microTokens,
      checkpointEverySteps: trainerSettings.checkpointEverySteps,
    },
    python: machine.python,
    secret: machine.secret,
    concurrency: recipe.concurrency,
    limits: recipe.limits,
    blobs,
    progress,
    signal,
    [Symbol.asyncDispose]: () => blobs[Symbol.asyncDispose](),
  };
}

/** @throws OrchardError owner `user` for a kind that is only planned */
function pick<K>(part: string, registry: Record<string, K>, chosen: { kind: string }): K {
  const kind = registry[chosen.kind];
  if (kind) return kind;
  throw userError(
    `${part}.kind`,
    `${part} ${chosen.kind} can be planned but is not there to run yet`,
    `run with ${part}.kind one of ${Object.keys(registry).join(', ')}`,
  );
}
