import { join } from 'node:path';
import { readJsonl } from '../../core/jsonl.ts';
import type { TrainerLine } from '../../ports/trainer.ts';

/** Means of what the trainer said about its optimizer steps on one batch. @throws Error when it said nothing */
export async function trainedOn(dir: string, batch: number): Promise<Record<string, number>> {
  const lines: TrainerLine[] = [];
  for await (const line of readJsonl(join(dir, 'metrics.jsonl'))) {
    if ((line as TrainerLine).batch === batch) lines.push(line as TrainerLine);
  }
  if (lines.length === 0) throw new Error(`${join(dir, 'metrics.jsonl')}: no line about batch ${batch}`);
  const names = Object.keys(lines[0]!).filter((name) => typeof lines[0]![name] === 'number');
  const mean = (name: string): number => lines.reduce((sum, line) => sum + Number(line[name]), 0) / lines.length;
  return {
    ...Object.fromEntries(names.map((name) => [name, mean(name)])),
    seconds: lines.reduce((sum, line) => sum + Number(line.seconds), 0),
  };
}
