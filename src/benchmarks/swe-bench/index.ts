import { z } from 'zod';
import type { Benchmark } from '../../ports/benchmark.ts';
import { gradePatch } from './grade.ts';
import { readRows } from './read.ts';
import { rowsToTasks } from './rows.ts';

const config = z.strictObject({
  dataset: z.string().describe('a JSON, JSONL or Parquet file, or a folder with <split>.jsonl and the like'),
});

/** Tasks in SWE-bench's row format from files. */
export const sweBench: Benchmark<z.infer<typeof config>> = {
  name: 'swe-bench',
  config,
  async tasks({ dataset }, split) {
    const { rows, source } = await readRows(dataset, split);
    return rowsToTasks(rows, { benchmark: 'swe-bench', source });
  },
  grade: gradePatch,
};
