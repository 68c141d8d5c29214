import { existsSync } from 'node:fs';
import { chown, mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { execa } from 'execa';
import { OrchardError, userError } from '../../core/errors.ts';
import { sha256 } from '../../core/hash.ts';
import type { Workspace } from '../../records/task.ts';

/** Whoever the sandbox's root is outside: files it shall change must belong to them. */
export interface Owner {
  uid: number;
  gid: number;
}

const GIT = {
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_AUTHOR_NAME: 'orchard',
  GIT_AUTHOR_EMAIL: 'orchard@localhost',
  GIT_COMMITTER_NAME: 'orchard',
  GIT_COMMITTER_EMAIL: 'orchard@localhost',
  GIT_AUTHOR_DATE: '2020-01-01T00:00:00Z',
  GIT_COMMITTER_DATE: '2020-01-01T00:00:00Z',
  PATH: '/usr/local/bin:/usr/bin:/bin',
};

/** Makes git repositories of workspaces, once each; a sandbox works on a copy or an overlay of one. */
export interface Bases {
  /** Folder of a repository with one commit that holds the files. */
  of(workspace: Workspace, id: string): Promise<string>;
}

export function openBases(dir: string, owner: Owner | null): Bases {
  const known = new Map<string, Promise<string>>();
  return {
    of(workspace, id) {
      if (workspace.kind !== 'files') {
        throw userError(
          id,
          `${id} needs the image ${workspace.image}; the local sandbox has no images`,
          'use sandbox.kind kubernetes, or tasks that bring their files',
        );
      }
      const key = sha256(JSON.stringify(Object.entries(workspace.files).sort()));
      const made = known.get(key) ?? make(join(dir, key), { files: workspace.files, id, owner });
      known.set(key, made);
      made.catch(() => known.delete(key)); // the next attempt may find what this one lacked
      return made;
    },
  };
}

async function make(
  dir: string,
  { files, id, owner }: { files: Record<string, string>; id: string; owner: Owner | null },
): Promise<string> {
  if (existsSync(dir)) return dir;
  const partial = `${dir}.${process.pid}.partial`;
  await rm(partial, { recursive: true, force: true });
  await mkdir(partial, { recursive: true });
  for (const [path, text] of Object.entries(files)) {
    const target = resolve(partial, path);
    if (!target.startsWith(`${partial}/`))
      throw userError(id, `${id}: file ${path} lies outside the repository`, 'mend the row');
    await mkdir(dirname(target), { recursive: true });
    await writeFile(target, text);
  }
  const run = await execa(
    'sh',
    ['-c', 'git init -q -b main && git add -A -f && git commit -q --no-verify --allow-empty -m base'],
    { cwd: partial, env: GIT, extendEnv: false, reject: false },
  );
  if (run.exitCode !== 0) {
    throw new OrchardError({
      owner: 'sandbox',
      code: 'workspace',
      id,
      cause: `cannot make the repository of ${id}: ${run.stderr || run.shortMessage}`,
      wayOut: 'run `orchard doctor`',
    });
  }
  if (owner) await give(partial, owner);
  try {
    await rename(partial, dir);
  } catch (error) {
    if (!existsSync(dir)) throw error;
    await rm(partial, { recursive: true, force: true }); // another driver was faster
  }
  return dir;
}

async function give(dir: string, { uid, gid }: Owner): Promise<void> {
  for (const entry of await readdir(dir, { recursive: true })) await chown(join(dir, entry), uid, gid);
  await chown(dir, uid, gid);
}
