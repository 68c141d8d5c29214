import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { OrchardError, userError } from '../../core/errors.ts';
import { openJsonl, readJsonl } from '../../core/jsonl.ts';
import { sparkline } from '../../core/sparkline.ts';
import type { TrainerLine } from '../../ports/trainer.ts';
import { RlStep } from '../../records/step.ts';
import type { Weights } from '../../records/weights.ts';
import type { StageContext } from '../context.ts';
import { trainerConfig } from '../training.ts';
import { weightsOf } from '../weights.ts';
import type { Config } from './config.ts';
import { type Learner, startLearner, versionFolder } from './learner.ts';
import { trainedOn } from './metrics.ts';
import { holdOut, promptOrder } from './prompts.ts';
import { openRewards } from './rewards.ts';
import { generatedOf, generateStep, isGenerated } from './step.ts';
import { openTeacher } from './teacher.ts';
import { bestOf, openValidation, type Validated } from './validate.ts';

export interface Ended {
  weights: Weights;
  steps: RlStep[];
  /** Why it ended before the last step; null when it did not. */
  stopped: string | null;
  validated: Validated[];
}

/**
 * Steps of reinforcement learning: each samples with the weights of `step − staleness` batches, and becomes a batch
 * that the trainer, at work in the background, trains on and publishes the next weights from. What is in the folder
 * decides where it goes on: generated steps are not generated again, and the trainer keeps its own place.
 */
export async function runLoop(
  context: StageContext,
  {
    dir,
    settings,
    tasks,
    seed,
  }: { dir: string; settings: Config; tasks: Awaited<ReturnType<StageContext['tasks']>>; seed: number },
): Promise<Ended> {
  const { pool, validation } = holdOut(tasks, { count: settings.validate.tasks, seed });
  if (pool.length === 0)
    throw userError(
      settings.name,
      `${settings.name} has ${tasks.length} tasks and holds ${validation.length} out`,
      'hold fewer tasks out with validate.tasks, or give it more',
    );
  const start = await weightsOf(context, settings.from);
  const { distill, temperature } = settings;
  await using rewards = await openRewards(context, { settings, dir });
  await using teacher = distill
    ? await openTeacher(context, { settings: { ...distill, temperature }, dir, policy: start.path })
    : null;
  await using sandboxes = await context.openSandboxes();
  const config = trainerConfig(context, {
    model: start.path,
    batches: join(dir, 'batches'),
    steps: settings.steps,
    epochs: settings.epochs,
    batchRows: 1,
    updates: settings.updates,
    learningRate: settings.learningRate,
    minLearningRate: settings.minLearningRate ?? settings.learningRate,
    schedule: settings.minLearningRate === undefined ? 'constant' : 'cosine',
    warmupSteps: settings.warmupSteps,
    weightDecay: settings.weightDecay,
    betas: [0.9, 0.98],
    checkpointEverySteps: settings.checkpointEvery,
    versionPrefix: settings.name,
    seed,
    waitTimeoutS: 7 * 24 * 3600,
  });
  const view = openView(context, settings);
  await using learner = startLearner(context, { dir, config, onLine: view.trained });
  const weightsAfter = (batches: number): Promise<Weights> =>
    batches === 0 ? Promise.resolve(start) : learner.published(batches);

  let first = 0;
  while (first < settings.steps && isGenerated(dir, first)) first++;
  view.phase('starting');
  const sampledBy = (step: number): number => Math.max(0, step - settings.staleness);
  const record = await openRecord(dir, { settings, learner });
  // What is recorded has been sampled with later weights already, and its own may be gone.
  await using inference = await context.openInference(
    await weightsAfter(Math.max(sampledBy(first), record.steps.length)),
    join(dir, 'inference'),
  );
  if (!inference.capabilities.tokenIds || !inference.capabilities.logprobs)
    throw userError(
      'inference',
      `${inference.baseUrl} gives no token ids or no log-probabilities, which reinforcement learning needs`,
      'use inference.kind torch or vllm',
    );
  const validate = await openValidation(context, { dir, settings, tasks: validation, inference, sandboxes });
  /** When each step of this process began to sample. */
  const began = new Map<number, number>();

  /** Loads the weights of so many batches, and records the steps that are trained by then. */
  const advance = async (batches: number): Promise<string | null> => {
    view.phase(batches > 0 ? 'training' : 'starting');
    const weights = await weightsAfter(batches);
    const asked = performance.now();
    if (inference.version() !== weights.version) await inference.load(weights);
    const loaded = performance.now();
    const loadS = (loaded - asked) / 1000;
    // A step lasts until the next one samples, the last one until it is trained.
    const lapS = (step: number): number | null =>
      began.has(step) ? ((began.get(step + 1) ?? loaded) - began.get(step)!) / 1000 : null;
    view.phase('validating');
    await validate(batches);
    const stopped = await record.upTo(batches, { loadS, lapS, validated: validate.results });
    view.steps(record.steps);
    const keep = new Set([batches, batches + 1, bestOf(validate.results)?.batches ?? 0]);
    await prune(dir, { upTo: batches, keep });
    return stopped;
  };

  let done = first;
  let stopped: string | null = null;
  for (; done < settings.steps; done++) {
    if (settings.episodes !== undefined && (await episodesRun(dir, done)) >= settings.episodes) break;
    stopped = await advance(sampledBy(done));
    if (stopped !== null) break;
    began.set(done, performance.now());
    const plan = {
      step: done,
      dir,
      settings,
      inference,
      sandboxes,
      rewards,
      teacher,
      pool,
      promptAt: promptOrder(pool, seed),
    };
    const made = await generateStep(context, { ...plan, onChange: view.phase });
    if ('reasons' in made) {
      stopped = barren(made.reasons, { settings, step: done });
      break;
    }
  }
  if (done === 0)
    throw new OrchardError({
      owner: 'task',
      code: 'nothing_to_learn',
      id: settings.name,
      cause: stopped!,
      wayOut:
        'choose tasks that the model resolves sometimes (`orchard tasks select`), widen rollout.band, or start from better weights',
    });
  for (let batches = Math.max(sampledBy(done), record.steps.length); batches <= done; batches++)
    stopped = (await advance(batches)) ?? stopped;
  const validated = validate.results;
  const best = bestOf(validated);
  const weights = await weightsAfter(best?.batches ?? done);
  view.end(record.steps, { stopped, best });
  return { weights, steps: record.steps, stopped, validated };
}

const barren = (reasons: Record<string, number>, { settings, step }: { settings: Config; step: number }): string =>
  `step ${step} of ${settings.name} found no group to train on: ${Object.entries(reasons)
    .map(([reason, count]) => `${count} ${reason.replaceAll('_', ' ')}`)
    .join(', ')}`;

async function episodesRun(dir: string, steps: number): Promise<number> {
  let sum = 0;
  for (let step = 0; step < steps; step++) sum += (await generatedOf(dir, step)).episodes.run;
  return sum;
}

/** Old weights are only wanted where something still reads them. */
async function prune(dir: string, { upTo, keep }: { upTo: number; keep: Set<number> }): Promise<void> {
  for (let batches = 1; batches < upTo; batches++) {
    // Its STABLE mark goes with it: the trainer publishes only what its checkpoint has not.
    if (!keep.has(batches)) await rm(join(dir, 'weights', versionFolder(batches)), { recursive: true, force: true });
  }
}

/** steps.jsonl, a line for each step once it is trained; says when a stop rule is met. */
async function openRecord(dir: string, { settings, learner }: { settings: Config; learner: Learner }) {
  const file = join(dir, 'steps.jsonl');
  const steps: RlStep[] = [];
  for await (const line of readJsonl(file, RlStep)) steps.push(line);
  return {
    steps,
    async upTo(
      batches: number,
      { loadS, lapS, validated }: { loadS: number; lapS: (step: number) => number | null; validated: Validated[] },
    ): Promise<string | null> {
      await using writer = await openJsonl(file);
      for (let step = steps.length; step < batches; step++) {
        await learner.published(step + 1);
        const { cursor: _, seconds, ...generated } = await generatedOf(dir, step);
        const trained = await trainedOn(dir, step);
        const phases = { ...seconds, train: trained.seconds!, load: loadS };
        const total = lapS(step) ?? Object.values(phases).reduce((sum, each) => sum + each, 0);
        const check = validated.find((each) => each.batches === step + 1);
        const line: RlStep = {
          v: 'orchard.step/1',
          step,
          ...generated,
          staleness: Math.min(step, settings.staleness),
          mismatch: trained.mismatch!,
          ratio: { p01: trained.ratio_p01!, p50: trained.ratio_p50!, p99: trained.ratio_p99! },
          clipped: trained.clipped!,
          masked: trained.masked ?? 0,
          distill: trained.distill ?? null,
          loss: trained.loss!,
          gradNorm: trained.grad_norm!,
          learningRate: trained.learning_rate!,
          seconds: { ...phases, total },
          waited: { trainer: idle(phases.train, total), sampler: idle(phases.rollout, total) },
          validation: check ? check.resolved / check.total : null,
          endedAt: Date.now(),
        };
        await writer.append(line);
        steps.push(line);
      }
      return stopReason(steps, settings);
    },
  };
}

const idle = (busyS: number, totalS: number): number => Math.min(1, Math.max(0, 1 - busyS / totalS));

function stopReason(steps: RlStep[], { stop, name }: Config): string | null {
  const first = steps[0];
  for (const { step, mismatch, entropy } of steps) {
    if (mismatch > stop.mismatch)
      return `${name} step ${step}: sampler and trainer differ by ${mismatch.toFixed(3)} nats a token, more than stop.mismatch ${stop.mismatch}`;
    if (entropy < stop.entropy * first!.entropy)
      return `${name} step ${step}: the entropy fell to ${entropy.toExponential(1)} from ${first!.entropy.toExponential(1)} nats, below stop.entropy ${stop.entropy}`;
  }
  return null;
}

function openView(context: StageContext, { name, steps: total }: Config) {
  const bar = context.progress.start(name, total, 'steps');
  let words = '';
  let done = 0;
  let at = '';
  const show = (): void => bar.update(done, `${words}${at}`);
  const seconds = (value: number): string => `${value.toFixed(value < 10 ? 1 : 0)}s`;
  return {
    phase(now: string): void {
      at = now;
      show();
    },
    trained({ event, batch, loss }: TrainerLine): void {
      if (event !== 'step' || at !== 'training') return;
      bar.update(done, `${words}trained step ${batch}, loss ${Number(loss).toFixed(3)}`);
    },
    steps(lines: RlStep[]): void {
      done = lines.length;
      const last = lines.at(-1);
      if (!last) return;
      const dropped = Object.values(last.groups.dropped).reduce((sum, count) => sum + count, 0);
      words = `resolve ${last.resolveRate.toFixed(2)} ${sparkline(lines.map(({ resolveRate }) => resolveRate).slice(-12))} · ${last.groups.kept} groups, ${dropped} dropped · rollout ${seconds(last.seconds.rollout)} train ${seconds(last.seconds.train)} · `;
      show();
    },
    end(lines: RlStep[], { stopped, best }: { stopped: string | null; best: Validated | null }): void {
      const rates = lines.map(({ resolveRate }) => resolveRate);
      bar.end(
        `${lines.length} steps, resolve ${rates[0]?.toFixed(2)} → ${rates.at(-1)?.toFixed(2)} ${sparkline(rates)}${best ? ` · best ${versionFolder(best.batches)} with ${best.resolved}/${best.total} of validation` : ''}`,
      );
      if (stopped !== null) context.progress.line(`stopped early: ${stopped}`);
    },
  };
}
