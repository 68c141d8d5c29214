import { join } from 'node:path';
import { z } from 'zod';
import { judgeMessages, parseKeySteps } from '../algo/credit.ts';
import { failureOf, OrchardError } from '../core/errors.ts';
import { openJsonl, readJsonl } from '../core/jsonl.ts';
import { retry } from '../core/retry.ts';
import type { Inference } from '../ports/inference.ts';
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
    const reply = await askModel(model, { trajectory, signal: context.signal });
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

/** @throws OrchardError owner `reward` when the judge cannot be reached or does not answer like a chat model */
async function askModel(
  model: Inference,
  { trajectory, signal }: { trajectory: Trajectory; signal: AbortSignal },
): Promise<{ text: string; tokens: number; problem: string | null }> {
  const body = JSON.stringify({ model: model.model, temperature: 0, messages: judgeMessages(trajectory) });
  try {
    return await retry({ tries: 4, firstDelayMs: 1000, signal }, async () => {
      const response = await fetch(`${model.baseUrl}/chat/completions`, {
        method: 'POST',
        signal: AbortSignal.any([signal, AbortSignal.timeout(300_000)]),
        headers: {
          'content-type': 'application/json',
          ...(model.apiKey ? { authorization: `Bearer ${model.apiKey}` } : {}),
        },
        body,
      });
      const text = await response.text();
      // A refusal of this one attempt, e.g. for its length, would be the same again.
      if ([400, 413, 422].includes(response.status))
        return { text: '', tokens: 0, problem: `the judge answered ${response.status}: ${text.slice(0, 200)}` };
      if (!response.ok) throw new Error(`the judge answered ${response.status}: ${text.slice(0, 200)}`);
      const reply = JSON.parse(text) as {
        choices: { message: { content: string } }[];
        usage?: { total_tokens?: number };
      };
      const content = reply.choices[0]?.message.content;
      const tokens = reply.usage?.total_tokens ?? 0;
      if (typeof content !== 'string') return { text: '', tokens, problem: 'the judge answered without content' };
      return { text: content, tokens, problem: null };
    });
  } catch (error) {
    signal.throwIfAborted();
    const failure = failureOf(error, {
      owner: 'reward',
      code: 'judge_unreachable',
      id: trajectory.id,
      wayOut: 'check judge in the recipe and run again: judged episodes are kept',
    });
    throw new OrchardError(failure, { cause: error });
  }
}
