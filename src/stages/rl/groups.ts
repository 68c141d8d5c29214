import { balance, dropReason, type GroupEnd, type Member } from '../../algo/balance.ts';
import type { Task } from '../../records/task.ts';
import type { Outcome } from '../outcomes.ts';
import type { Attempts } from '../rollouts.ts';
import type { Config } from './config.ts';

/** groups.json: what became of one prompt of a step. */
export interface Group {
  task: string;
  end: GroupEnd;
  /** Why it is not trained on: the group filter's reason, or `surplus` beyond a full batch. */
  drop: string | null;
  /** Episodes that were run for it, and those that were chosen among them. */
  pool: string[];
  chosen: string[];
}

export interface Groups {
  /** In the order of the prompts. */
  groups: Group[];
  /** Position of the first prompt of the next step. */
  cursor: number;
}

/** Prompts that a step may try before it trains on what it has. */
const PATIENCE = 8;

/**
 * Rolls out prompts from `cursor` on until the first `prompts` groups that pass the filter are complete, counted in
 * the order of the prompts: a batch filled in the order of finishing would lean to tasks that are quick. Prompts
 * beyond are begun ahead (`oversample`); when the batch is full they are aborted, and are the next step's first.
 */
export async function rollGroups(
  attempts: Attempts,
  {
    promptAt,
    cursor,
    poolSize,
    settings,
  }: { promptAt: (position: number) => Task; cursor: number; poolSize: number; settings: Config },
  onChange: (groups: Group[]) => void,
): Promise<Groups> {
  const stop = new AbortController();
  const ended: Group[] = [];
  const running = new Map<number, Promise<void>>();
  // No prompt twice in a step: its episodes are named by the task.
  const limit = Math.min(poolSize, PATIENCE * settings.prompts);
  const begunAtOnce = Math.ceil(settings.oversample * settings.prompts);
  const begun = new Set<string>();
  let next = 0;
  const begin = (): void => {
    const at = next++;
    const task = promptAt(cursor + at);
    if (begun.has(task.id)) {
      ended[at] = { task: task.id, end: 'best_effort', drop: 'repeated', pool: [], chosen: [] };
      return;
    }
    begun.add(task.id);
    const work = rollGroup(attempts, { task, settings, stop: stop.signal }).then((group) => {
      if (group) ended[at] = group;
      running.delete(at);
      onChange(ended.filter(Boolean));
    });
    running.set(at, work);
  };
  try {
    for (;;) {
      const full = firstFull(ended, settings.prompts);
      if (full !== null) return close(ended, full, cursor);
      const kept = ended.filter((group) => group?.drop === null).length;
      while (running.size + kept < begunAtOnce && next < limit) begin();
      if (running.size === 0) return close(ended, next, cursor);
      await Promise.race(running.values());
    }
  } finally {
    stop.abort();
    await Promise.allSettled(running.values());
  }
}

/** How many prompts from the first on hold a full batch; null while one of them is still running. */
function firstFull(ended: Group[], prompts: number): number | null {
  let kept = 0;
  for (let at = 0; at < ended.length && ended[at]; at++) {
    if (ended[at]!.drop === null && ++kept === prompts) return at + 1;
  }
  return null;
}

function close(ended: Group[], count: number, cursor: number): Groups {
  const beyond = ended
    .slice(count)
    .filter(Boolean)
    .map((group) => ({ ...group, drop: group.drop ?? 'surplus' }));
  return { groups: [...ended.slice(0, count).filter(Boolean), ...beyond], cursor: cursor + count };
}

type Rolled = Member & { outcome: Outcome };

/** One prompt to its group; null when it was stopped on the way. */
async function rollGroup(
  attempts: Attempts,
  { task, settings, stop }: { task: Task; settings: Config; stop: AbortSignal },
): Promise<Group | null> {
  const pool: Rolled[] = [];
  for (;;) {
    const decision = balance(pool, settings.rollout);
    if ('group' in decision) {
      const { group, end } = decision;
      const reason = dropReason(group, settings.rollout.n);
      // Without a reward of the tests, groups of one kind teach as much as any.
      const drop = settings.distill?.only && (reason === 'no_variance' || reason === 'none_resolved') ? null : reason;
      const ids = (members: Rolled[]): string[] => members.map(({ outcome }) => outcome.episode.id);
      return { task: task.id, end, drop, pool: ids(pool), chosen: ids(group) };
    }
    const more = Array.from({ length: decision.roll }, (_, index) =>
      attempts.run(task, { attempt: pool.length + index, stop }),
    );
    // All of them, also when one fails: nothing may be left running behind its error.
    await Promise.allSettled(more);
    for (const outcome of await Promise.all(more)) {
      if (outcome === null) return null;
      pool.push({ ...memberOf(outcome), outcome });
    }
  }
}

/** How a group sees an episode. What the tests could not judge has no reward, and is never a failure. */
export function memberOf({ episode, verdict }: Outcome): Member {
  const { kind } = episode.end;
  return {
    resolved: verdict.class === 'graded' || verdict.class === 'empty_patch' ? verdict.resolved : null,
    status:
      kind === 'submitted'
        ? 'completed'
        : kind === 'time_limit'
          ? 'time'
          : kind === 'failed' || kind === 'aborted'
            ? 'aborted'
            : 'context',
  };
}
