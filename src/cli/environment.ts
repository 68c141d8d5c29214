import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Machine } from '../recipe/open.ts';

/** The only place that reads environment variables: addresses and secrets, never settings of a run. */
export const projectRoot = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

export const recipesDir = join(projectRoot, 'recipes');

export const machine: Machine = {
  python: process.env.ORCHARD_PYTHON ?? join(projectRoot, 'trainer', '.venv', 'bin', 'python'),
  secret: (name) => process.env[name],
  scratchDir: join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'orchard', 'sandboxes'),
};
