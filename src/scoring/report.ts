import { mkdir, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { wilson } from '../algo/stats.ts';
import { userError } from '../core/errors.ts';
import { readJson, writeJson, writeWhole } from '../core/folder.ts';
import { readJsonl } from '../core/jsonl.ts';
import { Score, ScoreClass } from '../records/score.ts';
import { modelFolder } from './layout.ts';
import type { Predictions } from './predictions.ts';

/** A share with its Wilson 95 % interval. */
export interface Rate {
  resolved: number;
  total: number;
  interval: [number, number];
}

export interface ScoreReport {
  v: 'orchard.scores/1';
  run: string;
  dataset: string;
  /** Every profile that a verdict was given under. */
  profiles: string[];
  /** Over the whole split: what has no verdict counts against it. */
  rate: Rate;
  /** Over the instances whose tests came to a result. */
  completed: Rate;
  classes: Record<ScoreClass, number>;
  predictions: { foreign: string[]; duplicates: string[]; missing: number; empty: number };
  hardened: {
    /** Officially resolved instances, by what the stricter verdict says of them. */
    resolved: { resolved: number; unresolved: number; doubtful: number };
    /** Officially unresolved ones that may have been resolved. */
    doubtfulFailures: number;
    /** Instances by reason. */
    reasons: Record<string, number>;
  };
  tables: Record<'repo' | 'year' | 'difficulty' | 'language', Record<string, Rate>>;
  cost: Cost | null;
  seconds: { median: number; p90: number } | null;
}

interface Cost {
  /** Attempts that tell what they cost. */
  attempts: number;
  perAttempt: Record<'promptTokens' | 'completionTokens' | 'cost' | 'turns' | 'seconds', Spread | null>;
  /** The sum over all attempts, by resolved instance; null where nothing is resolved. */
  perResolved: Record<'promptTokens' | 'completionTokens' | 'cost' | 'turns' | 'seconds', number | null>;
}

interface Spread {
  sum: number;
  median: number;
  p90: number;
}

/** Classes whose tests came to a result. */
export const COMPLETED: ScoreClass[] = ['resolved', 'f2p_unmet', 'p2p_broken', 'tests_missing'];

const rateOf = (scores: Score[]): Rate => {
  const resolved = scores.filter((score) => score.resolved).length;
  return { resolved, total: scores.length, interval: wilson(resolved, scores.length) };
};

export function reportOf(
  scores: Score[],
  { run, dataset, predictions }: { run: string; dataset: string; predictions: Predictions | null },
): ScoreReport {
  const classes = Object.fromEntries(ScoreClass.options.map((name) => [name, 0])) as ScoreReport['classes'];
  for (const score of scores) classes[score.class]++;
  const ids = new Set(scores.map(({ instance }) => instance));
  const official = Object.groupBy(scores, ({ resolved }) => (resolved ? 'yes' : 'no'));
  const hardened = { resolved: 0, unresolved: 0, doubtful: 0 };
  for (const score of official.yes ?? []) if (score.hardened) hardened[score.hardened.verdict]++;
  const reasons: Record<string, number> = {};
  for (const score of scores)
    for (const code of new Set(score.hardened?.suspicious.map((each) => each.code)))
      reasons[code] = (reasons[code] ?? 0) + 1;
  const byField = (field: 'repo' | 'year' | 'difficulty' | 'language'): Record<string, Rate> =>
    Object.fromEntries(
      [...Map.groupBy(scores, (score) => score[field] ?? '')]
        .filter(([value]) => value !== '')
        .sort(([a], [b]) => (a < b ? -1 : 1))
        .map(([value, group]) => [value, rateOf(group)]),
    );
  const times = scores.filter(({ log }) => log !== null).map(({ seconds }) => seconds);
  return {
    v: 'orchard.scores/1',
    run,
    dataset,
    profiles: [...new Set(scores.filter((score) => score.class !== 'refused').map(({ profile }) => profile))].sort(),
    rate: rateOf(scores),
    completed: rateOf(scores.filter((score) => COMPLETED.includes(score.class))),
    classes,
    predictions: {
      foreign: [...(predictions?.byId.keys() ?? [])].filter((id) => !ids.has(id)).sort(),
      duplicates: predictions?.duplicates ?? [],
      missing: classes.no_prediction,
      empty: classes.empty_patch + classes.agent_died,
    },
    hardened: {
      resolved: hardened,
      doubtfulFailures: (official.no ?? []).filter((score) => score.hardened?.verdict === 'doubtful').length,
      reasons,
    },
    tables: {
      repo: byField('repo'),
      year: byField('year'),
      difficulty: byField('difficulty'),
      language: byField('language'),
    },
    cost: costOf(scores),
    seconds: times.length > 0 ? { median: quantile(times, 0.5), p90: quantile(times, 0.9) } : null,
  };
}

const MEASURES = ['promptTokens', 'completionTokens', 'cost', 'turns', 'seconds'] as const;

function costOf(scores: Score[]): Cost | null {
  const attempts = scores.flatMap(({ attempt }) => attempt ?? []);
  if (attempts.length === 0) return null;
  const resolved = scores.filter((score) => score.resolved).length;
  const spread = (measure: (typeof MEASURES)[number]): Spread | null => {
    const values = attempts.flatMap((attempt) => attempt[measure] ?? []);
    if (values.length === 0) return null;
    const sum = values.reduce((total, value) => total + value, 0);
    return { sum, median: quantile(values, 0.5), p90: quantile(values, 0.9) };
  };
  const perAttempt = Object.fromEntries(MEASURES.map((name) => [name, spread(name)])) as Cost['perAttempt'];
  return {
    attempts: attempts.length,
    perAttempt,
    perResolved: Object.fromEntries(
      MEASURES.map((name) => [name, perAttempt[name] && resolved > 0 ? perAttempt[name].sum / resolved : null]),
    ) as Cost['perResolved'],
  };
}

function quantile(values: number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]!;
}

/** The official summary, schema 2: other people's tools read it. */
export function officialSummary(scores: Score[], { submitted }: { submitted: string[] }): Record<string, unknown> {
  const ids = (holds: (score: Score) => boolean): string[] =>
    scores
      .filter(holds)
      .map(({ instance }) => instance)
      .sort();
  const lists = {
    completed: ids((score) => COMPLETED.includes(score.class)),
    incomplete: ids((score) => score.class === 'no_prediction'),
    empty_patch: ids((score) => score.class === 'empty_patch' || score.class === 'agent_died'),
    submitted: submitted.toSorted(),
    resolved: ids((score) => score.resolved),
    unresolved: ids((score) => COMPLETED.includes(score.class) && !score.resolved),
    infra_failure: ids((score) => score.reason !== null && ENVIRONMENT.has(score.reason)),
    ambiguous_failure: ids((score) => score.reason !== null && !ENVIRONMENT.has(score.reason)),
    error: ids((score) => ['not_applied', 'timeout', 'infrastructure', 'refused'].includes(score.class)),
  };
  const counts = [
    'submitted',
    'completed',
    'resolved',
    'unresolved',
    'infra_failure',
    'ambiguous_failure',
    'empty_patch',
    'error',
  ] as const;
  return {
    total_instances: scores.length,
    ...Object.fromEntries(counts.map((name) => [`${name}_instances`, lists[name].length])),
    ...Object.fromEntries(Object.entries(lists).map(([name, list]) => [`${name}_ids`, list])),
    failure_reasons: Object.fromEntries(
      scores
        .filter((score) => score.reason !== null)
        .map(({ instance, reason }) => [instance, reason])
        .sort(),
    ),
    schema_version: 2,
  };
}

/** The official code's reasons that no patch can cause. */
const ENVIRONMENT = new Set([
  'browser_launch_failed',
  'display_unavailable',
  'out_of_memory',
  'container_unavailable',
  'network_unreachable',
]);

/** scores.jsonl, report.json and the official summary; returns the summary's path. */
export async function writeScores(
  runDir: string,
  { scores, report, predictions }: { scores: Score[]; report: ScoreReport; predictions: Predictions | null },
): Promise<string> {
  await mkdir(runDir, { recursive: true });
  await writeWhole(join(runDir, 'scores.jsonl'), scores.map((score) => `${JSON.stringify(score)}\n`).join(''));
  await writeJson(join(runDir, 'report.json'), report);
  const model = scores.find((score) => score.model !== '')?.model ?? 'unnamed';
  const summary = join(runDir, `${modelFolder(model)}.${basename(runDir)}.json`);
  const submitted = predictions
    ? [...predictions.byId.keys()]
    : scores.filter((score) => score.class !== 'no_prediction').map(({ instance }) => instance);
  await writeFile(summary, `${JSON.stringify(officialSummary(scores, { submitted }), null, 4)}\n`);
  return summary;
}

/** A finished scoring. @throws OrchardError owner `user` */
export async function readScores(runDir: string): Promise<{ report: ScoreReport; scores: Score[] }> {
  const scores: Score[] = await Array.fromAsync(readJsonl(join(runDir, 'scores.jsonl'), Score));
  if (scores.length === 0)
    throw userError(
      runDir,
      `${runDir} is no finished scoring`,
      'name the folder that orchard eval swebench wrote, with its scores.jsonl',
    );
  return { report: (await readJson(join(runDir, 'report.json'))) as ScoreReport, scores };
}
