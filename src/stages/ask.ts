import { failureOf, OrchardError } from '../core/errors.ts';
import { retry } from '../core/retry.ts';
import type { ChatMessage, Inference } from '../ports/inference.ts';

export interface Question {
  /** Names the question in errors: the attempt that is judged. */
  id: string;
  messages: ChatMessage[];
  temperature: number;
  maxTokens?: number;
  signal: AbortSignal;
}

export interface Answer {
  text: string;
  /** Prompt and completion tokens, as the model counts them. */
  tokens: number;
  /** Why this one question has no answer; asked again, it would be the same. */
  problem: string | null;
}

/**
 * One question to a judge, with four tries.
 * @throws OrchardError owner `reward` when the judge cannot be reached or does not answer like a chat model
 */
export async function askModel(
  model: Inference,
  { id, messages, temperature, maxTokens, signal }: Question,
): Promise<Answer> {
  const body = JSON.stringify({
    model: model.model,
    temperature,
    messages,
    ...(maxTokens ? { max_tokens: maxTokens } : {}),
  });
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
      id,
      wayOut: 'check judge in the recipe and run again: judged episodes are kept',
    });
    throw new OrchardError(failure, { cause: error });
  }
}
