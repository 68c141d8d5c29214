import { join } from 'node:path';
import { z } from 'zod';
import { failureOf, OrchardError, userError } from '../../core/errors.ts';
import { openJsonl, readJsonl } from '../../core/jsonl.ts';
import { forEachLimited } from '../../core/limit.ts';
import { retry } from '../../core/retry.ts';
import { loadChat } from '../../data/chat.ts';
import type { Inference } from '../../ports/inference.ts';
import type { Sample } from '../../records/sample.ts';
import type { StageContext } from '../context.ts';
import { weightsOf } from '../weights.ts';
import type { Config } from './config.ts';

/** scores.jsonl: the teacher's log-probabilities of one sample's tokens, 0 for the first; null and why when it failed. */
const Scored = z.strictObject({
  sample: z.string(),
  logprobs: z.array(z.number()).nullable(),
  problem: z.string().nullable(),
});
export type Scored = z.infer<typeof Scored>;

export interface Teacher extends AsyncDisposable {
  /** Scores by sample; those that `dir` has already are not asked for again. A failure concerns one sample only. */
  score(samples: Sample[], dir: string): Promise<Map<string, Scored>>;
}

const SCORE_TIMEOUT_MS = 600_000;

/** Words whose ids tell tokenizers apart: spaces, digits, code, other scripts, a control token. */
const PROBE = '<|im_start|>def  f(x1):\n\treturn x1 == 1234567 # Ünïcödé 漢字 🌳 <think>';

/**
 * Opens who scores the policy's tokens, and sees that it has the same tokenizer.
 * @throws OrchardError owner `user` when it has another one or cannot score
 */
export async function openTeacher(
  context: StageContext,
  {
    settings,
    dir,
    policy,
  }: { settings: NonNullable<Config['distill']> & { temperature: number }; dir: string; policy: string },
): Promise<Teacher> {
  const { teacher: name } = settings;
  const model =
    name === 'scorer'
      ? await context.openScorer(join(dir, 'teacher'))
      : await context.openInference(await weightsOf(context, name), join(dir, 'teacher'));
  try {
    await sameTokenizer(context, { model, name, policy });
  } catch (error) {
    await model[Symbol.asyncDispose]();
    throw error;
  }
  return {
    async score(samples, stepDir) {
      const file = join(stepDir, 'scores.jsonl');
      const known = new Map<string, Scored>();
      for await (const line of readJsonl(file, Scored)) known.set(line.sample, line);
      await using writer = await openJsonl(file);
      const missing = samples.filter(({ id }) => !known.has(id));
      await forEachLimited(missing, context, async (sample) => {
        const scored = await scoreSample(context, { model, sample, temperature: settings.temperature });
        if (context.signal.aborted) return;
        await writer.append(scored);
        known.set(sample.id, scored);
      });
      context.signal.throwIfAborted();
      return known;
    },
    [Symbol.asyncDispose]: () => model[Symbol.asyncDispose](),
  };
}

async function scoreSample(
  context: StageContext,
  { model, sample, temperature }: { model: Inference; sample: Sample; temperature: number },
): Promise<Scored> {
  const { id, tokens } = sample;
  try {
    const logprobs = await retry({ tries: 3, firstDelayMs: 1000, signal: context.signal }, () =>
      promptLogprobs(model, { ids: tokens, temperature, signal: context.signal }),
    );
    return { sample: id, logprobs, problem: null };
  } catch (error) {
    return { sample: id, logprobs: null, problem: (error as Error).message.slice(0, 300) };
  }
}

interface Completion {
  choices: { prompt_logprobs?: (Record<string, { logprob: number }> | null)[]; prompt_token_ids?: number[] }[];
}

/**
 * log p(ids[t] | ids[<t]) for every t, 0 for the first: one prefill by the engine, over vLLM's completions wire.
 * @throws Error when the engine refuses or leaves out a token
 */
async function promptLogprobs(
  model: Inference,
  { ids, temperature, signal }: { ids: number[]; temperature: number; signal: AbortSignal },
): Promise<number[]> {
  const reply = await complete(model, { prompt: ids, temperature, signal });
  const given = reply.choices[0]?.prompt_logprobs;
  if (given?.length !== ids.length) throw new Error(`the teacher scored ${given?.length ?? 0} of ${ids.length} tokens`);
  return ids.map((id, at) => {
    if (at === 0) return 0;
    const logprob = given[at]?.[String(id)]?.logprob;
    if (typeof logprob !== 'number' || !Number.isFinite(logprob))
      throw new Error(`the teacher gave token ${at} no finite score`);
    return logprob;
  });
}

async function complete(
  model: Inference,
  { prompt, temperature, signal }: { prompt: number[] | string; temperature: number; signal: AbortSignal },
): Promise<Completion> {
  const response = await fetch(`${model.baseUrl}/completions`, {
    method: 'POST',
    signal: AbortSignal.any([signal, AbortSignal.timeout(SCORE_TIMEOUT_MS)]),
    headers: {
      'content-type': 'application/json',
      ...(model.apiKey ? { authorization: `Bearer ${model.apiKey}` } : {}),
    },
    body: JSON.stringify({
      model: model.model,
      prompt,
      max_tokens: 1,
      prompt_logprobs: 0,
      temperature,
      return_token_ids: true,
      add_special_tokens: false,
    }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`the teacher answered ${response.status}: ${text.slice(0, 200)}`);
  return JSON.parse(text) as Completion;
}

async function sameTokenizer(
  context: StageContext,
  { model, name, policy }: { model: Inference; name: string; policy: string },
): Promise<void> {
  const ours = (await loadChat(policy)).encode(PROBE);
  let theirs: number[] | undefined;
  try {
    const reply = await complete(model, { prompt: PROBE, temperature: 1, signal: context.signal });
    theirs = reply.choices[0]?.prompt_token_ids;
    if (!theirs || !reply.choices[0]?.prompt_logprobs)
      throw new Error('the reply has no prompt_token_ids or no prompt_logprobs');
  } catch (error) {
    context.signal.throwIfAborted();
    const failure = failureOf(error, {
      owner: 'user',
      code: 'teacher_cannot_score',
      id: name,
      wayOut:
        'distillation needs an engine with prompt_logprobs and return_token_ids on /v1/completions, such as vLLM or torch',
    });
    throw new OrchardError({
      ...failure,
      cause: `the teacher ${name} (${model.baseUrl}) cannot score tokens: ${failure.cause}`,
    });
  }
  if (theirs.join() !== ours.join())
    throw userError(
      'distill.teacher',
      `the teacher ${name} (${model.baseUrl}, ${model.model}) has another tokenizer than the policy (${policy}): a probe gives ${theirs.length} ids ${theirs.slice(0, 6).join(' ')}…, not ${ours.length} ids ${ours.slice(0, 6).join(' ')}…`,
      'use a teacher of the same family, or take distill out',
    );
}
