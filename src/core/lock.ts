import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { link, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { OrchardError } from './errors.ts';

/** Start time of a process in clock ticks (proc(5), field 22): tells a reused pid from the process that took the lock. */
function startTicks(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? null;
  } catch {
    return null; // no such process
  }
}

export interface LockHolder {
  pid: number;
  ticks: string | null;
  host: string;
}

/** Who drives this run folder now, or null. A holder that died does not count. */
export async function lockHolder(dir: string, file = join(dir, 'lock')): Promise<LockHolder | null> {
  try {
    const holder = JSON.parse(await readFile(file, 'utf8')) as LockHolder;
    if (holder.host !== hostname()) return holder;
    return startTicks(holder.pid) === holder.ticks && holder.ticks !== null ? holder : null;
  } catch {
    return null; // no lock, or a torn one: nobody holds it
  }
}

/**
 * Takes the run folder for this process; disposing gives it back.
 * @throws OrchardError owner `user`, code `run_busy`, when another living driver has it
 */
export async function lockFolder(dir: string): Promise<AsyncDisposable> {
  await mkdir(dir, { recursive: true });
  const path = join(dir, 'lock');
  const mine = join(dir, `lock.${process.pid}.${randomBytes(4).toString('hex')}`);
  await writeFile(mine, JSON.stringify({ pid: process.pid, ticks: startTicks(process.pid), host: hostname() }));
  try {
    for (let attempt = 0; ; attempt++) {
      try {
        await link(mine, path); // fails when it exists: the atomic part
        return { [Symbol.asyncDispose]: () => rm(path, { force: true }) };
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
        const holder = await lockHolder(dir);
        if (holder !== null || attempt > 3) {
          throw new OrchardError({
            owner: 'user',
            code: 'run_busy',
            id: dir,
            cause: `${dir} is driven by process ${holder?.pid ?? 'unknown'} on ${holder?.host ?? 'this host'}`,
            wayOut: `wait for it, stop it with Ctrl-C, or choose another run with --name; if it is surely gone, remove ${path}`,
          });
        }
        // Moved aside first: another starter may have put its own there since we looked.
        await rename(path, `${mine}.stale`).catch(() => {});
        const moved = await lockHolder(dir, `${mine}.stale`);
        if (moved !== null) await link(`${mine}.stale`, path).catch(() => {});
        await rm(`${mine}.stale`, { force: true });
      }
    }
  } finally {
    await rm(mine, { force: true });
  }
}
