import { z } from 'zod';
import { userError } from '../../core/errors.ts';
import type { Benchmark } from '../../ports/benchmark.ts';
import { gradePatch } from '../swe-bench/grade.ts';
import { rowsToTasks } from '../swe-bench/rows.ts';
import { corpus } from './corpus.ts';
import { judge } from './judge.ts';
import { tinyRows } from './rows.ts';
import { rubric } from './rubric.ts';
import { teacher } from './teacher.ts';

const config = z.strictObject({
  count: z.number().int().positive().max(300).default(240).describe('tasks of each split'),
  extra: z.number().int().min(0).max(10_000).default(0).describe('further training tasks, of made-up words'),
  seed: z.number().int().default(1).describe('which tasks are made'),
});

type Config = z.infer<typeof config>;

/** Made-up repositories of a few Python files with one defect each, small enough for a model of two million parameters. */
export const tiny: Benchmark<Config> & { rows(split: string, settings: Config): unknown[] } = {
  name: 'tiny',
  config,
  rows(split, { count, extra, seed }) {
    if (split !== 'train' && split !== 'test')
      throw userError(split, `tiny has no split ${split}`, 'use train or test');
    const further = split === 'train' ? tinyRows('extra', { count: extra, seed }) : [];
    return [...tinyRows(split, { count, seed }), ...further];
  },
  async tasks(settings, split) {
    return rowsToTasks(tiny.rows(split, settings), { benchmark: 'tiny', source: `tiny ${split}` });
  },
  grade: gradePatch,
  scripted: { teacher, judge, rubric },
  corpus,
};
