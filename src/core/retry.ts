import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Calls `work` until it succeeds, at most `tries` times, waiting twice as long each time (half of it random, so that
 * many callers do not return at once). Throws the last error, or the abort reason.
 */
export async function retry<T>(
  options: { tries: number; firstDelayMs: number; signal: AbortSignal },
  work: () => Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      options.signal.throwIfAborted();
      if (attempt >= options.tries) throw error;
      const delayMs = options.firstDelayMs * 2 ** (attempt - 1);
      await sleep(delayMs * (0.5 + Math.random() / 2), undefined, { signal: options.signal });
    }
  }
}
