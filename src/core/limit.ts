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
