import { Agent } from 'undici';
import { OrchardError } from '../../core/errors.ts';
import { asHistory } from '../../data/messages.ts';
import type { Launch } from '../../ports/harness.ts';
import type { ChatMessage } from '../../ports/inference.ts';

export type Answer =
  | { kind: 'message'; message: ChatMessage }
  | { kind: 'limit'; limit: 'calls' | 'tokens' | 'wall' }
  | { kind: 'context' };

/** The proxy waits for the engine as long as it takes; so does the harness. */
const agent = new Agent({ headersTimeout: 0, bodyTimeout: 0, connections: 1024 });

/**
 * One turn of the model.
 * @throws OrchardError owner `provider` when it cannot be had
 */
export async function askModel(
  { episode, endpoint, sampling, signal }: Launch,
  messages: ChatMessage[],
  tools: unknown[],
): Promise<Answer> {
  const fail = (cause: string): OrchardError =>
    new OrchardError({
      owner: 'provider',
      code: 'model_failed',
      id: episode,
      cause,
      wayOut: 'see that the model runs and answers, then run the same command again',
    });
  const url = new URL(endpoint.baseUrl);
  const response = await agent
    .request({
      origin: url.origin,
      path: `${url.pathname}/chat/completions`,
      method: 'POST',
      signal,
      headers: { 'content-type': 'application/json', authorization: `Bearer ${endpoint.apiKey}` },
      body: JSON.stringify({
        model: endpoint.model,
        messages,
        tools,
        temperature: sampling.temperature,
        top_p: sampling.topP,
        max_tokens: sampling.maxTokensPerCall,
      }),
    })
    .catch((error: Error) => {
      signal.throwIfAborted();
      throw fail(`the proxy cannot be reached: ${error.message}`);
    });
  const text = await response.body.text();
  if (response.statusCode === 200) {
    const [choice] = (JSON.parse(text) as { choices: { message: ChatMessage }[] }).choices;
    return { kind: 'message', message: asHistory(choice!.message) };
  }
  const error = errorOf(text);
  if (error.code === 'orchard_budget_exhausted')
    return { kind: 'limit', limit: error.limit as 'calls' | 'tokens' | 'wall' };
  // vLLM says it in words only.
  if (error.code === 'context_length_exceeded' || /maximum context length/i.test(error.message ?? ''))
    return { kind: 'context' };
  throw fail(error.message ?? `the model answered ${response.statusCode}`);
}

function errorOf(text: string): { code?: string; limit?: string; message?: string } {
  try {
    return (JSON.parse(text) as { error?: object }).error ?? {};
  } catch {
    return { message: text.slice(0, 300) };
  }
}
