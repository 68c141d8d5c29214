import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { tinyRows } from '../../src/benchmarks/tiny/rows.ts';
import { reply, startEngine } from '../support/engine.ts';
import { alive, descendants, type Folder, folder, type Running, until } from '../support/orchard.ts';

const place = folder();

// One episode at a time: with others in the batch, the last bits of a logit may fall otherwise.
const yaml = `tasks: { count: 10, extra: 0 }
concurrency: 1
inference: { kind: torch, threads: 1 }
trainer: { kind: local, threads: 1, checkpointEverySteps: 1 }
stages:
  - collect: { episodesPerTask: 1 }
  - sft: { epochs: 8, batchRows: 4, learningRate: 1.0e-3, credit: { epsilon: 0.05 } }
  - eval: { models: [base, sft], maxTokensPerCall: 48 }
`;

/** What must come out the same whatever happened on the way. */
function outcome({ report, lines }: Folder, run: string): unknown {
  return {
    rows: report(run).rows.map(({ seconds: _, ...row }) => row),
    predictions: lines(`${run}/eval/sft/predictions.jsonl`).map(
      ({ model_name_or_path: _, ...prediction }) => prediction,
    ),
    selection: lines(`${run}/sft/selection.jsonl`),
    manifest: JSON.parse(readFileSync(join(place.runs, run, 'sft/batches/step_000000/manifest.json'), 'utf8')),
    state: JSON.parse(readFileSync(join(place.runs, run, 'sft/state.json'), 'utf8')),
    verdicts: Object.fromEntries(
      lines(`${run}/collect/verdicts.jsonl`).map(({ episode, resolved, class: kind }) => [episode, [kind, resolved]]),
    ),
  };
}

/** The driver, or its trainer or server, whichever is there; by turns. */
function victim(running: Running, turn: number): number {
  const below = descendants(running.pid).filter(({ command }) => command.includes('orchard_trainer'));
  return turn % 2 === 1 && below.length > 0 ? below[0]!.pid : running.pid;
}

test('kill -9 at 25 random moments, and the same command: nothing is lost, nothing counts twice', {
  timeout: 600_000,
}, async () => {
  const quiet = place.recipe('undisturbed', yaml);
  expect((await place.run(['run', quiet])).code).toBe(0);
  const expected = outcome(place, 'undisturbed');

  let kills = 0;
  let helpers = 0;
  let finished = 0;
  for (let round = 0; kills < 25; round++) {
    const name = `killed-${round}`;
    const recipe = place.recipe(name, yaml);
    for (;;) {
      const running = place.start(['run', recipe]);
      let over = false;
      void running.ended.then(() => {
        over = true;
      });
      await Promise.race([sleep(300 + Math.random() * 4500), running.ended]);
      if (!over && kills < 25) {
        const pid = victim(running, kills);
        if (pid !== running.pid) helpers++;
        process.kill(pid, 'SIGKILL');
        kills++;
        if (pid === running.pid) await running.ended;
        continue;
      }
      const ended = await running.ended;
      if (ended.code === 0) break;
      expect(ended.stderr).toMatch(/orchard: .*\n +\w+/); // a sentence and the way out
    }
    finished++;
    expect(outcome(place, name)).toEqual(expected);
    // Every attempt once: as many settled verdicts as tasks, each with one last episode.
    const verdicts = place.lines(`${name}/collect/verdicts.jsonl`);
    expect(new Set(verdicts.map(({ episode }) => episode)).size).toBe(10);
  }
  expect(helpers).toBeGreaterThan(0);
  expect(finished).toBeGreaterThan(0);
});

test.each(['collect', 'sft', 'eval'])(
  'Ctrl-C in %s stops within seconds, leaves no process, and the run goes on',
  { timeout: 180_000 },
  async (stage) => {
    const name = `stopped-${stage}`;
    // Training must last until it is stopped; where it only comes before what is stopped, it may be short.
    const recipe = place.recipe(name, yaml.replace('epochs: 8', `epochs: ${stage === 'sft' ? 40 : 1}`));
    const running = place.start(['run', recipe]);
    const seen = new Map<number, string>();
    const look = (): void => {
      for (const { pid, command } of descendants(running.pid)) seen.set(pid, command);
    };
    const begun = {
      collect: () => place.lines(`${name}/collect/episodes.jsonl`).length > 2,
      sft: () => place.lines(`${name}/sft/metrics.jsonl`).length > 2,
      eval: () => place.lines(`${name}/eval/base/episodes.jsonl`).length > 2,
    }[stage]!;
    const lookOn = (): boolean => {
      look();
      return begun();
    };
    await until(`${stage} is under way`, lookOn, 120_000);
    const started = Date.now();
    running.signal('SIGINT');
    const { code, stderr } = await running.ended;
    expect(code).toBe(130);
    expect(stderr).toContain('the same command goes on from here');
    expect(Date.now() - started).toBeLessThan(10_000);
    expect(seen.size).toBeGreaterThan(0);
    await until('all its processes are gone', () => [...seen.keys()].every((pid) => !alive(pid)), 5000);
    const again = await place.run(['collect', recipe]);
    expect(again.code, again.stderr).toBe(0);
    expect(new Set(place.lines(`${name}/collect/verdicts.jsonl`).map(({ episode }) => episode)).size).toBe(10);
  },
);

test('a second driver on the same run is refused and names the first', { timeout: 60_000 }, async () => {
  const recipe = place.recipe('twice', yaml);
  const first = place.start(['collect', recipe]);
  await until('the first is under way', () => place.lines('twice/collect/episodes.jsonl').length > 0);
  const second = await place.run(['run', recipe]);
  expect(second.code).toBe(2);
  expect(second.stderr).toContain(`is driven by process ${first.pid}`);
  expect((await first.ended).code).toBe(0);
});

test('another recipe under the same name, and other settings of a stage, are refused with what differs', {
  timeout: 60_000,
}, async () => {
  const recipe = place.recipe('changed', yaml);
  expect((await place.run(['collect', recipe])).code).toBe(0);
  const other = await place.run(['collect', recipe, '--set', 'harness.turns=3']);
  expect(other.code).toBe(2);
  expect(other.stderr).toContain('harness.turns: 8 -> 3');
  const stage = await place.run(['collect', recipe, '--set', 'stages[0].collect.episodesPerTask=2']);
  expect(stage.code).toBe(2);
  expect(stage.stderr).toContain('episodesPerTask: 1 -> 2');
});

test('rows that were edited between stopping and going on are refused by the first one', {
  timeout: 60_000,
}, async () => {
  const [row] = tinyRows('train', { count: 1, seed: 1 });
  const file = join(place.dir, 'mine.jsonl');
  const rows = (statement: string): void =>
    writeFileSync(file, `${JSON.stringify({ ...row, problem_statement: statement })}\n`);
  rows('one');
  await using engine = await startEngine((_, response) =>
    reply(response, {
      toolCalls: [
        {
          id: 'c',
          type: 'function',
          function: { name: 'bash', arguments: '{"command":"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}' },
        },
      ],
    }),
  );
  const recipe = place.recipe(
    'edited',
    `teacher: { kind: openai, baseUrl: '${engine.baseUrl}', model: m }\nstages:\n  - collect: { episodesPerTask: 1 }\n`,
  );
  const sets = ['--set', `tasks={benchmark: swe-bench, dataset: ${file}}`];
  expect((await place.run(['collect', recipe, ...sets])).code).toBe(0);
  rmSync(join(place.runs, 'edited/collect/READY'));
  rows('another');
  const { code, stderr } = await place.run(['collect', recipe, ...sets]);
  expect([code, stderr]).toEqual([2, expect.stringContaining(`the first: ${row!.instance_id}`)]);
});
