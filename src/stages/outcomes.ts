import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { OrchardError } from '../core/errors.ts';
import { readJsonl } from '../core/jsonl.ts';
import { Episode } from '../records/episode.ts';
import type { Task } from '../records/task.ts';
import { Verdict } from '../records/verdict.ts';

/** One finished attempt: what happened, and what the tests said. */
export interface Outcome {
  task: Task;
  episode: Episode;
  verdict: Verdict;
}

/** Folders of a stage that hold attempts: itself, one per model, or one per step. In the order of their names. */
export async function attemptFolders(dir: string): Promise<string[]> {
  if (existsSync(join(dir, 'episodes.jsonl'))) return [dir];
  const below = await readdir(dir, { withFileTypes: true }).catch(() => []);
  const folders: string[] = [];
  for (const { name } of below.filter((entry) => entry.isDirectory()).sort((a, b) => (a.name < b.name ? -1 : 1)))
    folders.push(...(await attemptFolders(join(dir, name))));
  return folders;
}

/** The last word on each episode of a folder. A torn last line is passed over. */
export async function readOutcomes(dir: string, tasks: Task[]): Promise<Map<string, Outcome>> {
  const byId = new Map(tasks.map((task) => [task.id, task]));
  const episodes = new Map<string, Episode>();
  for await (const episode of readJsonl(join(dir, 'episodes.jsonl'), Episode)) episodes.set(episode.id, episode);
  const outcomes = new Map<string, Outcome>();
  for await (const verdict of readJsonl(join(dir, 'verdicts.jsonl'), Verdict)) {
    const episode = episodes.get(verdict.episode);
    const task = byId.get(verdict.task);
    if (episode && task) outcomes.set(verdict.episode, { task, episode, verdict });
  }
  return outcomes;
}

/** An infrastructure failure is not settled: a stage that has not ended tries it again. */
export const isSettled = (outcome: Outcome | undefined): boolean =>
  outcome !== undefined && outcome.verdict.class !== 'infrastructure';

export interface Counts {
  resolved: number;
  failed: number;
  empty_patch: number;
  infrastructure: number;
  unknown: number;
}

/** Every outcome in exactly one class. */
export function countOutcomes(outcomes: Iterable<Outcome>): Counts {
  const counts: Counts = { resolved: 0, failed: 0, empty_patch: 0, infrastructure: 0, unknown: 0 };
  for (const { verdict } of outcomes) {
    if (verdict.class === 'graded') counts[verdict.resolved ? 'resolved' : 'failed']++;
    else counts[verdict.class]++;
  }
  return counts;
}

export const countWords = (outcomes: Iterable<Outcome>): string =>
  Object.entries(countOutcomes(outcomes))
    .filter(([name, count]) => count > 0 || name === 'resolved' || name === 'infrastructure')
    .map(([name, count]) => `${count} ${name.replace('_', ' ')}`)
    .join(', ');

/**
 * @throws OrchardError when so many attempts failed for reasons of the infrastructure that the rest says nothing
 */
export function checkInfrastructure(outcomes: Map<string, Outcome>, id: string): void {
  const failed = [...outcomes.values()].filter((outcome) => outcome.verdict.class === 'infrastructure');
  const first = failed[0]?.verdict.failure;
  if (first && failed.length > 0.1 * outcomes.size) {
    throw new OrchardError({
      ...first,
      id,
      cause: `${failed.length} of ${outcomes.size} attempts of ${id} failed for reasons of the infrastructure, the first: ${first.cause}`,
      wayOut: `${first.wayOut}; only those are repeated`,
    });
  }
}
