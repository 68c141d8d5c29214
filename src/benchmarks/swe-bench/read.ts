import { existsSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { asyncBufferFromFile, parquetReadObjects } from 'hyparquet';
import { userError } from '../../core/errors.ts';
import { readJsonl } from '../../core/jsonl.ts';

const ENDINGS = ['.jsonl', '.json', '.parquet'];

/** The file of a split: `path` itself, or `<split>` with a known ending in the folder `path`. */
function fileOf(path: string, split: string): string {
  if (!existsSync(path))
    throw userError(
      path,
      `there is no data set ${path}`,
      'set tasks.dataset to a file (JSON, JSONL, Parquet) or a folder with one for each split',
    );
  if (!statSync(path).isDirectory()) return path;
  const found = ENDINGS.map((ending) => join(path, `${split}${ending}`)).find(existsSync);
  if (!found)
    throw userError(
      path,
      `${path} has no ${split}${ENDINGS.join(`, ${split}`)}`,
      'name the split as its file is named, with tasks.train or tasks.test; `orchard tasks check --split train` looks at one',
    );
  return found;
}

/** All rows of a split. @throws OrchardError owner `user` */
export async function readRows(path: string, split: string): Promise<{ rows: unknown[]; source: string }> {
  const source = fileOf(path, split);
  try {
    if (source.endsWith('.jsonl')) return { rows: await Array.fromAsync(readJsonl(source)), source };
    if (source.endsWith('.parquet'))
      return { rows: await parquetReadObjects({ file: await asyncBufferFromFile(source) }), source };
    const parsed: unknown = JSON.parse(await readFile(source, 'utf8'));
    if (!Array.isArray(parsed)) throw new Error('expected a list of rows');
    return { rows: parsed, source };
  } catch (error) {
    throw userError(
      source,
      `cannot read ${source}: ${(error as Error).message}`,
      'give a JSON list, JSON lines or a Parquet file',
    );
  }
}
