import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { userError } from './errors.ts';

/** Writes a whole file or nothing: a reader never sees half of it, and a kill leaves the old one. */
export async function writeWhole(path: string, content: string | Buffer): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  const temporary = `${path}.${process.pid}.${randomBytes(4).toString('hex')}.tmp`;
  try {
    await writeFile(temporary, content);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

export async function writeJson(path: string, value: unknown): Promise<void> {
  await writeWhole(path, `${JSON.stringify(value, null, 2)}\n`);
}

/** @throws OrchardError owner `user` when the file is missing or not JSON */
export async function readJson(path: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(path, 'utf8'));
  } catch (error) {
    throw userError(
      path,
      `cannot read ${path}: ${(error as Error).message}`,
      'check that the path is right and the file is whole',
    );
  }
}

/** READY is written last: a folder without it is unfinished and will be continued. */
export const isReady = (dir: string): boolean => existsSync(join(dir, 'READY'));

export async function markReady(dir: string): Promise<void> {
  await writeWhole(join(dir, 'READY'), '');
}
