import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { Task } from '../../src/records/task.ts';
import type { Outcome } from '../../src/stages/outcomes.ts';
import { config } from '../../src/stages/rl/config.ts';
import { rollGroups } from '../../src/stages/rl/groups.ts';
import { holdOut, promptOrder } from '../../src/stages/rl/prompts.ts';
import type { Attempts } from '../../src/stages/rollouts.ts';

const tasks = (count: number): Task[] => Array.from({ length: count }, (_, at) => ({ id: `t${at}` }) as Task);

interface Play {
  resolved: boolean | null;
  ms?: number;
}

/** Attempts whose outcomes are written down; keeps what was asked for, and what was stopped. */
function attemptsOf(play: (task: string, attempt: number) => Play) {
  const asked: string[] = [];
  const stopped: string[] = [];
  const attempts = {
    outcomes: new Map(),
    async run(task: Task, { attempt, stop }: { attempt: number; stop?: AbortSignal }) {
      const id = `${task.id}:${attempt}`;
      asked.push(id);
      const { resolved, ms = 0 } = play(task.id, attempt);
      await sleep(ms, undefined, { signal: stop }).catch(() => {});
      if (stop?.aborted) {
        stopped.push(id);
        return null;
      }
      const verdict = { class: resolved === null ? 'infrastructure' : 'graded', resolved: resolved === true };
      return { task, episode: { id, end: { kind: 'submitted' } }, verdict } as unknown as Outcome;
    },
  } as unknown as Attempts;
  return { attempts, asked, stopped };
}

const settings = (more: object = {}) =>
  config.parse({
    steps: 1,
    prompts: 2,
    oversample: 2,
    rollout: { n: 4, max: 8, stride: 4, band: [0.25, 0.75] },
    ...more,
  });

const half = (_: string, attempt: number): Play => ({ resolved: attempt % 2 === 0 });

test('a batch is filled in the order of the prompts, not of who is quick', async () => {
  const pool = tasks(10);
  const slowFirst = (task: string, attempt: number): Play => ({ ...half(task, attempt), ms: task === 't0' ? 60 : 0 });
  const { attempts, stopped } = attemptsOf(slowFirst);
  const plan = { promptAt: (at: number) => pool[at]!, cursor: 0, poolSize: 10, settings: settings() };
  const { groups, cursor } = await rollGroups(attempts, plan, () => {});
  const kept = groups.filter(({ drop }) => drop === null).map(({ task }) => task);
  expect(kept).toEqual(['t0', 't1']);
  expect(cursor).toBe(2);
  // What was begun ahead and done is on record as surplus; its prompts are the next step's first.
  expect(groups.filter(({ drop }) => drop === 'surplus').map(({ task }) => task)).toEqual(['t2', 't3']);
  expect(stopped).toEqual([]);
});

test('a group that teaches nothing is replaced by the next prompt, and the cursor moves past it', async () => {
  const pool = tasks(10);
  const { attempts } = attemptsOf((task, attempt) => (task === 't0' ? { resolved: false } : half(task, attempt)));
  const plan = { promptAt: (at: number) => pool[at]!, cursor: 0, poolSize: 10, settings: settings() };
  const { groups, cursor } = await rollGroups(attempts, plan, () => {});
  expect(groups[0]).toMatchObject({ task: 't0', drop: 'none_resolved', end: 'relaxed' });
  expect(groups[0]!.pool).toHaveLength(8); // all of max was tried
  expect(groups.filter(({ drop }) => drop === null).map(({ task }) => task)).toEqual(['t1', 't2']);
  expect(cursor).toBe(3);
});

test('once the batch is full, what is still in flight is stopped', async () => {
  const pool = tasks(10);
  const { attempts, stopped } = attemptsOf((task, attempt) => ({ ...half(task, attempt), ms: task > 't1' ? 5000 : 0 }));
  const plan = { promptAt: (at: number) => pool[at]!, cursor: 0, poolSize: 10, settings: settings() };
  const began = Date.now();
  await rollGroups(attempts, plan, () => {});
  expect(Date.now() - began).toBeLessThan(2000);
  expect(new Set(stopped.map((id) => id.split(':')[0]))).toEqual(new Set(['t2', 't3']));
});

test('an episode that failed for reasons of the infrastructure never stands for a failure of the model', async () => {
  const pool = tasks(3);
  const { attempts } = attemptsOf((_, attempt) => ({ resolved: attempt === 0 ? true : null }));
  const plan = { promptAt: (at: number) => pool[at]!, cursor: 0, poolSize: 3, settings: settings() };
  const { groups } = await rollGroups(attempts, plan, () => {});
  expect(groups.map(({ drop, end }) => [drop, end])).toEqual([
    ['no_reward', 'best_effort'],
    ['no_reward', 'best_effort'],
    ['no_reward', 'best_effort'],
  ]);
});

test('when no prompt of the pool gives a group, each is tried once and it ends', async () => {
  const pool = tasks(5);
  const { attempts, asked } = attemptsOf(() => ({ resolved: true }));
  const plan = { promptAt: promptOrder(pool, 1), cursor: 3, poolSize: 5, settings: settings() };
  const { groups } = await rollGroups(attempts, plan, () => {});
  expect(groups.every(({ drop }) => drop !== null)).toBe(true);
  expect(asked.length).toBe(new Set(asked).size);
});

test('with nothing but a teacher to learn from, groups of one kind are kept', async () => {
  const pool = tasks(4);
  const { attempts } = attemptsOf(() => ({ resolved: false }));
  const only = settings({ distill: { only: true } });
  const { groups } = await rollGroups(
    attempts,
    { promptAt: (at) => pool[at]!, cursor: 0, poolSize: 4, settings: only },
    () => {},
  );
  expect(groups.filter(({ drop }) => drop === null)).toHaveLength(2);
});

test('a failure in one attempt waits for the others before it is thrown', async () => {
  const pool = tasks(4);
  let running = 0;
  const attempts = {
    async run(_: Task, { attempt, stop }: { attempt: number; stop?: AbortSignal }) {
      if (attempt === 1) throw new Error('broken');
      running++;
      await sleep(50, undefined, { signal: stop }).catch(() => {});
      running--;
      return null;
    },
  } as unknown as Attempts;
  const plan = { promptAt: (at: number) => pool[at]!, cursor: 0, poolSize: 4, settings: settings() };
  await expect(rollGroups(attempts, plan, () => {})).rejects.toThrow('broken');
  expect(running).toBe(0);
});

test('prompts go round the whole pool, each time in another order, the same for the same seed', () => {
  const pool = tasks(7);
  const order = promptOrder(pool, 5);
  const rounds = [0, 1, 2].map((round) => Array.from({ length: 7 }, (_, at) => order(7 * round + at).id));
  for (const round of rounds) expect([...round].sort()).toEqual(pool.map(({ id }) => id));
  expect(rounds[0]).not.toEqual(rounds[1]);
  expect(Array.from({ length: 7 }, (_, at) => promptOrder(pool, 5)(at).id)).toEqual(rounds[0]);
  expect(Array.from({ length: 7 }, (_, at) => promptOrder(pool, 6)(at).id)).not.toEqual(rounds[0]);
});

test('tasks that are held out for validation are never prompts', () => {
  const { pool, validation } = holdOut(tasks(20), { count: 5, seed: 3 });
  expect(validation).toHaveLength(5);
  expect(pool).toHaveLength(15);
  expect(pool.some((task) => validation.includes(task))).toBe(false);
});

test('settings that cannot work are refused in words', () => {
  const problem = (more: object): string =>
    config.safeParse({ steps: 1, prompts: 1, ...more }).error!.issues[0]!.message;
  expect(problem({ rollout: { n: 8, max: 16, stride: 5 } })).toContain('stride must divide max (16)');
  expect(problem({ rollout: { n: 3, max: 4, stride: 4, band: [0.4, 0.6] } })).toContain('no group of 3');
  expect(problem({ topP: 0.95 })).toContain('expected 1: under a nucleus');
  expect(problem({ rewards: [{ tests: {}, rubric: {} }] })).toMatch(/Invalid input|one reward/);
});
