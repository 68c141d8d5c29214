import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** Environment variable that marks every process of one command, also those that left its session. */
export const COOKIE = 'ORCHARD_COMMAND';

/** Between SIGTERM and SIGKILL. */
const GRACE_MS = 300;
const GIVE_UP_MS = 5000;

/** Processes of this machine whose environment carries the cookie. */
function marked(cookie: string): number[] {
  const mark = Buffer.from(`${COOKIE}=${cookie}\0`);
  return readdirSync('/proc').flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    try {
      return readFileSync(`/proc/${name}/environ`).includes(mark) ? [Number(name)] : [];
    } catch {
      return []; // gone, or another user's
    }
  });
}

function signal(pids: number[], name: 'SIGTERM' | 'SIGKILL' | 'SIGSTOP'): void {
  for (const pid of pids) {
    try {
      process.kill(pid, name);
    } catch {
      // It ended by itself.
    }
  }
}

/** Ends every process of a command: SIGTERM, a short grace, then SIGKILL until none is left. */
export async function killMarked(cookie: string): Promise<void> {
  signal(marked(cookie), 'SIGTERM');
  const started = Date.now();
  for (let waitMs = 5; Date.now() - started < GRACE_MS; waitMs *= 2) {
    await sleep(waitMs);
    if (marked(cookie).length === 0) return;
  }
  while (Date.now() - started < GIVE_UP_MS) {
    const left = marked(cookie);
    if (left.length === 0) return;
    // Stopped first: a fork bomb must not grow while it is being ended.
    signal(left, 'SIGSTOP');
    signal(left, 'SIGKILL');
    await sleep(5);
  }
}
