import { basename } from 'node:path';
import { bestAtK, passAtK, passHatK } from '../algo/select.ts';
import { bootstrapMean, mcnemar, mcnemarMidP } from '../algo/stats.ts';
import { userError } from '../core/errors.ts';
import type { Score } from '../records/score.ts';

export interface ScoredRun {
  name: string;
  scores: Score[];
}

export interface Comparison {
  a: { name: string; resolved: number };
  b: { name: string; resolved: number };
  total: number;
  /** Instances left out, because one of the runs has no verdict on them. */
  withoutVerdict: number;
  /** Share resolved by b less that by a, with its paired bootstrap 95 % interval. */
  difference: number;
  interval: [number, number];
  gained: string[];
  lost: string[];
  mcnemar: number;
  midP: number;
}

const NO_VERDICT = new Set(['infrastructure', 'refused']);

/**
 * Two scorings of the same instances, paired.
 * @throws OrchardError owner `user` when ids, rows or profiles differ, unless `force`
 */
export function compareRuns(a: ScoredRun, b: ScoredRun, { force = false } = {}): Comparison {
  const before = new Map(a.scores.map((score) => [score.instance, score]));
  const after = new Map(b.scores.map((score) => [score.instance, score]));
  const differences = differencesOf(before, after);
  if (differences.length > 0 && !force)
    throw userError(
      `${a.name} ${b.name}`,
      `${a.name} and ${b.name} are not of the same thing: ${differences.join('; ')}`,
      'compare runs of one data set and profile, or look only at what they share with --force',
    );
  const values: number[] = [];
  const gained: string[] = [];
  const lost: string[] = [];
  let resolved = { a: 0, b: 0 };
  let withoutVerdict = 0;
  for (const [id, first] of before) {
    const second = after.get(id);
    if (!second) continue;
    if (NO_VERDICT.has(first.class) || NO_VERDICT.has(second.class)) {
      withoutVerdict++;
      continue;
    }
    values.push(Number(second.resolved) - Number(first.resolved));
    resolved = { a: resolved.a + Number(first.resolved), b: resolved.b + Number(second.resolved) };
    if (second.resolved && !first.resolved) gained.push(id);
    if (first.resolved && !second.resolved) lost.push(id);
  }
  if (values.length === 0)
    throw userError(`${a.name} ${b.name}`, 'they share no instance with a verdict', 'compare runs of one data set');
  return {
    a: { name: a.name, resolved: resolved.a },
    b: { name: b.name, resolved: resolved.b },
    total: values.length,
    withoutVerdict,
    difference: (resolved.b - resolved.a) / values.length,
    interval: bootstrapMean(values),
    gained: gained.sort(),
    lost: lost.sort(),
    mcnemar: mcnemar(gained.length, lost.length),
    midP: mcnemarMidP(gained.length, lost.length),
  };
}

function differencesOf(before: Map<string, Score>, after: Map<string, Score>): string[] {
  const found: string[] = [];
  const only = (one: Map<string, Score>, other: Map<string, Score>): number =>
    [...one.keys()].filter((id) => !other.has(id)).length;
  const [left, right] = [only(before, after), only(after, before)];
  if (left + right > 0) found.push(`${left} instances only in the first, ${right} only in the second`);
  const shared = [...before].flatMap(([id, score]) => (after.has(id) ? [[score, after.get(id)!] as const] : []));
  const rows = shared.filter(([one, other]) => one.key.row !== other.key.row).length;
  if (rows > 0) found.push(`${rows} rows differ: another revision of the data set`);
  const profiles = shared.find(([one, other]) => one.profile !== other.profile);
  if (profiles) found.push(`profile ${profiles[0].profile} against ${profiles[1].profile}`);
  return found;
}

export interface ManyRuns {
  runs: { name: string; resolved: number; total: number }[];
  mean: number;
  /** Standard deviation over the runs, n − 1. */
  sd: number;
  /** 95 % interval of the mean rate: bootstrap over instances, runs nested in them. */
  interval: [number, number];
  /** Instances on which every run has a verdict. */
  instances: number;
  k: { k: number; mean: number; pass: number; passHat: number; best: number | null; tied: number }[];
}

/** Several attempts at the same instances: mean and spread, pass@k, pass^k, and best@k where predictions have values. */
export function manyRuns(runs: ScoredRun[], { force = false } = {}): ManyRuns {
  for (const run of runs.slice(1)) compareRuns(runs[0]!, run, { force });
  const byInstance = Map.groupBy(
    runs.flatMap(({ scores }) => scores),
    ({ instance }) => instance,
  );
  const groups = [...byInstance.values()].filter(
    (group) => group.length === runs.length && group.every((score) => !NO_VERDICT.has(score.class)),
  );
  const rates = runs.map(({ scores }) => scores.filter(({ resolved }) => resolved).length / scores.length);
  const mean = average(rates);
  const share = groups.map((group) => average(group.map(({ resolved }) => Number(resolved))));
  return {
    runs: runs.map(({ name, scores }) => ({
      name: basename(name),
      resolved: scores.filter(({ resolved }) => resolved).length,
      total: scores.length,
    })),
    mean,
    sd: rates.length > 1 ? Math.sqrt(rates.reduce((sum, rate) => sum + (rate - mean) ** 2, 0) / (rates.length - 1)) : 0,
    interval: bootstrapMean(share),
    instances: groups.length,
    k: runs.map((_, index) => atK(groups, index + 1)),
  };
}

function atK(groups: Score[][], k: number): ManyRuns['k'][number] {
  const counts = groups.map((group) => ({
    total: group.length,
    resolved: group.filter(({ resolved }) => resolved).length,
  }));
  const valued = groups.length > 0 && groups.every((group) => group.every(({ value }) => value !== null));
  return {
    k,
    mean: average(counts.map(({ total, resolved }) => resolved / total)),
    pass: average(counts.map((count) => passAtK(count, k))),
    passHat: average(counts.map((count) => passHatK(count, k))),
    best: valued
      ? average(
          groups.map((group) =>
            bestAtK(
              // Equal lengths: of attempts with one value each is taken equally often.
              group.map(({ value, resolved }) => ({ value: value!, length: 0, resolved })),
              k,
            ),
          ),
        )
      : null,
    tied: groups.filter((group) => new Set(group.map(({ value }) => value)).size < group.length).length,
  };
}

const average = (values: number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
