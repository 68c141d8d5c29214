import { cpSync, existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, expect, test } from 'vitest';
import { RlStep } from '../../src/records/step.ts';
import { alive, descendants, folder, type Running, until } from '../support/orchard.ts';

const place = folder();

const common = `tasks: { count: 16, extra: 0 }
trainer: { kind: local, threads: 1 }
stages:
  - collect: { episodesPerTask: 1 }
  - sft: { epochs: 8, batchRows: 8, learningRate: 1.0e-3, credit: { epsilon: 0.05 } }
`;
const rl = (more: string): string =>
  `${common}  - rl: { steps: 4, prompts: 2, rollout: { n: 2, max: 8, stride: 4, band: [0.5, 0.5] }, learningRate: 1.0e-5, maxTokensPerCall: 64, ${more} }\n`;

/** What all of these start from is made once. */
beforeAll(async () => {
  const recipe = place.recipe('start', rl('validate: { tasks: 0 }'));
  expect((await place.run(['collect', recipe])).code).toBe(0);
  const trained = await place.run(['train', 'sft', recipe]);
  expect(trained.code, trained.stderr).toBe(0);
}, 180_000);

function from(name: string, yaml: string): string {
  const recipe = place.recipe(name, yaml);
  for (const part of ['blobs', 'collect', 'sft'])
    cpSync(join(place.runs, 'start', part), join(place.runs, name, part), { recursive: true });
  return recipe;
}

const stepsOf = (name: string): RlStep[] => place.lines(`${name}/rl/steps.jsonl`).map((line) => RlStep.parse(line));

/** The driver, its trainer or its server, by turns. */
function victim(running: Running, turn: number): number {
  const word = ['', 'orchard_trainer train', 'orchard_trainer serve'][turn % 3]!;
  const found = word && descendants(running.pid).find(({ command }) => command.includes(word));
  return found ? found.pid : running.pid;
}

test('kill -9 at 25 random moments of driver, trainer and server: no step is missing, none is trained twice', {
  timeout: 1_500_000,
}, async () => {
  const recipe = from('killed', rl('staleness: 1, validate: { every: 2, tasks: 2 }'));
  let kills = 0;
  for (;;) {
    // Enough steps for all the kills: a run that is done is begun anew beside the others.
    const running = place.start(['train', 'rl', recipe]);
    let over = false;
    void running.ended.then(() => {
      over = true;
    });
    while (!over && kills < 25) {
      await Promise.race([sleep(1500 + Math.random() * 9000), running.ended]);
      if (over) break;
      const pid = victim(running, kills++);
      process.kill(pid, 'SIGKILL');
      if (pid === running.pid) await running.ended;
    }
    const ended = await running.ended;
    if (ended.code !== 0) {
      if (ended.code !== 'SIGKILL') expect(ended.stderr).toMatch(/orchard: .*\n +\w+/); // a sentence and the way out
      continue;
    }
    const dir = join(place.runs, 'killed/rl');
    const steps = stepsOf('killed');
    expect(steps.map(({ step }) => step)).toEqual([0, 1, 2, 3]);
    // Each step was sampled by the weights that admission allows, and by no other.
    expect(steps.map(({ version, staleness }) => [version, staleness])).toEqual([
      ['sft@v_000001', 0],
      ['sft@v_000001', 1],
      ['rl@v_000001', 1],
      ['rl@v_000002', 1],
    ]);
    const metrics = place.lines('killed/rl/metrics.jsonl');
    expect(metrics.map(({ step, batch }) => [step, batch])).toEqual([0, 1, 2, 3].map((batch) => [batch + 1, batch]));
    const published = place
      .lines('killed/rl/events.jsonl')
      .filter(({ event }) => event === 'published')
      .map(({ version }) => String(version));
    expect(published).toEqual([...published].sort());
    expect(new Set(published).size).toBe(4);
    for (const { step, episodes, groups } of steps) {
      const folderOf = `killed/rl/steps/step_${String(step).padStart(6, '0')}`;
      const verdicts = place.lines(`${folderOf}/verdicts.jsonl`);
      expect(new Set(verdicts.map(({ episode }) => episode)).size + episodes.aborted).toBeGreaterThanOrEqual(
        episodes.trained,
      );
      expect(episodes.trained).toBe(2 * groups.kept);
      expect(place.lines(`${folderOf}/rewards.jsonl`)).toHaveLength(episodes.trained);
    }
    expect(existsSync(join(dir, 'READY'))).toBe(true);
    if (kills >= 25) break;
    for (const part of ['rl', 'recipe.json'])
      rmSync(join(place.runs, 'killed', part), { recursive: true, force: true });
  }
  expect(kills).toBe(25);
});

test('Ctrl-C stops cleanly in the middle of a step, leaves no process, and the same command goes on', {
  timeout: 240_000,
}, async () => {
  const recipe = from('stopped', rl('validate: { tasks: 0 }'));
  const running = place.start(['train', 'rl', recipe]);
  await until(
    'a step is generated',
    () => existsSync(join(place.runs, 'stopped/rl/steps/step_000001/calls.jsonl')),
    90_000,
  );
  const below = descendants(running.pid);
  running.signal('SIGINT');
  const stopped = await running.ended;
  expect(stopped.code, stopped.stderr).toBe(130);
  expect(below.filter(({ pid }) => alive(pid))).toEqual([]);
  const again = await place.run(['train', 'rl', recipe]);
  expect(again.code, again.stderr).toBe(0);
  expect(stepsOf('stopped').map(({ step }) => step)).toEqual([0, 1, 2, 3]);
  expect(readdirSync(join(place.runs, 'stopped/rl/weights'))).toContain('v_000004');
});

test('a step in which no group is left ends with the reasons, not in a spin', { timeout: 120_000 }, async () => {
  const recipe = place.recipe(
    'barren',
    'tasks: { count: 4, extra: 0 }\nstages:\n  - rl: { from: base, steps: 2, prompts: 2, rollout: { n: 2, max: 2, stride: 2, band: [0.5, 0.5] }, maxTokensPerCall: 8, validate: { tasks: 0 } }\n',
  );
  const ended = await place.run(['train', 'rl', recipe]);
  expect(ended.code).toBe(1);
  expect(ended.stderr).toMatch(/step 0 of rl found no group to train on: 4 none resolved/);
  expect(ended.stderr).toContain('orchard tasks select');
});

test('a budget of episodes ends the stage with the step in which it is spent', { timeout: 240_000 }, async () => {
  const recipe = from('budget', rl('episodes: 20, validate: { tasks: 0 }'));
  const ended = await place.run(['train', 'rl', recipe]);
  expect(ended.code, ended.stderr).toBe(0);
  const run = stepsOf('budget').map(({ episodes }) => episodes.run);
  const spent = run.reduce((sum, each) => sum + each, 0);
  expect(run.length).toBeLessThan(4);
  expect(spent).toBeGreaterThanOrEqual(20);
  expect(spent - run.at(-1)!).toBeLessThan(20);
});

test('a judge that answers in another form is refused before anything is sampled', { timeout: 120_000 }, async () => {
  const { reply, startEngine } = await import('../support/engine.ts');
  await using judge = await startEngine((_, response) => reply(response, { content: '{"score": 7}' }));
  const recipe = from(
    'judged',
    rl('rewards: [tests, rubric], validate: { tasks: 0 }').replace(
      'stages:',
      `judge: { kind: openai, baseUrl: '${judge.baseUrl}', model: m }\nstages:`,
    ),
  );
  const ended = await place.run(['train', 'rl', recipe]);
  expect(ended.code).toBe(2);
  expect(ended.stderr).toContain('the judge does not answer as the rubric needs: expected scores of fix_quality');
  expect(existsSync(join(place.runs, 'judged/rl/steps'))).toBe(false);
});
