import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Report } from '../../src/records/report.ts';
import { folder } from '../support/orchard.ts';

const place = folder();

test('the quick recipe goes from collecting to the table, and each of its parts can be looked at', {
  timeout: 900_000,
}, async () => {
  const run = await place.run(['run', 'tiny-quick']);
  expect(run.code, run.stderr).toBe(0);
  const report = Report.parse(place.report('tiny-quick'));
  expect(report.rows.map(({ name }) => name)).toEqual(['base', 'sft', 'rl-dense', 'rerank']);
  for (const { total, classes, infrastructure, resolved, interval, versus, name } of report.rows) {
    expect(total).toBe(24);
    expect(classes.graded + classes.empty_patch + classes.infrastructure + classes.unknown).toBe(24);
    expect(infrastructure).toBe(0);
    expect(interval[0]).toBeLessThanOrEqual(resolved / 24);
    expect(interval[1]).toBeGreaterThanOrEqual(resolved / 24);
    if (versus === null) expect(['base', 'rerank']).toContain(name);
    else expect(versus).toMatchObject({ gained: expect.any(Number), lost: expect.any(Number), p: expect.any(Number) });
  }
  expect(report.rows[1]!.trainedTokens).toBeGreaterThan(1000);
  const { candidates } = report.rows[3]!;
  expect(candidates).toMatchObject({ k: 2, p: expect.any(Number) });
  expect(candidates!.pass).toBeGreaterThanOrEqual(candidates!.mean);
  expect(run.stdout).toContain('chosen of 2 candidates; one at random');
  expect(run.stdout).toContain('McNemar');

  const page = readFileSync(join(place.runs, 'tiny-quick/report.html'), 'utf8');
  for (const word of ['rl-dense', '<svg', '<polyline', 'trained tokens', 'Reinforcement learning'])
    expect(page).toContain(word);

  // Predictions in SWE-bench's format, one a task.
  const predictions = place.lines('tiny-quick/eval/sft/predictions.jsonl');
  expect(predictions).toHaveLength(24);
  expect(Object.keys(predictions[0]!)).toEqual(['instance_id', 'model_name_or_path', 'model_patch']);

  // Once more: nothing is done again.
  const again = await place.run(['run', 'tiny-quick']);
  expect(again.code).toBe(0);
  expect(again.stderr).toContain('collect: done before');
  expect(Report.parse(place.report('tiny-quick'))).toEqual(report);

  const status = await place.run(['status', 'tiny-quick']);
  expect(status.stdout).toMatch(/collect +done +48 attempts/);
  expect(status.stdout).toMatch(/rl +done +step 2\/2 · resolve/);
  const selection = place.lines('tiny-quick/sft/selection.jsonl') as { id: string; use: string }[];
  const rise = selection.find(({ use }) => use === 'rise')!;
  const shown = await place.run(['show', 'tiny-quick', rise.id]);
  expect(shown.stdout).toMatch(/turn 0 {2}V 0\.\d\d .* credit [+−-]0\.\d\d/);
  expect(shown.stdout).toContain('trained by sft');
  expect((await place.run(['show', 'tiny-quick'])).stdout).toContain('rl-dense against sft');
  expect((await place.run(['logs', 'tiny-quick', 'sft'])).stdout).toContain('loss');

  // What an episode of reinforcement learning earned, with the parts of its reward.
  const [rewarded] = place.lines('tiny-quick/rl-dense/steps/step_000000/rewards.jsonl') as { episode: string }[];
  const earned = await place.run(['show', 'tiny-quick', rewarded!.episode]);
  expect(earned.stdout).toMatch(/reward {2}-?\d\.\d+ = tests -?1\.00/);
  expect(earned.stdout).toContain('rubric.fix_quality');
  expect((await place.run(['plot', 'tiny-quick'])).stdout).toContain('rl-dense: reward');
  const value = JSON.parse(readFileSync(join(place.runs, 'tiny-quick/value/summary.json'), 'utf8'));
  expect(value.measured.attempts).toBeGreaterThan(5);
  const chosen = place.lines('tiny-quick/rerank/predictions.jsonl');
  expect(chosen).toHaveLength(24);

  // Published data: out, and in again as the source of a training.
  const file = join(place.dir, 'mine.parquet');
  expect((await place.run(['data', 'export', 'tiny-quick', 'collect', file])).stderr).toContain('48 episodes');
  expect(existsSync(file)).toBe(true);
  const recipe = place.recipe(
    'from-data',
    `stages:\n  - sft: { from: [], datasets: [${file}], credit: none, epochs: 1, batchRows: 8, learningRate: 1.0e-3 }\n`,
  );
  const trained = await place.run(['train', 'sft', recipe]);
  expect(trained.code, trained.stderr).toBe(0);
  const full = place.lines('from-data/sft/selection.jsonl').filter(({ use }) => use === 'full');
  expect(full).toHaveLength(selection.filter(({ use }) => use === 'full').length);
});
