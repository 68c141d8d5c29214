import { unitHash } from '../../core/hash.ts';
import type { Task } from '../../records/task.ts';

/** Tasks to train on and tasks to validate on, by a draw that hangs on the seed alone. */
export function holdOut(
  tasks: Task[],
  { count, seed }: { count: number; seed: number },
): { pool: Task[]; validation: Task[] } {
  const drawn = shuffled(tasks, `validation ${seed}`);
  const held = new Set(drawn.slice(0, count));
  return { pool: tasks.filter((task) => !held.has(task)), validation: tasks.filter((task) => held.has(task)) };
}

/** The endless order of prompts: the whole pool, shuffled anew each time round. */
export function promptOrder(pool: Task[], seed: number): (position: number) => Task {
  const rounds = new Map<number, Task[]>();
  return (position) => {
    const round = Math.floor(position / pool.length);
    if (!rounds.has(round)) rounds.set(round, shuffled(pool, `round ${round} ${seed}`));
    return rounds.get(round)![position % pool.length]!;
  };
}

const shuffled = (tasks: Task[], word: string): Task[] =>
  tasks
    .map((task) => ({ task, key: unitHash(word, task.id) }))
    .sort((a, b) => a.key - b.key)
    .map(({ task }) => task);
