import { z } from 'zod';
import { OrchardError, userError } from '../core/errors.ts';
import type { Inference, InferenceKind } from '../ports/inference.ts';

const config = z.strictObject({
  baseUrl: z.url().describe('ends in /v1'),
  model: z.string(),
  apiKeyEnv: z.string().optional().describe('environment variable that holds the key'),
});
type Config = z.infer<typeof config>;

/** Any model behind an OpenAI-compatible address: a teacher or a judge. Its weights are not ours to change. */
export const openai: InferenceKind<Config> = {
  name: 'openai',
  config,
  async open({ baseUrl, model, apiKeyEnv }, { weights, secret, signal }) {
    if (weights && weights.version !== 'base')
      throw userError(
        'inference.kind',
        `${baseUrl} answers with ${model}, not with ${weights.version}`,
        'evaluate `base` only, or use inference.kind torch for models that are trained here',
      );
    const apiKey = apiKeyEnv === undefined ? null : (secret(apiKeyEnv) ?? null);
    if (apiKeyEnv !== undefined && apiKey === null)
      throw userError(
        apiKeyEnv,
        `the environment variable ${apiKeyEnv} is not set`,
        `export ${apiKeyEnv}=… and run again`,
      );
    const url = baseUrl.replace(/\/+$/, '');
    const tokenIds = await givesTokenIds({ url, model, apiKey, signal });
    const inference: Inference = {
      baseUrl: url,
      model,
      apiKey,
      capabilities: { tokenIds, logprobs: tokenIds },
      version: () => model,
      async load(weights) {
        throw userError(
          'inference.kind',
          `${url} cannot load ${weights.version}: its weights are not ours`,
          'use inference.kind torch or vllm for models that are trained here',
        );
      },
      async [Symbol.asyncDispose]() {},
    };
    return inference;
  },
};

/**
 * One short call that says whether the address works, and whether the engine gives token ids (vLLM's fields).
 * @throws OrchardError owner `provider` when it cannot be used at all
 */
async function givesTokenIds({
  url,
  model,
  apiKey,
  signal,
}: {
  url: string;
  model: string;
  apiKey: string | null;
  signal: AbortSignal;
}): Promise<boolean> {
  const ask = async (extra: object): Promise<Response> => {
    try {
      return await fetch(`${url}/chat/completions`, {
        method: 'POST',
        signal: AbortSignal.any([signal, AbortSignal.timeout(120_000)]),
        headers: { 'content-type': 'application/json', ...(apiKey ? { authorization: `Bearer ${apiKey}` } : {}) },
        body: JSON.stringify({ model, max_tokens: 1, messages: [{ role: 'user', content: 'Say hi.' }], ...extra }),
      });
    } catch (error) {
      signal.throwIfAborted();
      const { cause } = error as { cause?: Error };
      throw new OrchardError(
        {
          owner: 'provider',
          code: 'model_unreachable',
          id: url,
          cause: `cannot reach ${url}: ${cause?.message || (error as Error).message}`,
          wayOut: 'see that the model runs, and that baseUrl is right',
        },
        { cause: error },
      );
    }
  };
  const full = await ask({ return_token_ids: true, logprobs: true });
  if (full.ok) {
    const reply = (await full.json().catch(() => null)) as { choices?: { token_ids?: unknown }[] } | null;
    if (!Array.isArray(reply?.choices))
      throw new OrchardError({
        owner: 'provider',
        code: 'model_rubbish',
        id: url,
        cause: `${url} does not answer like a chat model`,
        wayOut: 'see that baseUrl ends in /v1 of an OpenAI-compatible server',
      });
    return Array.isArray(reply.choices[0]?.token_ids);
  }
  // Some servers refuse fields that they do not know.
  const plain = await ask({});
  if (plain.ok) return false;
  throw new OrchardError({
    owner: 'provider',
    code: 'model_refused',
    id: url,
    cause: `${url} answered ${plain.status}: ${(await plain.text()).slice(0, 200)}`,
    wayOut: 'check model, key and address of the recipe',
  });
}
