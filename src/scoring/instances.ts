import { profileOf, toOfficial } from '../benchmarks/swe-bench/official.ts';
import { readRows } from '../benchmarks/swe-bench/read.ts';
import {
  type Instance,
  isRefused,
  OTHER_RULES,
  type RefusedRow,
  readInstance,
} from '../benchmarks/swe-bench/sources.ts';
import { userError } from '../core/errors.ts';
import type { Profile } from '../records/score.ts';
import { isFolderName } from './layout.ts';
import { type Grader, openGrader } from './official.ts';

/** What is scored: instances with their profile, and the rows that cannot be graded. */
export interface Instances {
  source: string;
  ready: { instance: Instance; profile: Profile }[];
  refused: RefusedRow[];
}

export interface Graders extends AsyncDisposable {
  of(profile: Profile): Promise<Grader>;
}

/** Graders are started when the first row needs them, and live as long as the command. */
export function openGraders(options: { dir: string; workers: number }): Graders {
  const open = new Map<Profile, Promise<Grader>>();
  return {
    of(profile) {
      const known = open.get(profile) ?? openGrader(profile, options);
      open.set(profile, known);
      return known;
    },
    async [Symbol.asyncDispose]() {
      for (const grader of open.values()) await (await grader.catch(() => null))?.[Symbol.asyncDispose]();
    },
  };
}

/**
 * The rows of a data set that an official grader can grade. A row that none can is named with its field, and the rest
 * goes on.
 * @throws OrchardError owner `user` when the data set cannot be read, or nothing in it can be graded
 */
export async function readInstances(
  dataset: string,
  options: { split: string; ids: string[] | null; profile: Profile | null; graders: Graders },
): Promise<Instances> {
  const { rows, source } = await readRows(dataset, options.split);
  const wanted = options.ids && new Set(options.ids);
  const refused: RefusedRow[] = [];
  const ready: Instances['ready'] = [];
  const seen = new Set<string>();
  for (const [index, row] of rows.entries()) {
    const read = readInstance(row, { index });
    if (wanted && !wanted.has(read.id)) continue;
    const refusal = isRefused(read)
      ? read
      : seen.has(read.id)
        ? { id: read.id, field: 'instance_id', cause: 'occurs twice' }
        : await refusalOf(read, options);
    seen.add(read.id);
    if (refusal !== null) refused.push(refusal);
    else if (!isRefused(read)) ready.push({ instance: toOfficial(read), profile: options.profile ?? profileOf(read) });
  }
  const missing = [...(wanted ?? [])].filter((id) => !seen.has(id));
  if (missing.length > 0)
    throw userError(missing[0]!, `${source} has no ${missing.slice(0, 5).join(', ')}`, 'check the ids and the split');
  if (ready.length === 0)
    throw userError(
      source,
      rows.length === 0
        ? `${source} has no rows`
        : `none of the ${refused.length} rows of ${source} can be graded; ${describe(refused[0]!)}`,
      'see `orchard data inspect`',
    );
  return { source, ready, refused };
}

export const describe = ({ id, field, cause }: RefusedRow): string => `${id}: ${field}: ${cause}`;

async function refusalOf(
  instance: Instance,
  { profile, graders }: { profile: Profile | null; graders: Graders },
): Promise<RefusedRow | null> {
  const refuse = (field: string, cause: string): RefusedRow => ({ id: instance.id, field, cause });
  if (!isFolderName(instance.id)) return refuse('instance_id', 'cannot name a folder');
  const rule = OTHER_RULES[instance.source];
  if (rule) return refuse('source', `${instance.source}: ${rule}`);
  const grader = await graders.of(profile ?? profileOf(instance));
  const unknown = grader.unknown(toOfficial(instance).row);
  return unknown && refuse(unknown.field, unknown.cause);
}
