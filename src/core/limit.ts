/**
 * Runs `work` over `items`, at most `concurrency` at a time, in order of the items. The first error stops new work,
 * waits for what runs, and is thrown. An aborted signal only stops new work.
 */
export async function forEachLimited<T>(
  items: Iterable<T>,
  options: { concurrency: number; signal: AbortSignal },
  work: (item: T) => Promise<void>,
): Promise<void> {
  const queue = items[Symbol.iterator]();
  let failed: { error: unknown } | null = null;
  const worker = async (): Promise<void> => {
    while (failed === null && !options.signal.aborted) {
      const next = queue.next();
      if (next.done) return;
      try {
        await work(next.value);
      } catch (error) {
        failed ??= { error };
      }
    }
  };
  await Promise.all(Array.from({ length: options.concurrency }, worker));
  if (failed !== null) throw (failed as { error: unknown }).error;
}

/** Results in the order of the items, with up to `concurrency` at work; the first failure ends it once those are done. */
export async function* mapInOrder<T, R>(
  items: AsyncIterable<T>,
  { concurrency }: { concurrency: number },
  work: (item: T) => Promise<R>,
): AsyncIterable<R> {
  const running: Promise<R>[] = [];
  try {
    for await (const item of items) {
      const one = work(item);
      one.catch(() => {}); // heard of in its turn
      running.push(one);
      if (running.length >= concurrency) yield await running.shift()!;
    }
    while (running.length > 0) yield await running.shift()!;
  } finally {
    await Promise.allSettled(running);
  }
}

/** At most `concurrency` pieces of work at a time, whoever brings them; those that wait go in the order they came. */
export function openGate(concurrency: number): <T>(work: () => Promise<T>) => Promise<T> {
  let free = concurrency;
  const waiting: (() => void)[] = [];
  return async (work) => {
    if (free > 0) free--;
    else await new Promise<void>((enter) => waiting.push(enter));
    try {
      return await work();
    } finally {
      const next = waiting.shift();
      if (next) next();
      else free++;
    }
  };
}
