import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Machine } from '../recipe/open.ts';

/** The only place that reads environment variables: addresses and secrets, never settings of a run. */
export const projectRoot = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

export const recipesDir = join(projectRoot, 'recipes');

// Containers often set it, and then each start of the trainer compiles transformers anew, for 15 seconds.
delete process.env.PYTHONDONTWRITEBYTECODE;

/** The official graders' environments. */
export const graderDir = join(projectRoot, 'grader');

export const machine: Machine = {
  python: process.env.ORCHARD_PYTHON ?? join(projectRoot, 'trainer', '.venv', 'bin', 'python'),
  secret: (name) => process.env[name],
  // Root hands its sandboxes to nobody, who could not reach into a home folder.
  scratchDir:
    process.getuid?.() === 0
      ? '/var/cache/orchard'
      : join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'orchard', 'sandboxes'),
};
