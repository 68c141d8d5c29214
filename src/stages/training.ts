import { join, relative } from 'node:path';
import { writeJson } from '../core/folder.ts';
import type { TrainerConfig, TrainerLine } from '../ports/trainer.ts';
import type { Weights } from '../records/weights.ts';
import type { StageContext } from './context.ts';

/** What most trainings have in common; a stage gives the rest, and what it wants otherwise. */
const COMMON = {
  v: 'orchard.trainer/1',
  task: 'policy',
  updates: null,
  onnx: false,
  trainedTokens: null,
  schedule: 'cosine',
  betas: [0.9, 0.95],
  maxGradNorm: 1,
  keepCheckpoints: 2,
  publishEvery: 1,
  waitTimeoutS: 3600,
} satisfies Partial<TrainerConfig>;

type Given = Partial<TrainerConfig> & Omit<TrainerConfig, keyof typeof COMMON | keyof StageContext['trainerDefaults']>;

export const trainerConfig = (context: StageContext, given: Given): TrainerConfig => ({
  ...COMMON,
  ...context.trainerDefaults,
  ...given,
});

/**
 * Trains in `dir` with a bar, and keeps which weights came out. Continues a job that was interrupted.
 * @throws OrchardError of the trainer
 */
export async function trainWithBar(
  context: StageContext,
  { dir, label, config }: { dir: string; label: string; config: Given },
): Promise<Weights> {
  const started = Date.now();
  const bar = context.progress.start(label, 1, 'steps');
  let last: TrainerLine | null = null;
  const number = (value: unknown, digits: number): string => (typeof value === 'number' ? value.toFixed(digits) : '?');
  const weights = await context.trainer.train({
    dir,
    signal: context.signal,
    config: trainerConfig(context, config),
    onLine(line) {
      if (line.event !== 'step') return;
      last = line;
      bar.update(
        Number(line.step) / Number(line.of),
        `step ${line.step}/${line.of} · loss ${number(line.loss, 3)} · ${number(line.tokens_per_s, 0)} tokens/s`,
      );
    },
  });
  await keepWeights(dir, weights);
  bar.end(`loss ${number((last as TrainerLine | null)?.loss, 3)} · ${((Date.now() - started) / 1000).toFixed(0)} s`);
  return weights;
}

/** weights.json: what a training stage came to. Relative, so that a run folder can be moved. */
export const keepWeights = (dir: string, { path, version }: Weights): Promise<void> =>
  writeJson(join(dir, 'weights.json'), { path: relative(dir, path), version });
