import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { isReady } from '../core/folder.ts';
import { readJsonl } from '../core/jsonl.ts';
import { sparkline } from '../core/sparkline.ts';
import type { PlannedStage } from '../recipe/run.ts';
import type { Failure } from '../records/common.ts';
import { RlStep } from '../records/step.ts';
import { Verdict } from '../records/verdict.ts';
import { attemptFolders } from '../stages/outcomes.ts';
import type { RunView } from './look.ts';

/** The last verdict on each attempt of a stage. */
async function verdictsOf(dir: string): Promise<Verdict[]> {
  const last = new Map<string, Verdict>();
  for (const folder of await attemptFolders(dir)) {
    for await (const verdict of readJsonl(join(folder, 'verdicts.jsonl'), Verdict)) last.set(verdict.episode, verdict);
  }
  return [...last.values()];
}

export async function progressOf(
  view: RunView,
  stage: PlannedStage,
): Promise<{ name: string; kind: string; state: string; note: string }> {
  const dir = join(view.dir, stage.name);
  const state = isReady(dir) ? 'done' : existsSync(join(dir, 'plan.json')) ? 'begun' : 'waiting';
  const verdicts = await verdictsOf(dir);
  let note = '';
  if (verdicts.length > 0) {
    const count = (kind: string): number => verdicts.filter((verdict) => verdict.class === kind).length;
    const resolved = verdicts.filter((verdict) => verdict.resolved).length;
    note = `${verdicts.length} attempts · ${resolved} resolved, ${count('graded') - resolved} failed, ${count('empty_patch')} empty patch, ${count('infrastructure')} infrastructure, ${count('unknown')} unknown`;
  }
  if (existsSync(join(dir, 'metrics.jsonl'))) {
    let last: Record<string, unknown> | null = null;
    for await (const line of readJsonl(join(dir, 'metrics.jsonl'))) last = line as Record<string, unknown>;
    if (last && !existsSync(join(dir, 'steps.jsonl')))
      note = `step ${last.step}${last.of ? `/${last.of}` : ''} · loss ${Number(last.loss).toFixed(3)}`;
  }
  const steps: RlStep[] = [];
  for await (const step of readJsonl(join(dir, 'steps.jsonl'), RlStep)) steps.push(step);
  if (stage.kind === 'rl' && (steps.length > 0 || state !== 'waiting'))
    note = stepWords(steps, { of: stage.settings, attempts: note });
  return { name: stage.name, kind: stage.kind, state, note };
}

export async function failuresOf(view: RunView): Promise<Failure[]> {
  const failures: Failure[] = [];
  for (const { name } of view.stages) {
    for (const { failure } of await verdictsOf(join(view.dir, name))) if (failure) failures.push(failure);
  }
  return failures;
}

/** The last trained step in a line, and the curve of all. */
function stepWords(steps: RlStep[], { of, attempts }: { of: unknown; attempts: string }): string {
  const { steps: total } = of as { steps: number };
  const last = steps.at(-1);
  if (!last) return `step 0/${total}${attempts ? ` · ${attempts}` : ''}`;
  const rates = steps.map(({ resolveRate }) => resolveRate);
  const dropped = Object.values(last.groups.dropped).reduce((sum, count) => sum + count, 0);
  return `step ${steps.length}/${total} · resolve ${last.resolveRate.toFixed(2)} ${sparkline(rates.slice(-20))} · reward ${last.reward.toFixed(2)} · ${last.groups.kept} groups, ${dropped} dropped · rollout ${last.seconds.rollout.toFixed(0)}s train ${last.seconds.train.toFixed(0)}s${last.validation === null ? '' : ` · validation ${last.validation.toFixed(2)}`}`;
}
