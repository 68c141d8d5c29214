import { mkdir, readFile, rm } from 'node:fs/promises';
import type { Instance, RefusedRow } from '../benchmarks/swe-bench/sources.ts';
import { failureOf, OrchardError } from '../core/errors.ts';
import { readJson, writeJson, writeWhole } from '../core/folder.ts';
import { sha256 } from '../core/hash.ts';
import { forEachLimited } from '../core/limit.ts';
import type { Progress } from '../core/progress.ts';
import { retry } from '../core/retry.ts';
import type { SandboxDriver } from '../ports/sandbox.ts';
import { type Profile, Score } from '../records/score.ts';
import type { Graders, Instances } from './instances.ts';
import { type FoundLog, type InstanceFiles, instanceFiles } from './layout.ts';
import { GraderError } from './official.ts';
import type { Predicted, Predictions } from './predictions.ts';
import { runTests } from './runner.ts';
import { gradeLog, NO_VERDICT, takeLog, type Verdict } from './verdict.ts';

export interface ScoringContext {
  /** Folder of this scoring; its name is the run id. */
  runDir: string;
  graders: Graders;
  concurrency: number;
  progress: Progress;
  signal: AbortSignal;
}

export interface RunSettings {
  sandboxes: SandboxDriver;
  /** null: none for rows with files, open for images, as the official containers have it. */
  network: 'none' | 'open' | null;
  memoryMiB: number;
  processes: number;
  /** null: what the row says, or 1,800 s. */
  timeoutMs: number | null;
  /** Adds the newline that a patch lacks at its end; without it git refuses the patch, officially too. */
  repairNewline: boolean;
}

const TRIES = 3;

/** Runs the tests of each prediction in a fresh sandbox and grades them. Done ones are taken as they are. */
export async function evaluate(
  context: ScoringContext,
  { instances, predictions, run }: { instances: Instances; predictions: Predictions; run: RunSettings },
): Promise<Score[]> {
  const repaired = new Set<string>();
  const byId = new Map(predictions.byId);
  for (const [id, predicted] of byId) {
    if (!run.repairNewline || predicted.patch.length === 0 || predicted.patch.at(-1) === 10) continue;
    repaired.add(id);
    byId.set(id, { ...predicted, patch: Buffer.concat([predicted.patch, Buffer.from('\n')]) });
  }
  const timeoutOf = (instance: Instance): number => run.timeoutMs ?? instance.evalTimeoutMs;
  return scoreAll(context, {
    instances,
    predictions: byId,
    reusable: (score, instance) => score.class !== 'timeout' || score.timeoutS === timeoutOf(instance) / 1000,
    async verdict({ instance, profile, predicted: { patch }, files }) {
      const grader = await context.graders.of(profile);
      const script = await grader.script(instance.row);
      const ran = await retry({ tries: TRIES, firstDelayMs: 1000, signal: context.signal }, () =>
        runTests(instance, {
          ...run,
          profile,
          patch,
          script,
          files,
          timeoutMs: timeoutOf(instance),
          network: networkOf(instance, run),
          signal: context.signal,
        }),
      );
      const verdict: Verdict =
        ran.applied === null
          ? { ...NO_VERDICT, class: 'not_applied' }
          : await gradeLog(instance, { files, patch, exitCode: ran.exitCode, grader });
      const prepared = repaired.has(instance.id)
        ? [...verdict.prepared, 'a newline was added at the end of the patch']
        : verdict.prepared;
      return { ...verdict, prepared, applied: ran.applied, timeoutS: timeoutOf(instance) / 1000 };
    },
  });
}

export const networkOf = (instance: Instance, { network }: Pick<RunSettings, 'network'>): 'none' | 'open' =>
  network ?? (instance.workspace?.kind === 'files' ? 'none' : 'open');

/** Grades logs that are there already. An instance without a log has no verdict, unless its patch is known to be empty. */
export async function gradeLogs(
  context: ScoringContext,
  options: { instances: Instances; logs: Map<string, FoundLog>; predictions: Predictions | null },
): Promise<Score[]> {
  const predictions = new Map(options.predictions?.byId);
  for (const { id, model, patch } of options.logs.values()) {
    const known = predictions.get(id);
    if (patch !== null)
      predictions.set(id, { id, model, attempt: null, value: null, ...known, patch: await readFile(patch) });
    else if (!known) predictions.set(id, { id, model, patch: UNKNOWN, attempt: null, value: null });
  }
  return scoreAll(context, {
    instances: options.instances,
    predictions,
    reusable: () => false, // the logs may have changed, and grading is quick
    async verdict({ instance, profile, predicted, files }) {
      const found = options.logs.get(instance.id);
      if (!found) throw noLog(instance.id);
      const patch = predicted.patch === UNKNOWN ? null : predicted.patch;
      await mkdir(files.dir, { recursive: true });
      if (found.runLog !== null) await takeLog(found.runLog, files.runLog);
      if (patch !== null) await writeWhole(files.patch, patch);
      if (found.log === null) {
        const said = found.runLog === null ? '' : await readFile(found.runLog, 'utf8');
        if (said.includes('>>>>> Patch Apply Failed')) return { ...NO_VERDICT, class: 'not_applied' };
        if (/timed out|Timeout error/i.test(said)) return { ...NO_VERDICT, class: 'timeout' };
        throw noLog(instance.id);
      }
      const taken = await takeLog(found.log, files.log);
      const grader = await context.graders.of(profile);
      const verdict = await gradeLog(instance, { files, patch, exitCode: null, grader });
      return { ...verdict, prepared: [...taken, ...verdict.prepared] };
    },
  });
}

/** Stands for a patch that nobody kept: neither empty nor known. */
const UNKNOWN = Buffer.from('unknown');

const noLog = (id: string): OrchardError =>
  new OrchardError({
    owner: 'task',
    code: 'no_log',
    id,
    cause: `${id} has no log of its tests`,
    wayOut: 'run its tests: orchard eval swebench --predictions FILE --dataset FILE',
  });

interface Work {
  instance: Instance;
  profile: Profile;
  predicted: Predicted;
  files: InstanceFiles;
}

interface Method {
  /** Whether a score with the same key stands. */
  reusable(score: Score, instance: Instance): boolean;
  /** Of a prediction with a patch. */
  verdict(work: Work): Promise<Verdict & Partial<Score>>;
}

/** One score for each row, in the order of the data set. */
async function scoreAll(
  context: ScoringContext,
  { instances, predictions, ...method }: { instances: Instances; predictions: Map<string, Predicted> } & Method,
): Promise<Score[]> {
  const scores = new Map<string, Score>();
  const bar = context.progress.start('swebench', instances.ready.length, 'instances');
  let fatal: unknown = null;
  const counts = { resolved: 0, unresolved: 0, failed: 0 };
  const tell = (): void =>
    bar.update(
      scores.size,
      `${counts.resolved} resolved, ${counts.unresolved} not, ${counts.failed} without a verdict`,
    );
  await forEachLimited(instances.ready, context, async ({ instance, profile }) => {
    const score = await scoreOne(context, { instance, profile, predicted: predictions.get(instance.id), ...method });
    scores.set(instance.id, score);
    if (score.resolved) counts.resolved++;
    else if (score.class === 'infrastructure') counts.failed++;
    else counts.unresolved++;
    tell();
  }).catch((error: unknown) => {
    fatal = error;
  });
  bar.end(`${counts.resolved} resolved, ${counts.unresolved} not, ${counts.failed} without a verdict`);
  if (fatal !== null) throw fatal;
  context.signal.throwIfAborted();
  const ready = instances.ready.map(({ instance }) => scores.get(instance.id)!);
  return [...ready, ...instances.refused.map((row) => refusedScore(row, predictions.get(row.id)))];
}

async function scoreOne(
  context: ScoringContext,
  {
    instance,
    profile,
    predicted,
    reusable,
    verdict,
  }: { instance: Instance; profile: Profile; predicted: Predicted | undefined } & Method,
): Promise<Score> {
  const started = performance.now();
  const score = (rest: Verdict & Partial<Score>): Score => ({
    v: 'orchard.score/1',
    instance: instance.id,
    model: predicted?.model ?? '',
    profile,
    key: {
      row: instance.rowSha256,
      patch: predicted ? sha256(predicted.patch) : '',
      profile,
      image: instance.workspace?.kind === 'image' ? instance.workspace.image : null,
    },
    applied: null,
    failure: null,
    timeoutS: null,
    seconds: (performance.now() - started) / 1000,
    attempt: predicted?.attempt ?? null,
    value: predicted?.value ?? null,
    repo: instance.repo,
    year: instance.createdAt?.slice(0, 4) ?? null,
    difficulty: instance.difficulty,
    language: instance.language,
    ...rest,
  });
  const without = (kind: Verdict['class']): Score => score({ ...NO_VERDICT, class: kind });
  if (!predicted) return without('no_prediction');
  if (predicted.patch.length === 0) return without(predicted.attempt?.end === 'died' ? 'agent_died' : 'empty_patch');
  const files = instanceFiles(context.runDir, { model: predicted.model, id: instance.id });
  const known = await readScore(files.score);
  const wanted = without('infrastructure').key;
  if (known && JSON.stringify(known.key) === JSON.stringify(wanted) && reusable(known, instance)) return known;
  try {
    await rm(files.report, { force: true });
    const done = score(await verdict({ instance, profile, predicted, files }));
    await writeJson(files.score, done);
    return done;
  } catch (error) {
    if (context.signal.aborted || (error as { owner?: string }).owner === 'user') throw error;
    const failure = failureOf(error, {
      owner: error instanceof GraderError ? 'reward' : 'sandbox',
      code: error instanceof GraderError ? 'official_grader' : 'scoring',
      id: instance.id,
      wayOut: 'run the same command again: what is done stays, and this one is repeated',
    });
    return { ...without('infrastructure'), failure };
  }
}

/** A score that was finished; anything else counts as not there. */
async function readScore(file: string): Promise<Score | null> {
  const parsed = Score.safeParse(await readJson(file).catch(() => null));
  return parsed.success ? parsed.data : null;
}

function refusedScore({ id, field, cause }: RefusedRow, predicted: Predicted | undefined): Score {
  return {
    v: 'orchard.score/1',
    instance: id,
    model: predicted?.model ?? '',
    profile: '5.0',
    key: { row: '', patch: predicted ? sha256(predicted.patch) : '', profile: '5.0', image: null },
    ...NO_VERDICT,
    class: 'refused',
    applied: null,
    failure: {
      owner: 'task',
      code: 'row',
      id,
      cause: `${field}: ${cause}`,
      wayOut: 'mend the row, or name the profile that fits it with --profile',
    },
    seconds: 0,
    timeoutS: null,
    attempt: predicted?.attempt ?? null,
    value: null,
    repo: '',
    year: null,
    difficulty: null,
    language: null,
  };
}
