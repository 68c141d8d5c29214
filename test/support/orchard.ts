import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const root = join(import.meta.dirname, '../..');
export const recipesDir = join(root, 'recipes');

export interface Ended {
  /** Exit code, or the signal that ended it. */
  code: number | string;
  stdout: string;
  stderr: string;
}

export interface Running {
  pid: number;
  ended: Promise<Ended>;
  /** Standard error so far. */
  said(): string;
  signal(name: NodeJS.Signals): void;
}

export interface Folder {
  dir: string;
  runs: string;
  /** Writes a recipe that extends tiny. */
  recipe(name: string, yaml: string): string;
  start(args: string[], env?: Record<string, string>): Running;
  run(args: string[], env?: Record<string, string>): Promise<Ended>;
  report(run: string): { rows: Record<string, unknown>[]; seconds: number };
  /** Lines of a JSONL file of a run; a torn last one is left out. */
  lines(path: string): Record<string, unknown>[];
}

/** A folder for runs, with the real command line. */
export function folder(): Folder {
  const dir = mkdtempSync(join(tmpdir(), 'orchard-e2e-'));
  const runs = join(dir, 'runs');
  const start = (args: string[], env: Record<string, string> = {}): Running => {
    const child = spawn(process.execPath, [join(root, 'bin/orchard.js'), ...args], {
      cwd: dir,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (chunk) => (stdout += chunk));
    child.stderr.on('data', (chunk) => (stderr += chunk));
    const ended = new Promise<Ended>((resolve) =>
      child.once('close', (code, signal) => resolve({ code: code ?? signal ?? 'unknown', stdout, stderr })),
    );
    return { pid: child.pid!, ended, said: () => stderr, signal: (name) => child.kill(name) };
  };
  return {
    dir,
    runs,
    start,
    recipe(name, yaml) {
      const file = join(dir, `${name}.yaml`);
      writeFileSync(file, `extends: ${join(recipesDir, 'tiny.yaml')}\nname: ${name}\n${yaml}`);
      return file;
    },
    run: (args, env) => start(args, env).ended,
    report: (run) => JSON.parse(readFileSync(join(runs, run, 'report.json'), 'utf8')),
    lines(path) {
      const file = join(runs, path);
      if (!existsSync(file)) return [];
      return readFileSync(file, 'utf8')
        .split('\n')
        .slice(0, -1)
        .map((line) => JSON.parse(line) as Record<string, unknown>);
    },
  };
}

/** Every process below one, with its command line. */
export function descendants(pid: number): { pid: number; command: string }[] {
  const found: { pid: number; command: string }[] = [];
  const visit = (at: number): void => {
    let children: string;
    try {
      children = readFileSync(`/proc/${at}/task/${at}/children`, 'utf8');
    } catch {
      return; // gone meanwhile
    }
    for (const child of children.trim().split(' ').filter(Boolean).map(Number)) {
      try {
        found.push({
          pid: child,
          command: readFileSync(`/proc/${child}/cmdline`, 'utf8').replaceAll('\0', ' ').trim(),
        });
      } catch {
        continue;
      }
      visit(child);
    }
  };
  visit(pid);
  return found;
}

/** Waits until something holds. @throws Error naming it when it does not within the time */
export async function until(what: string, holds: () => boolean, timeoutMs = 30_000): Promise<void> {
  const deadline = Date.now() + timeoutMs;
  while (!holds()) {
    if (Date.now() > deadline) throw new Error(`not within ${timeoutMs} ms: ${what}`);
    await sleep(20);
  }
}

export const alive = (pid: number): boolean => {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.[0] !== 'Z';
  } catch {
    return false;
  }
};
