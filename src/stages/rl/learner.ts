import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { OrchardError } from '../../core/errors.ts';
import type { TrainerConfig, TrainerLine } from '../../ports/trainer.ts';
import type { Weights } from '../../records/weights.ts';
import type { StageContext } from '../context.ts';

/** The trainer of a stage, at work in the background on whatever batch folder is READY next. */
export interface Learner extends AsyncDisposable {
  /**
   * Weights after this many batches, once they are published.
   * @throws OrchardError of the trainer when it ended without them
   */
  published(batches: number): Promise<Weights>;
}

/** A trainer that dies more often than this does not get better by starting it again. */
const MAX_RESTARTS = 3;
const POLL_MS = 50;

export const versionFolder = (batches: number): string => `v_${String(batches).padStart(6, '0')}`;

/** Starts the trainer, or lets it go on from its last checkpoint. Disposing it stops it with a checkpoint. */
export function startLearner(
  context: StageContext,
  { dir, config, onLine }: { dir: string; config: TrainerConfig; onLine: (line: TrainerLine) => void },
): Learner {
  const stop = new AbortController();
  const signal = AbortSignal.any([context.signal, stop.signal]);
  let failure: { error: unknown } | null = null;
  let finished = false;
  const work = async (): Promise<void> => {
    for (let restarts = 0; ; restarts++) {
      try {
        await context.trainer.train({ dir, config, signal, onLine });
        finished = true;
        return;
      } catch (error) {
        if (signal.aborted || restarts === MAX_RESTARTS || (error as OrchardError).owner !== 'trainer') throw error;
        context.progress.line(`${(error as Error).message}; started again`);
      }
    }
  };
  const running = work().catch((error: unknown) => {
    failure = { error };
  });
  return {
    async published(batches) {
      const path = join(dir, 'weights', versionFolder(batches));
      while (!existsSync(join(path, 'STABLE'))) {
        context.signal.throwIfAborted();
        if (failure !== null) throw (failure as { error: unknown }).error;
        if (finished && !existsSync(join(path, 'STABLE')))
          throw new OrchardError({
            owner: 'trainer',
            code: 'not_published',
            id: path,
            cause: `the trainer has ended, and ${path} is not there`,
            wayOut: 'something else has removed it; start the stage anew in another run with --name',
          });
        await sleep(POLL_MS);
      }
      return { path, version: `${config.versionPrefix}@${versionFolder(batches)}` };
    },
    async [Symbol.asyncDispose]() {
      stop.abort();
      await running;
    },
  };
}
