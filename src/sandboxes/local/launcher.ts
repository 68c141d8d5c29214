import type { Owner } from './workspace.ts';

/** How commands come into a started sandbox. */
export interface Started {
  workdir: string;
  /** Words in front of a command that put it into the sandbox. */
  enter: string[];
  /** Aborted once it has ended, whoever ended it; commands under way end with it. */
  gone: AbortSignal;
  stop(): Promise<void>;
}

export interface LaunchSpec {
  id: string;
  /** The sandbox's own folder, made by `start`. */
  dir: string;
  base: string;
  network: 'none' | 'open';
}

export interface Launcher {
  isolation: 'none' | 'namespace';
  /** null: the driver's own user. */
  owner: Owner | null;
  start(spec: LaunchSpec): Promise<Started>;
}

/** Where the repository is inside every isolated sandbox. */
export const WORKDIR = '/testbed';

/** Folders of this machine that a sandbox sees, read-only. */
export const SHOWN = ['usr', 'bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32', 'etc', 'opt'];

/** A sandbox that has no process of its own between commands. */
export function startedWithout(workdir: string, enter: string[]): Started {
  const ending = new AbortController();
  return { workdir, enter, gone: ending.signal, stop: async () => ending.abort() };
}

/** Words in front of a command that make it the owner's. */
export const asOwner = (owner: Owner | null): string[] =>
  owner ? ['setpriv', `--reuid=${owner.uid}`, `--regid=${owner.gid}`, '--clear-groups'] : [];
