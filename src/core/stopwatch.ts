import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { readJson, writeJson } from './folder.ts';

/** Seconds between notes, which is what a kill may lose. */
const NOTE_MS = 5000;

/** Seconds that work in a folder has taken, over all the times it was begun. */
export async function secondsOf(dir: string): Promise<number> {
  const file = join(dir, 'time.json');
  return existsSync(file) ? ((await readJson(file)) as { seconds: number }).seconds : 0;
}

/** Goes on counting in `time.json` of a folder; disposing it stops the count. */
export async function openStopwatch(dir: string): Promise<AsyncDisposable> {
  await mkdir(dir, { recursive: true });
  const before = await secondsOf(dir);
  const started = Date.now();
  const note = (): Promise<void> =>
    writeJson(join(dir, 'time.json'), { seconds: before + (Date.now() - started) / 1000 });
  let last = Promise.resolve();
  const timer = setInterval(() => {
    last = last.then(note).catch(() => {}); // the last note counts, and its failure is told
  }, NOTE_MS);
  timer.unref();
  return {
    async [Symbol.asyncDispose]() {
      clearInterval(timer);
      await last;
      await note();
    },
  };
}
