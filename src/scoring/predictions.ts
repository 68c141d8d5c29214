import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { userError } from '../core/errors.ts';
import { Attempt } from '../records/score.ts';

export interface Predicted {
  id: string;
  model: string;
  /** The patch byte for byte; null and empty are the same to the official code. */
  patch: Buffer;
  attempt: Attempt | null;
  /** A verifier's score. */
  value: number | null;
}

export interface Predictions {
  byId: Map<string, Predicted>;
  /** Ids that occur more than once: the last one counts, as in the official code. */
  duplicates: string[];
}

const Row = z.looseObject({
  instance_id: z.string().min(1),
  model_name_or_path: z.string().default('unnamed'),
  model_patch: z.string().nullish(),
  model_patch_base64: z.base64().optional(),
  attempt: Attempt.optional(),
  value: z.number().optional(),
});

const SHOWN = 10;

/**
 * A `.json` list, a `.json` map by id (whose values may leave the id out), or `.jsonl`.
 * @throws OrchardError owner `user`, naming every malformed entry by its line, place or id
 */
export async function readPredictions(file: string): Promise<Predictions> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    throw userError(file, `cannot read ${file}: ${(error as Error).message}`, 'check the path');
  }
  const problems: string[] = [];
  const byId = new Map<string, Predicted>();
  const duplicates = new Set<string>();
  for (const { where, value } of entriesOf(text, { file, problems })) {
    const parsed = Row.safeParse(value);
    if (!parsed.success) {
      const [issue] = parsed.error.issues;
      problems.push(`${where}: ${issue?.path.join('.') || 'entry'}: ${issue?.message}`);
      continue;
    }
    const { data } = parsed;
    if (byId.has(data.instance_id)) duplicates.add(data.instance_id);
    byId.set(data.instance_id, {
      id: data.instance_id,
      model: data.model_name_or_path,
      patch:
        data.model_patch_base64 === undefined
          ? bytesOf(data.model_patch ?? '')
          : Buffer.from(data.model_patch_base64, 'base64'),
      attempt: data.attempt ?? null,
      value: data.value ?? null,
    });
  }
  if (problems.length > 0)
    throw userError(
      file,
      `${problems.length} malformed predictions in ${file}:\n${problems
        .slice(0, SHOWN)
        .map((problem) => `  ${problem}`)
        .join('\n')}${problems.length > SHOWN ? `\n  and ${problems.length - SHOWN} more` : ''}`,
      'each needs instance_id, model_name_or_path and model_patch; mend them or take them out',
    );
  if (byId.size === 0) throw userError(file, `${file} has no predictions`, 'check the path');
  return { byId, duplicates: [...duplicates].sort() };
}

function* entriesOf(
  text: string,
  { file, problems }: { file: string; problems: string[] },
): Iterable<{ where: string; value: unknown }> {
  if (file.endsWith('.jsonl')) {
    for (const [index, line] of text.split('\n').entries()) {
      if (line.trim() === '') continue;
      try {
        yield { where: `line ${index + 1}`, value: JSON.parse(line) };
      } catch (error) {
        problems.push(`line ${index + 1}: ${(error as Error).message}`);
      }
    }
    return;
  }
  if (!file.endsWith('.json'))
    throw userError(file, `${file} is neither .json nor .jsonl`, 'name the file as what it is');
  let whole: unknown;
  try {
    whole = JSON.parse(text);
  } catch (error) {
    throw userError(file, `${file} is not JSON: ${(error as Error).message}`, 'check that the file is whole');
  }
  if (Array.isArray(whole)) {
    for (const [index, value] of whole.entries()) yield { where: `entry ${index + 1}`, value };
  } else if (typeof whole === 'object' && whole !== null) {
    for (const [id, value] of Object.entries(whole))
      yield {
        where: id,
        value:
          typeof value === 'object' && value !== null && !Array.isArray(value) ? { instance_id: id, ...value } : value,
      };
  } else throw userError(file, `${file} is neither a list nor a map`, 'see docs/scoring.md');
}

/** Python writes bytes that are not UTF-8 as lone surrogates (PEP 383): they become those bytes again. */
function bytesOf(text: string): Buffer {
  if (text.isWellFormed()) return Buffer.from(text);
  const parts = text.split(/(?<![\uD800-\uDBFF])([\uDC80-\uDCFF])/);
  return Buffer.concat(
    parts.map((part, index) => (index % 2 === 1 ? Buffer.from([part.charCodeAt(0) - 0xdc00]) : Buffer.from(part))),
  );
}
