import { join } from 'node:path';
import { z } from 'zod';
import { judgeMessages, parseKeySteps } from '../algo/credit.ts';
import { OrchardError } from '../core/errors.ts';
import { openJsonl, readJsonl } from '../core/jsonl.ts';
import { askModel } from './ask.ts';
import type { StageContext } from './context.ts';
import type { Trajectory } from './trajectories.ts';

/** values.jsonl: the judge's word on one episode, or why there is none. Kept, so that a judge is paid once. */
export const JudgeRecord = z.strictObject({
  episode: z.string(),
  steps: z.array(z.strictObject({ step: z.number().int(), value: z.number() })).nullable(),
  problem: z.string().nullable(),
  tokens: z.number().int(),
});
export type JudgeRecord = z.infer<typeof JudgeRecord>;

export interface Judge extends AsyncDisposable {
  /** Key steps with P(resolve), or null and why; asks only once per episode. */
  judge(trajectory: Trajectory): Promise<JudgeRecord>;
}

/**
 * Opens the recipe's judge, or the benchmark's scripted one, over the values already in `dir`.
 * @throws OrchardError owner `reward`, code `judge_budget`, once `limits.judgeTokens` are spent
 */
export async function openJudge(context: StageContext, dir: string): Promise<Judge> {
  const tokens = context.limits.judgeTokens;
  const file = join(dir, 'values.jsonl');
  const known = new Map<string, JudgeRecord>();
  for await (const record of readJsonl(file, JudgeRecord)) known.set(record.episode, record);
  let spent = [...known.values()].reduce((sum, record) => sum + record.tokens, 0);
  const writer = await openJsonl(file);
  const model = context.openJudge ? await context.openJudge(join(dir, 'judge')) : null;
  const scripted = context.benchmark.scripted?.judge;

  const ask = async (trajectory: Trajectory): Promise<JudgeRecord> => {
    const { id, judged, messages } = trajectory;
    if (model === null) {
      if (!scripted || !judged) return { episode: id, steps: null, problem: 'no judge for it', tokens: 0 };
      return { episode: id, steps: scripted(judged), problem: null, tokens: 0 };
    }
    if (spent >= tokens) {
      throw new OrchardError({
        owner: 'reward',
        code: 'judge_budget',
        id,
        cause: `the judge has spent its ${tokens} tokens, ${known.size} attempts are judged`,
        wayOut: 'raise limits.judgeTokens and run again: what was judged is kept',
      });
    }
    const question = { id, messages: judgeMessages(trajectory), temperature: 0, signal: context.signal };
    const reply = await askModel(model, question);
    spent += reply.tokens;
    if (reply.problem) return { episode: id, steps: null, problem: reply.problem, tokens: reply.tokens };
    const turns = messages.filter(({ role }) => role === 'assistant').length;
    try {
      return { episode: id, steps: parseKeySteps(reply.text, turns), problem: null, tokens: reply.tokens };
    } catch (error) {
      return { episode: id, steps: null, problem: (error as Error).message, tokens: reply.tokens };
    }
  };

  return {
    async judge(trajectory) {
      const before = known.get(trajectory.id);
      if (before) return before;
      const record = await ask(trajectory);
      known.set(trajectory.id, record);
      await writer.append(record);
      return record;
    },
    async [Symbol.asyncDispose]() {
      await writer[Symbol.asyncDispose]();
      await model?.[Symbol.asyncDispose]();
    },
  };
}
