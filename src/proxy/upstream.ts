import { setTimeout as sleep } from 'node:timers/promises';
import type { Agent } from 'undici';
import type { Call } from '../records/call.ts';
import { type ChatReply, readReply } from './chat.ts';

export interface Upstream {
  /** Ends in `/v1`. */
  baseUrl: string;
  apiKey: string | null;
  model: string;
  /** Whether the engine gives token ids and log-probabilities when asked. */
  tokenIds: boolean;
}

/** What came of a request: a reply, a refusal that is the harness's to hear, or a failure of the provider. */
export type Answer =
  | { kind: 'reply'; body: Buffer; reply: ChatReply }
  | { kind: 'refused'; status: number; body: Buffer }
  | { kind: 'failed'; cause: string };

const TRIES = 5;
const FIRST_DELAY_MS = 500;
const MAX_DELAY_MS = 30_000;
const CALL_TIMEOUT_MS = 15 * 60_000;

/**
 * Asks the engine, again where that can help: connection errors, 429 with Retry-After, 5xx, replies that are no
 * replies. Nothing has been told to the harness before, so it never notices.
 * @param tries filled with each try, also when this throws
 * @throws the abort reason when `signal` is aborted
 */
export async function ask(
  agent: Agent,
  upstream: Upstream,
  {
    body,
    headers,
    signal,
    tries,
  }: { body: Buffer; headers: Record<string, string>; signal: AbortSignal; tries: Call['upstream'] },
): Promise<Answer> {
  for (let attempt = 1; ; attempt++) {
    const started = performance.now();
    let retryAfterMs = 0;
    let cause: string;
    try {
      const response = await agent.request({
        origin: new URL(upstream.baseUrl).origin,
        path: `${new URL(upstream.baseUrl).pathname}/chat/completions`,
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          ...(upstream.apiKey ? { authorization: `Bearer ${upstream.apiKey}` } : {}),
          ...headers,
        },
        body,
        signal: AbortSignal.any([signal, AbortSignal.timeout(CALL_TIMEOUT_MS)]),
      });
      const answer = Buffer.from(await response.body.arrayBuffer());
      const { statusCode: status } = response;
      const note = (error: string | null): void => void tries.push({ status, error, ms: performance.now() - started });
      if (status === 200) {
        try {
          const reply = readReply(answer);
          note(null);
          return { kind: 'reply', body: answer, reply };
        } catch (error) {
          cause = `answered rubbish: ${(error as Error).message}`;
          note(cause);
        }
      } else {
        cause = `answered ${status}: ${answer.toString('utf8', 0, 300)}`;
        note(cause);
        if (status === 401 || status === 403 || status === 404) return { kind: 'failed', cause };
        if (status < 500 && status !== 429 && status !== 408) return { kind: 'refused', status, body: answer };
        retryAfterMs = 1000 * (Number(response.headers['retry-after']) || 0);
      }
    } catch (error) {
      signal.throwIfAborted();
      cause = `cannot be reached: ${(error as Error).message || (error as { code?: string }).code}`;
      tries.push({ status: null, error: cause, ms: performance.now() - started });
    }
    if (attempt >= TRIES) return { kind: 'failed', cause };
    const backoffMs = FIRST_DELAY_MS * 2 ** (attempt - 1) * (0.5 + Math.random() / 2);
    await sleep(Math.min(MAX_DELAY_MS, Math.max(retryAfterMs, backoffMs)), undefined, { signal });
  }
}
