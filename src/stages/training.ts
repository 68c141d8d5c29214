import { join, relative } from 'node:path';
import { writeJson } from '../core/folder.ts';
import type { TrainerConfig, TrainerLine } from '../ports/trainer.ts';
import type { Weights } from '../records/weights.ts';
import type { StageContext } from './context.ts';

/** Settings that every training stage leaves to the recipe or has no use for. */
type Given = Omit<
  TrainerConfig,
  | 'v'
  | 'precision'
  | 'microTokens'
  | 'checkpointEverySteps'
  | 'keepCheckpoints'
  | 'waitTimeoutS'
  | 'betas'
  | 'maxGradNorm'
> & {
  betas?: [number, number];
};

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
    config: {
      v: 'orchard.trainer/1',
      betas: [0.9, 0.95],
      maxGradNorm: 1,
      keepCheckpoints: 2,
      waitTimeoutS: 3600,
      ...context.trainerDefaults,
      ...config,
    },
    onLine(line) {
      if (line.event !== 'step') return;
      last = line;
      bar.update(
        Number(line.step) / Number(line.of),
        `step ${line.step}/${line.of} · loss ${number(line.loss, 3)} · ${number(line.tokens_per_s, 0)} tokens/s`,
      );
    },
  });
  await writeJson(join(dir, 'weights.json'), { path: relative(dir, weights.path), version: weights.version });
  bar.end(`loss ${number((last as TrainerLine | null)?.loss, 3)} · ${((Date.now() - started) / 1000).toFixed(0)} s`);
  return weights;
}
