import { existsSync, readdirSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { asyncBufferFromFile, parquetReadObjects } from 'hyparquet';
import { parquetWriteFile } from 'hyparquet-writer';
import { parse as parseYaml } from 'yaml';
import { userError } from '../../core/errors.ts';
import { writeWhole } from '../../core/folder.ts';
import { readForeignJsonl } from '../../core/jsonl.ts';

const ENDINGS = ['.jsonl', '.json', '.parquet'];

/** The file of a split: `path` itself, or `<split>` with a known ending in the folder `path`. */
function fileOf(path: string, split: string): string {
  if (!existsSync(path))
    throw userError(
      path,
      `there is no data set ${path}`,
      'name a file (JSON, JSONL, Parquet), a folder with one for each split, or a task repository',
    );
  if (!statSync(path).isDirectory()) return path;
  if (existsSync(join(path, 'tasks'))) return path;
  const found = ENDINGS.map((ending) => join(path, `${split}${ending}`)).find(existsSync);
  if (!found)
    throw userError(
      path,
      `${path} has no ${split}${ENDINGS.join(`, ${split}`)}`,
      'name the split as its file is named, with tasks.train or tasks.test, or --split',
    );
  return found;
}

/** All rows of a split. @throws OrchardError owner `user` */
export async function readRows(path: string, split: string): Promise<{ rows: unknown[]; source: string }> {
  const source = fileOf(path, split);
  try {
    if (statSync(source).isDirectory()) return { rows: await taskRepository(source, split), source };
    if (source.endsWith('.jsonl')) return { rows: await Array.fromAsync(readForeignJsonl(source)), source };
    if (source.endsWith('.parquet'))
      return { rows: await parquetReadObjects({ file: await asyncBufferFromFile(source) }), source };
    const parsed: unknown = JSON.parse(await readFile(source, 'utf8'));
    if (!Array.isArray(parsed)) throw new Error('expected a list of rows');
    return { rows: parsed, source };
  } catch (error) {
    throw userError(
      source,
      `cannot read ${source}: ${(error as Error).message}`,
      'give a JSON list, JSON lines, a Parquet file or a task repository',
    );
  }
}

/** The first row, to tell what a file holds; null when it is empty. @throws OrchardError owner `user` */
export async function firstRow(path: string, split: string): Promise<unknown> {
  const source = fileOf(path, split);
  if (source.endsWith('.jsonl')) for await (const row of readForeignJsonl(source)) return row;
  if (source.endsWith('.parquet'))
    return (await parquetReadObjects({ file: await asyncBufferFromFile(source), rowEnd: 1 }))[0] ?? null;
  return (await readRows(path, split)).rows[0] ?? null;
}

/**
 * A task repository of SWE-bench 5.x: `tasks/<id>/` with task.yaml, tests.json, problem_statement.md, gold.patch,
 * test.patch and eval.sh. Text is taken byte for byte, so that CRLF in a patch survives.
 */
async function taskRepository(path: string, split: string): Promise<unknown[]> {
  const names = readdirSync(join(path, 'tasks'))
    .filter((name) => existsSync(join(path, 'tasks', name, 'task.yaml')))
    .sort();
  const rows: Record<string, unknown>[] = [];
  for (const name of names) {
    const read = (file: string): Promise<string> => readFile(join(path, 'tasks', name, file), 'utf8');
    const row = parseYaml(await read('task.yaml')) as Record<string, unknown>;
    if (row.split !== undefined && row.split !== split) continue;
    rows.push({
      instance_id: name,
      ...row,
      patch: await read('gold.patch'),
      test_patch: await read('test.patch'),
      eval_script: await read('eval.sh'),
      problem_statement: await read('problem_statement.md'),
      ...(JSON.parse(await read('tests.json')) as object),
    });
  }
  return rows;
}

/**
 * Writes rows by the ending of the file; in Parquet what is no text is JSON.
 * @throws OrchardError owner `user` for another ending
 */
export async function writeRows(file: string, rows: Record<string, unknown>[]): Promise<void> {
  if (file.endsWith('.jsonl')) return writeWhole(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  if (file.endsWith('.json')) return writeWhole(file, `${JSON.stringify(rows, null, 2)}\n`);
  if (!file.endsWith('.parquet'))
    throw userError(file, `${file} ends in none of .jsonl, .json and .parquet`, 'name the file as what it shall be');
  const names = [...new Set(rows.flatMap(Object.keys))];
  const cell = (value: unknown): string | null =>
    value === undefined || value === null ? null : typeof value === 'string' ? value : JSON.stringify(value);
  parquetWriteFile({
    filename: file,
    columnData: names.map((name) => ({ name, data: rows.map((row) => cell(row[name])), type: 'STRING' })),
  });
}
