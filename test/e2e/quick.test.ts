import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Report } from '../../src/records/report.ts';
import { folder } from '../support/orchard.ts';

const place = folder();

test('the quick recipe goes from collecting to the table, and each of its parts can be looked at', {
  timeout: 240_000,
}, async () => {
  const run = await place.run(['run', 'tiny-quick']);
  expect(run.code, run.stderr).toBe(0);
  const report = Report.parse(place.report('tiny-quick'));
  expect(report.rows.map(({ name }) => name)).toEqual(['base', 'sft-resolved', 'sft']);
  for (const { total, classes, infrastructure, resolved, interval, versus, name } of report.rows) {
    expect(total).toBe(24);
    expect(classes.graded + classes.empty_patch + classes.infrastructure + classes.unknown).toBe(24);
    expect(infrastructure).toBe(0);
    expect(interval[0]).toBeLessThanOrEqual(resolved / 24);
    expect(interval[1]).toBeGreaterThanOrEqual(resolved / 24);
    if (name !== 'base')
      expect(versus).toMatchObject({ gained: expect.any(Number), lost: expect.any(Number), p: expect.any(Number) });
  }
  expect(report.rows[1]!.trainedTokens).toBeGreaterThan(1000);
  expect(report.rows[2]!.trainedTokens).toBeGreaterThan(report.rows[1]!.trainedTokens!);
  expect(run.stdout).toContain('sft-resolved');
  expect(run.stdout).toContain('McNemar');

  const page = readFileSync(join(place.runs, 'tiny-quick/report.html'), 'utf8');
  for (const word of ['sft-resolved', '<svg', '<polyline', 'trained tokens']) expect(page).toContain(word);

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
  expect(status.stdout).toMatch(/collect +done +24 attempts/);
  const selection = place.lines('tiny-quick/sft/selection.jsonl') as { id: string; use: string }[];
  const rise = selection.find(({ use }) => use === 'rise')!;
  const shown = await place.run(['show', 'tiny-quick', rise.id]);
  expect(shown.stdout).toMatch(/turn 0 {2}V 0\.\d\d .* credit [+−-]0\.\d\d/);
  expect(shown.stdout).toContain('trained by sft');
  expect((await place.run(['show', 'tiny-quick'])).stdout).toContain('sft against sft-resolved');
  expect((await place.run(['logs', 'tiny-quick', 'sft'])).stdout).toContain('loss');

  // Published data: out, and in again as the source of a training.
  const file = join(place.dir, 'mine.parquet');
  expect((await place.run(['data', 'export', 'tiny-quick', 'collect', file])).stderr).toContain('24 episodes');
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
