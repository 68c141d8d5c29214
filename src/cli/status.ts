import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { isReady } from '../core/folder.ts';
import { readJsonl } from '../core/jsonl.ts';
import type { PlannedStage } from '../recipe/run.ts';
import type { Failure } from '../records/common.ts';
import { Verdict } from '../records/verdict.ts';
import type { RunView } from './look.ts';

/** Folders of a stage that hold attempts: itself, or one per model. */
async function attemptFolders(dir: string): Promise<string[]> {
  const below = await readdir(dir, { withFileTypes: true }).catch(() => []);
  const folders = [dir, ...below.filter((entry) => entry.isDirectory()).map((entry) => join(dir, entry.name))];
  return folders.filter((folder) => existsSync(join(folder, 'verdicts.jsonl')));
}

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
    if (last) note = `step ${last.step}${last.of ? `/${last.of}` : ''} · loss ${Number(last.loss).toFixed(3)}`;
  }
  return { name: stage.name, kind: stage.kind, state, note };
}

export async function failuresOf(view: RunView): Promise<Failure[]> {
  const failures: Failure[] = [];
  for (const { name } of view.stages) {
    for (const { failure } of await verdictsOf(join(view.dir, name))) if (failure) failures.push(failure);
  }
  return failures;
}
