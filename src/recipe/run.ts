import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { OrchardError, userError } from '../core/errors.ts';
import { isReady, markReady, readJson, writeJson } from '../core/folder.ts';
import { lockFolder } from '../core/lock.ts';
import type { Progress } from '../core/progress.ts';
import { openStopwatch, secondsOf } from '../core/stopwatch.ts';
import { type Report, ReportRow } from '../records/report.ts';
import { type Stage, type StageContext, stageDir } from '../stages/context.ts';
import { stages } from '../stages/index.ts';
import { stageEntries } from './load.ts';
import { type Machine, openContext } from './open.ts';
import type { Recipe } from './schema.ts';

export interface PlannedStage {
  kind: string;
  name: string;
  settings: unknown;
  needs: string[];
  lines: string[];
  stage: Stage;
}

/** The stages of a recipe in order, each with its name and what it reads. @throws OrchardError owner `user` */
export function planStages(recipe: Recipe): PlannedStage[] {
  const planned: PlannedStage[] = [];
  for (const [index, { kind, settings }] of stageEntries(recipe).entries()) {
    const stage = stages[kind]!;
    const name = stage.nameOf(settings);
    const needs = stage.needs(settings);
    const where = `stages[${index}].${kind}`;
    if (planned.some((other) => other.name === name) || name === 'base' || name === 'blobs') {
      throw userError(where, `${where}: the name ${name} is taken`, 'give it a name of its own');
    }
    if (!/^[a-z0-9][a-z0-9._-]*$/.test(name))
      throw userError(
        where,
        `${where}: ${JSON.stringify(name)} cannot name a folder`,
        'use lower-case letters, digits, dots, dashes',
      );
    for (const need of needs) {
      const before = planned.filter(({ stage: other }) => other.gives.includes(need.result)).map((other) => other.name);
      if (!before.includes(need.stage))
        throw userError(
          where,
          `${where}: reads ${need.result} of stage ${need.stage}, which does not come before it or gives none`,
          `stages before it that give ${need.result}: ${before.join(', ') || 'none'}`,
        );
    }
    planned.push({
      kind,
      name,
      settings,
      needs: needs.map((need) => need.stage),
      lines: stage.plan(settings),
      stage,
    });
  }
  return planned;
}

export interface RunOptions {
  runsDir: string;
  machine: Machine;
  progress: Progress;
  signal: AbortSignal;
  /** Run only the stages of this kind, or the one of this name; the ones before must be finished. */
  only?: { kind?: string; name?: string };
}

/**
 * Runs a recipe, or goes on with it: finished stages are passed over, the first unfinished one continues.
 * @throws OrchardError; whatever was done stays, and the same call goes on from there
 */
export async function runRecipe(recipe: Recipe, options: RunOptions): Promise<Report | null> {
  const runDir = join(options.runsDir, recipe.name);
  const planned = planStages(recipe);
  const chosen = planned.filter(
    ({ kind, name }) =>
      (!options.only?.kind || kind === options.only.kind) && (!options.only?.name || name === options.only.name),
  );
  if (chosen.length === 0)
    throw userError(
      recipe.name,
      `the recipe has no such stage`,
      `its stages: ${planned.map(({ name, kind }) => `${name} (${kind})`).join(', ')}`,
    );
  await using _lock = await lockFolder(runDir);
  await using context = await openContext(recipe, { ...options, runDir });
  await loadSplits(context, chosen);
  await keepRecipe(runDir, { recipe, planned });
  for (const each of chosen) {
    for (const need of each.needs) {
      if (!isReady(stageDir(runDir, need)))
        throw userError(
          each.name,
          `stage ${each.name} reads ${need}, which is not finished`,
          `run it first: orchard run ${recipe.name}`,
        );
    }
    await runStage(context, each);
  }
  return chosen.some(({ stage }) => stage.gives.includes('rows')) ? writeReport(runDir, { recipe, planned }) : null;
}

/** Bad rows stop the run before a teacher is paid, and so does an evaluation on what is trained on. */
async function loadSplits(context: StageContext, chosen: PlannedStage[]): Promise<void> {
  const splits = [...new Set(chosen.flatMap(({ stage }) => stage.split ?? []))];
  const [first = [], second = []] = await Promise.all(splits.map((split) => context.tasks(split)));
  const ids = new Set(first.map(({ id }) => id));
  const shared = second.find(({ id }) => ids.has(id));
  if (shared)
    throw userError(
      shared.id,
      `${shared.id} is in the training tasks and in the held-out ones`,
      'give tasks.train and tasks.test other rows',
    );
}

/** Whether a stage has done anything that other settings would make untrue. */
function hasWork(dir: string): boolean {
  if (isReady(dir) || existsSync(join(dir, 'batches'))) return true;
  const below = existsSync(dir) ? readdirSync(dir, { withFileTypes: true }) : [];
  const folders = [dir, ...below.filter((entry) => entry.isDirectory()).map((entry) => join(dir, entry.name))];
  return folders.some((folder) => (statSync(join(folder, 'verdicts.jsonl'), { throwIfNoEntry: false })?.size ?? 0) > 0);
}

async function runStage(context: StageContext, { name, stage, settings }: PlannedStage): Promise<void> {
  const dir = stageDir(context.runDir, name);
  const planFile = join(dir, 'plan.json');
  // Through JSON, so that it compares with what was read back.
  const plan = JSON.parse(JSON.stringify({ name, settings, seed: context.seed })) as unknown;
  if (existsSync(planFile) && hasWork(dir)) {
    const changed = differences(await readJson(planFile), plan);
    if (changed.length > 0) {
      throw userError(
        name,
        `stage ${name} was started with other settings: ${changed.join('; ')}`,
        'take the old settings, choose another run with --name, or remove the folder of the stage and of those after it',
      );
    }
  } else await writeJson(planFile, plan);
  if (isReady(dir)) {
    context.progress.line(`${name}: done before`);
    return;
  }
  {
    await using _stopwatch = await openStopwatch(dir);
    await stage.run(context, settings);
    context.signal.throwIfAborted();
  }
  await markReady(dir);
}

/** A run folder belongs to one recipe: the parts that all stages share may not change under it. */
async function keepRecipe(
  runDir: string,
  { recipe, planned }: { recipe: Recipe; planned: PlannedStage[] },
): Promise<void> {
  const file = join(runDir, 'recipe.json');
  const plain = JSON.parse(JSON.stringify(recipe)) as Recipe;
  if (existsSync(file) && planned.some(({ name }) => hasWork(stageDir(runDir, name)))) {
    const before = (await readJson(file)) as Recipe;
    // Which stages follow, how many episodes run at a time and what a judge may spend change nothing that was done.
    const shared = ({ stages: _, concurrency: __, limits: { judgeTokens: ___, ...limits }, ...rest }: Recipe) => ({
      ...rest,
      limits,
    });
    const changed = differences(shared(before), shared(plain));
    if (changed.length > 0) {
      throw new OrchardError({
        owner: 'user',
        code: 'recipe_changed',
        id: recipe.name,
        cause: `run ${recipe.name} was started with another recipe: ${changed.join('; ')}`,
        wayOut: 'choose another run with --name, or take the old settings',
      });
    }
  }
  await writeJson(file, plain);
}

/** `path: before -> now` for every leaf that differs. */
function differences(before: unknown, now: unknown, path = ''): string[] {
  if (JSON.stringify(before) === JSON.stringify(now)) return [];
  const isBranch = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null;
  if (isBranch(before) && isBranch(now)) {
    return [...new Set([...Object.keys(before), ...Object.keys(now)])].flatMap((key) =>
      differences(before[key], now[key], path === '' ? key : `${path}.${key}`),
    );
  }
  return [`${path}: ${JSON.stringify(before) ?? 'nothing'} -> ${JSON.stringify(now) ?? 'nothing'}`];
}

/** report.json: the rows of every finished evaluation, in the order of the recipe. */
export async function writeReport(
  runDir: string,
  { recipe, planned }: { recipe: Recipe; planned: PlannedStage[] },
): Promise<Report> {
  const rows: ReportRow[] = [];
  let seconds = 0;
  for (const { stage, name } of planned) {
    const dir = stageDir(runDir, name);
    if (!isReady(dir)) continue;
    seconds += await secondsOf(dir);
    if (stage.gives.includes('rows')) rows.push(...ReportRow.array().parse(await readJson(join(dir, 'rows.json'))));
  }
  const report: Report = { v: 'orchard.report/1', run: recipe.name, rows, seconds };
  await writeJson(join(runDir, 'report.json'), report);
  return report;
}
