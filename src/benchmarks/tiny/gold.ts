import type { Task } from '../../records/task.ts';

/** The line that a tiny task wants changed. */
export interface Gold {
  path: string;
  before: string;
  after: string;
}

/** Reads it out of the gold patch, which replaces exactly one line. */
export function goldOf(task: Task): Gold {
  const lines = task.goldPatch.split('\n');
  const path = lines.find((line) => line.startsWith('+++ b/'))!.slice('+++ b/'.length);
  const before = lines.find((line) => line.startsWith('-') && !line.startsWith('---'))!.slice(1);
  const after = lines.find((line) => line.startsWith('+') && !line.startsWith('+++'))!.slice(1);
  return { path, before, after };
}

/** The function that the statement names. */
export const askedFunction = (task: Task): string => /^`(\w+)`/.exec(task.statement)![1]!;
