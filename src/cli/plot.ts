import { join } from 'node:path';
import { userError } from '../core/errors.ts';
import { writeWhole } from '../core/folder.ts';
import { readJsonl } from '../core/jsonl.ts';
import { RlStep } from '../records/step.ts';
import type { Learned } from './curves.ts';
import type { RunView } from './look.ts';

/** Trained steps of the reinforcement learning stages of a run. @throws OrchardError owner `user` when there are none */
export async function learnedOf(view: RunView, stage?: string): Promise<Learned[]> {
  const stages = view.stages.filter(({ kind, name }) => kind === 'rl' && (stage === undefined || name === stage));
  if (stages.length === 0)
    throw userError(
      stage ?? view.name,
      `run ${view.name} has no stage of reinforcement learning${stage ? ` named ${stage}` : ''}`,
      `its stages: ${view.stages.map(({ name, kind }) => `${name} (${kind})`).join(', ')}`,
    );
  const learned = await Promise.all(
    stages.map(async ({ name }) => ({
      name,
      steps: await Array.fromAsync(readJsonl(join(view.dir, name, 'steps.jsonl'), RlStep)),
    })),
  );
  const begun = learned.filter(({ steps }) => steps.length > 0);
  if (begun.length === 0)
    throw userError(
      view.name,
      `run ${view.name} has not trained a step${stage ? ` of ${stage}` : ''} yet`,
      `see how far it is: orchard status ${view.name}`,
    );
  return begun;
}

const COLUMNS = 66;
const ROWS = 5;

/** Reward, resolve rate and divergence of each stage over its steps, in characters. */
export async function drawText(stages: Learned[]): Promise<string> {
  const { plot } = (await import('asciichart')).default;
  const charts = stages.flatMap(({ name, steps }) => {
    const chart = (title: string, value: (step: RlStep) => number): string => {
      const values = squeeze(steps.map(value));
      const drawn = values.length === 1 ? [values[0]!, values[0]!] : values;
      const isFlat = drawn.every((value) => value === drawn[0]);
      // asciichart rounds the only label of a flat curve to a whole number.
      const format = (label: number): string => {
        const at = isFlat ? drawn[0]! : label;
        return (Math.abs(at) < 0.01 && at !== 0 ? at.toExponential(1) : at.toFixed(2)).padStart(9);
      };
      return `${name}: ${title}, step 0 to ${steps.at(-1)!.step}, last ${format(value(steps.at(-1)!)).trim()}\n${plot(drawn, { height: ROWS, format })}`;
    };
    return [
      chart('reward', ({ reward }) => reward),
      chart('resolve rate', ({ resolveRate }) => resolveRate),
      chart('KL between sampler and trainer', ({ mismatch }) => mismatch),
    ];
  });
  return charts.join('\n\n');
}

/** Means of neighbours, so that the curve fits the terminal. */
function squeeze(values: number[]): number[] {
  if (values.length <= COLUMNS) return values;
  return Array.from({ length: COLUMNS }, (_, column) => {
    const part = values.slice(
      Math.floor((column * values.length) / COLUMNS),
      Math.floor(((column + 1) * values.length) / COLUMNS),
    );
    return part.reduce((sum, value) => sum + value, 0) / part.length;
  });
}

/** @throws OrchardError owner `user` for a file that is no SVG */
export async function writeSvg(file: string, { title, stages }: { title: string; stages: Learned[] }): Promise<void> {
  if (!file.endsWith('.svg'))
    throw userError('--out', `--out ${file}: expected a name ending in .svg`, 'for example --out curves.svg');
  const { drawCurves } = await import('./curves.ts');
  await writeWhole(file, await drawCurves(title, stages));
}
