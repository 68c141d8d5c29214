import { join } from 'node:path';
import type { Score } from '../records/score.ts';
import { evaluate, type RunSettings, type ScoringContext } from './evaluate.ts';
import type { Instances } from './instances.ts';
import type { Predicted } from './predictions.ts';

export interface Validity {
  instance: string;
  /** `unknown`: a run has no verdict, so that nothing can be said. */
  state: 'stable' | 'flaky' | 'broken' | 'unknown';
  why: string;
  /** Gold runs that the stricter verdict doubts, though they are right: its false alarms. */
  falseAlarms: string[];
}

/** Changes nothing that tests see; the official runner never starts an empty patch. */
const UNTOUCHED =
  'diff --git a/.orchard-untouched b/.orchard-untouched\nnew file mode 100644\n--- /dev/null\n+++ b/.orchard-untouched\n@@ -0,0 +1 @@\n+untouched\n';

/** Runs the gold patch and the untouched repository several times: stable, flaky or broken. */
export async function validate(
  context: ScoringContext,
  { instances, runs, run }: { instances: Instances; runs: number; run: RunSettings },
): Promise<Validity[]> {
  const attempt = (what: 'gold' | 'untouched', index: number): Promise<Score[]> => {
    const byId = new Map<string, Predicted>(
      instances.ready.map(({ instance }) => [
        instance.id,
        {
          id: instance.id,
          model: what,
          patch: Buffer.from(what === 'gold' ? instance.goldPatch : UNTOUCHED),
          attempt: null,
          value: null,
        },
      ]),
    );
    const runDir = join(context.runDir, `${what}-${index}`);
    return evaluate({ ...context, runDir }, { instances, predictions: { byId, duplicates: [] }, run });
  };
  const gold: Score[][] = [];
  const untouched: Score[][] = [];
  for (let index = 1; index <= runs; index++) {
    gold.push(await attempt('gold', index));
    untouched.push(await attempt('untouched', index));
  }
  return instances.ready.map(({ instance }, at) =>
    validityOf(
      instance.id,
      gold.map((scores) => scores[at]!),
      untouched.map((scores) => scores[at]!),
    ),
  );
}

function validityOf(instance: string, gold: Score[], untouched: Score[]): Validity {
  const falseAlarms = gold
    .filter((score) => score.resolved && score.hardened && score.hardened.verdict !== 'resolved')
    .flatMap((score) => score.hardened!.suspicious.map(({ code, detail }) => `${code}: ${detail}`));
  const answer = (state: Validity['state'], why: string): Validity => ({ instance, state, why, falseAlarms });
  const failed = [...gold, ...untouched].find((score) => score.class === 'infrastructure');
  if (failed) return answer('unknown', failed.failure?.cause ?? 'no verdict');
  const resolved = gold.filter((score) => score.resolved).length;
  const already = untouched.filter((score) => score.resolved).length;
  if (resolved === 0) return answer('broken', `gold never resolves it: ${whyNot(gold[0]!)}`);
  if (already === untouched.length) return answer('broken', 'the untouched repository resolves it already');
  if (resolved < gold.length)
    return answer(
      'flaky',
      `gold resolves it in ${resolved} of ${gold.length} runs: ${whyNot(gold.find((score) => !score.resolved)!)}`,
    );
  if (already > 0)
    return answer('flaky', `the untouched repository resolves it in ${already} of ${untouched.length} runs`);
  const sets = new Set(gold.map((score) => JSON.stringify(score.tests)));
  return sets.size > 1 ? answer('flaky', 'gold resolves it with changing tests') : answer('stable', '');
}

function whyNot({ class: kind, tests }: Score): string {
  const failing = [...(tests?.FAIL_TO_PASS.failure ?? []), ...(tests?.PASS_TO_PASS.failure ?? [])];
  return failing.length > 0 ? `${kind}: ${failing.slice(0, 3).join(', ')}` : kind;
}
