import { join } from 'node:path';
import { userError } from '../core/errors.ts';
import { readJson } from '../core/folder.ts';
import { Weights } from '../records/weights.ts';
import { finishedStage, type StageContext } from './context.ts';

/** The weights a name stands for: `base`, or a finished training stage. @throws OrchardError owner `user` */
export async function weightsOf(context: StageContext, name: string): Promise<Weights> {
  if (name === 'base') {
    if (context.base === null)
      throw userError('model.base', 'the recipe has no base model', 'set model.base to a model folder');
    return context.base;
  }
  // Kept relative to the run, so that a run folder can be moved.
  const dir = finishedStage(context, name);
  const kept = Weights.parse(await readJson(join(dir, 'weights.json')));
  return { ...kept, path: join(dir, kept.path) };
}
