import { join } from 'node:path';
import { z } from 'zod';
import { readJson, writeJson } from '../../core/folder.ts';
import { silent } from '../../core/progress.ts';
import type { Inference } from '../../ports/inference.ts';
import type { SandboxDriver } from '../../ports/sandbox.ts';
import type { Task } from '../../records/task.ts';
import type { StageContext } from '../context.ts';
import { checkInfrastructure, countOutcomes } from '../outcomes.ts';
import { runRollouts } from '../rollouts.ts';
import type { Config } from './config.ts';
import { versionFolder } from './learner.ts';

/** validation.json: resolve counts of the versions that were validated, on training tasks that are never prompts. */
const Validated = z.strictObject({ batches: z.number().int(), resolved: z.number().int(), total: z.number().int() });
export type Validated = z.infer<typeof Validated>;

/**
 * The latest version within one standard error of the one that resolved most (the rule of Breiman et al. 1984): so few tasks
 * do not tell such versions apart, and the later one has learnt more. `validated` is in the order of training.
 */
export function bestOf(validated: Validated[]): Validated | null {
  const rates = validated.map(({ resolved, total }) => resolved / total);
  const most = Math.max(...rates);
  return validated.findLast(({ total }, at) => rates[at]! >= most - Math.sqrt((most * (1 - most)) / total)) ?? null;
}

export interface Validate {
  /** One attempt on each task, sampled as the rollouts are, with the weights of so many batches, when they are due. */
  (batches: number): Promise<void>;
  readonly results: Validated[];
}

export async function openValidation(
  context: StageContext,
  {
    dir,
    settings,
    tasks,
    inference,
    sandboxes,
  }: { dir: string; settings: Config; tasks: Task[]; inference: Inference; sandboxes: SandboxDriver },
): Promise<Validate> {
  const file = join(dir, 'validation.json');
  const results = Validated.array().parse(await readJson(file).catch(() => []));
  const validate = async (batches: number): Promise<void> => {
    const isDue = batches % settings.validate.every === 0 || batches === settings.steps;
    if (tasks.length === 0 || !isDue || results.some((each) => each.batches === batches)) return;
    const outcomes = await runRollouts(
      { ...context, progress: silent },
      {
        dir: join(dir, 'validation', versionFolder(batches)),
        scope: `${settings.name}.${versionFolder(batches)}`,
        tasks,
        attempts: 1,
        inference,
        sampling: {
          temperature: settings.temperature,
          topP: settings.topP,
          maxTokensPerCall: settings.maxTokensPerCall,
        },
        label: 'validation',
      },
      sandboxes,
    );
    checkInfrastructure(outcomes, `${settings.name} validation`);
    const { resolved, failed, empty_patch } = countOutcomes(outcomes.values());
    results.push({ batches, resolved, total: resolved + failed + empty_patch });
    results.sort((a, b) => a.batches - b.batches);
    await writeJson(file, results);
  };
  return Object.assign(validate, { results });
}
