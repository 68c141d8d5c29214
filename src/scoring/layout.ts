import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { userError } from '../core/errors.ts';
import { sha256 } from '../core/hash.ts';

/**
 * Files of one instance, as the official runner lays them out below `logs/run_evaluation/<run>/<model>/<id>`, and
 * score.json, which is ours.
 */
export interface InstanceFiles {
  dir: string;
  log: string;
  runLog: string;
  patch: string;
  script: string;
  report: string;
  score: string;
}

const NAME_BYTES = 200;

/** Whether a word can be a folder's name: it leads nowhere else. */
export const isFolderName = (word: string): boolean =>
  word !== '' && word !== '.' && word !== '..' && !/[/\\\0]/.test(word) && Buffer.byteLength(word) <= NAME_BYTES;

/** A model's name as the official code writes it; one that is no folder's name becomes its hash. */
export function modelFolder(model: string): string {
  const name = model.replaceAll('/', '__');
  return isFolderName(name) ? name : `model-${sha256(model).slice(0, 12)}`;
}

export function instanceFiles(runDir: string, { model, id }: { model: string; id: string }): InstanceFiles {
  return filesIn(join(runDir, 'logs', 'run_evaluation', basename(runDir), modelFolder(model), id));
}

export const filesIn = (dir: string): InstanceFiles => ({
  dir,
  log: join(dir, 'test_output.txt'),
  runLog: join(dir, 'run_instance.log'),
  patch: join(dir, 'patch.diff'),
  script: join(dir, 'eval.sh'),
  report: join(dir, 'report.json'),
  score: join(dir, 'score.json'),
});

/** Where an instance was found among existing logs. */
export interface FoundLog {
  id: string;
  /** The folder above, which is the model's in the official layout. */
  model: string;
  /** null: the patch did not apply or the tests never ended, so that there is none. */
  log: string | null;
  runLog: string | null;
  patch: string | null;
}

/**
 * Logs below a folder: `<id>/test_output.txt` at any depth, and flat `<id>.log` or `<id>.txt`.
 * @throws OrchardError owner `user` when there is none, or two for one id
 */
export async function findLogs(root: string, ids: Set<string>): Promise<Map<string, FoundLog>> {
  if (!existsSync(root)) throw userError(root, `there is no folder ${root}`, 'check --logs');
  const found = new Map<string, FoundLog>();
  const add = (entry: FoundLog): void => {
    const before = found.get(entry.id);
    if (before && before.model !== entry.model)
      throw userError(
        entry.id,
        `${root} has ${entry.id} of ${before.model} and of ${entry.model}`,
        `name the folder of one of them: --logs ${join(root, entry.model)}`,
      );
    found.set(entry.id, before ? { ...entry, ...before } : entry);
  };
  const visit = async (dir: string): Promise<void> => {
    for (const entry of await readdir(dir, { withFileTypes: true })) {
      const path = join(dir, entry.name);
      if (entry.isDirectory()) {
        const files = filesIn(path);
        const have = (file: string): string | null => (existsSync(file) ? file : null);
        if (ids.has(entry.name) && [files.log, files.runLog, files.report].some(existsSync))
          add({
            id: entry.name,
            model: basename(dir),
            log: have(files.log),
            runLog: have(files.runLog),
            patch: have(files.patch),
          });
        else await visit(path);
      } else if (entry.isFile() && /\.(log|txt)$/.test(entry.name)) {
        const id = entry.name.slice(0, -4);
        if (ids.has(id)) add({ id, model: basename(dir), log: path, runLog: null, patch: null });
      }
    }
  };
  await visit(root);
  if (found.size === 0)
    throw userError(
      root,
      `${root} has no log of any instance of the data set`,
      'logs are <id>/test_output.txt at any depth, or <id>.log',
    );
  return found;
}
