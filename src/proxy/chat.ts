import type { ChatMessage } from '../ports/inference.ts';

/** The parts of a chat request that are read here; everything else passes by untouched. */
export interface ChatRequest {
  stream: boolean;
  /** Whether a stream ends with a chunk that counts tokens. */
  includeUsage: boolean;
}

/** The parts of a chat reply that are read here (OpenAI's fields, and vLLM's for token ids). */
export interface ChatReply {
  id: string;
  model: string;
  message: ChatMessage;
  finish: 'stop' | 'length' | 'tool_calls';
  usage: { prompt: number; completion: number };
  promptIds: number[] | null;
  completionIds: number[] | null;
  logprobs: number[] | null;
  version: string | null;
}

/** Asked of the engine whatever the harness wants: the ids and log-probabilities that training needs, in one piece. */
const WANTED = { stream: false, return_token_ids: true, logprobs: true } as const;

/**
 * Reads a request and writes the one for the engine. Fields are spliced in front of the closing brace, so that the
 * rest goes on byte for byte; only a request that names one of them differently is written anew.
 * @throws SyntaxError when the body is not a JSON object with messages
 */
export function readRequest(body: Buffer, want: { tokenIds: boolean }): { request: ChatRequest; forward: Buffer } {
  const parsed = JSON.parse(body.toString()) as Record<string, unknown>;
  if (typeof parsed !== 'object' || parsed === null || !Array.isArray(parsed.messages))
    throw new SyntaxError('messages: expected a list');
  const request = {
    stream: parsed.stream === true,
    includeUsage: (parsed.stream_options as { include_usage?: boolean } | undefined)?.include_usage === true,
  };
  const wanted: Record<string, unknown> = want.tokenIds ? WANTED : { stream: false };
  const missing = Object.entries(wanted).filter(([key]) => !(key in parsed));
  const conflicts =
    'stream_options' in parsed || Object.entries(wanted).some(([key, value]) => key in parsed && parsed[key] !== value);
  if (conflicts) {
    const { stream_options: _, ...rest } = parsed;
    return { request, forward: Buffer.from(JSON.stringify({ ...rest, ...wanted })) };
  }
  if (missing.length === 0) return { request, forward: body };
  const extra = missing.map(([key, value]) => `,${JSON.stringify(key)}:${JSON.stringify(value)}`).join('');
  const end = body.lastIndexOf('}');
  return { request, forward: Buffer.concat([body.subarray(0, end), Buffer.from(extra), body.subarray(end)]) };
}

/** @throws Error saying what makes the reply unusable */
export function readReply(body: Buffer): ChatReply {
  const parsed = JSON.parse(body.toString()) as {
    id?: string;
    model?: string;
    version?: string;
    prompt_token_ids?: number[] | null;
    usage?: { prompt_tokens?: number; completion_tokens?: number };
    choices?: {
      message?: ChatMessage;
      finish_reason?: string;
      token_ids?: number[] | null;
      logprobs?: { content?: { logprob: number }[] | null } | null;
    }[];
  };
  const choice = parsed.choices?.[0];
  if (!choice?.message) throw new Error('the reply has no choices[0].message');
  checkMessage(choice.message);
  const promptIds = parsed.prompt_token_ids ?? null;
  const completionIds = choice.token_ids ?? null;
  const usage = {
    prompt: parsed.usage?.prompt_tokens ?? promptIds?.length ?? 0,
    completion: parsed.usage?.completion_tokens ?? completionIds?.length ?? 0,
  };
  if (promptIds && parsed.usage?.prompt_tokens !== undefined && promptIds.length !== usage.prompt) {
    throw new Error(`the reply has ${promptIds.length} prompt ids but counts ${usage.prompt} prompt tokens`);
  }
  const logprobs = choice.logprobs?.content?.map(({ logprob }) => logprob) ?? null;
  if (completionIds && logprobs && logprobs.length !== completionIds.length) {
    throw new Error(`the reply has ${completionIds.length} completion ids but ${logprobs.length} log-probabilities`);
  }
  const { finish_reason: finish = 'stop' } = choice;
  return {
    id: parsed.id ?? '',
    model: parsed.model ?? '',
    message: choice.message,
    finish: finish === 'length' || finish === 'tool_calls' ? finish : 'stop',
    usage,
    promptIds,
    completionIds,
    logprobs,
    version: parsed.version ?? null,
  };
}

/** What every harness relies on. @throws Error saying what is wrong */
function checkMessage({ content, tool_calls: calls }: ChatMessage): void {
  if (content != null && typeof content !== 'string') throw new Error('content: expected text');
  for (const call of calls ?? []) {
    if (typeof call?.function?.name !== 'string' || typeof call.function.arguments !== 'string')
      throw new Error('tool_calls: expected function.name and function.arguments as text');
  }
}

/** The stream that a harness expects, made from a whole reply (OpenAI chat completion chunks). */
export function streamOf(reply: ChatReply, { includeUsage }: { includeUsage: boolean }): Buffer {
  const head = {
    id: reply.id,
    object: 'chat.completion.chunk',
    created: Math.floor(Date.now() / 1000),
    model: reply.model,
  };
  const chunk = (delta: object, finish: string | null): string =>
    `data: ${JSON.stringify({ ...head, choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
  const { content, reasoning_content, tool_calls: calls = [] } = reply.message;
  const parts = [chunk({ role: 'assistant', content: '' }, null)];
  if (reasoning_content) parts.push(chunk({ reasoning_content }, null));
  if (content) parts.push(chunk({ content }, null));
  for (const [index, call] of (calls ?? []).entries()) parts.push(chunk({ tool_calls: [{ index, ...call }] }, null));
  parts.push(chunk({}, reply.finish));
  if (includeUsage) {
    const { prompt, completion } = reply.usage;
    parts.push(
      `data: ${JSON.stringify({ ...head, choices: [], usage: { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion } })}\n\n`,
    );
  }
  parts.push('data: [DONE]\n\n');
  return Buffer.from(parts.join(''));
}
