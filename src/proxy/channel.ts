import type { ServerResponse } from 'node:http';
import type { Agent } from 'undici';
import type { Blobs } from '../core/blobs.ts';
import type { JsonlWriter } from '../core/jsonl.ts';
import type { Call } from '../records/call.ts';
import type { BlobRef, Failure } from '../records/common.ts';
import { type ChatRequest, readRequest, streamOf } from './chat.ts';
import { openLineage } from './lineage.ts';
import { refuse } from './refuse.ts';
import { type Answer, ask, type Upstream } from './upstream.ts';

export interface EpisodeOptions {
  episode: string;
  task: string;
  session: string;
  /** Caps of the whole episode: calls, prompt and completion tokens, milliseconds from now. */
  limits: { calls: number; tokens: number; wallMs: number };
}

interface Stored {
  sha256: string;
  bytes: Buffer;
}

export interface Channel {
  handle(body: Buffer, response: ServerResponse): Promise<void>;
  stats(): {
    calls: number;
    tokens: { prompt: number; completion: number };
    failure: Failure | undefined;
    /** What the engine said to the last request that it refused. */
    refusal: string | undefined;
  };
  close(): Promise<void>;
}

/** Told to a harness that has used up its share; it says which. */
export const BUDGET = 'orchard_budget_exhausted';
/** Told to a harness when the engine cannot be used; the episode is then an infrastructure failure. */
export const UPSTREAM_FAILED = 'orchard_upstream_failed';

/** Keeps idle connections open while an engine thinks. */
const KEEP_ALIVE_MS = 15_000;

/** The calls of one episode: forwarded, capped, recorded. */
export function openChannel(
  options: EpisodeOptions & { agent: Agent; blobs: Blobs; calls: JsonlWriter; upstream: Upstream },
): Channel {
  const { episode, session, limits, upstream, blobs } = options;
  const deadline = Date.now() + limits.wallMs;
  const ended = new AbortController();
  const lineage = openLineage();
  const tokens = { prompt: 0, completion: 0 };
  const recording = new Set<Promise<void>>();
  let calls = 0;
  /** Until an engine has replied once, time that runs out is its own. */
  let answered = false;
  let failure: Failure | undefined;
  let refusal: string | undefined;
  const last: { request?: Stored; response?: Stored } = {};

  const exhausted = (): string | null => {
    if (calls >= limits.calls) return 'calls';
    if (tokens.prompt + tokens.completion >= limits.tokens) return 'tokens';
    return Date.now() >= deadline ? 'wall' : null;
  };

  const handle = async (body: Buffer, response: ServerResponse): Promise<void> => {
    const limit = exhausted();
    if (limit) return refuse(response, 400, `this episode has used up its ${limit}`, { code: BUDGET, limit });
    let read: { request: ChatRequest; forward: Buffer };
    try {
      read = readRequest(body, upstream);
    } catch (error) {
      return refuse(response, 400, `the request cannot be read: ${(error as Error).message}`);
    }
    const seq = calls++;
    const startedAt = Date.now();
    const hungUp = new AbortController();
    response.once('close', () => {
      if (!response.writableFinished) hungUp.abort();
    });
    const untilDeadline = AbortSignal.timeout(Math.max(1, deadline - Date.now()));
    const waiting = read.request.stream ? keepAlive(response) : null;
    const tries: Call['upstream'] = [];
    let answer: Answer | null = null;
    try {
      answer = await ask(options.agent, upstream, {
        body: read.forward,
        headers: {
          'x-orchard-episode': encodeURIComponent(episode),
          'x-orchard-task': encodeURIComponent(options.task),
        },
        signal: AbortSignal.any([hungUp.signal, untilDeadline, ended.signal]),
        tries,
      });
    } catch {
      // Hung up, out of time or closed: the call is recorded without an answer.
      const isEngine = untilDeadline.aborted && (tries.length > 0 || !answered);
      if (isEngine)
        answer = { kind: 'failed', cause: tries.at(-1)?.error ?? `gave no reply in ${limits.wallMs / 1000} s` };
    }
    answered ||= answer?.kind === 'reply';
    clearInterval(waiting ?? undefined);
    const status =
      answer === null
        ? hungUp.signal.aborted
          ? 499
          : 400
        : answer.kind === 'reply'
          ? 200
          : answer.kind === 'refused'
            ? answer.status
            : 502;
    // Before the harness hears it: its next call, which builds on this one, must not seem to overlap it.
    const endedAt = Date.now();
    const delivered = tell(response, { answer, request: read.request, status });
    if (answer?.kind === 'refused') refusal = answer.body.toString('utf8', 0, 300);
    if (answer?.kind === 'failed') {
      failure ??= {
        owner: 'provider',
        code: codeOf(tries.at(-1)?.status ?? null),
        id: episode,
        cause: `the model at ${upstream.baseUrl} ${answer.cause}`,
        wayOut: 'see that it runs and answers, then run the same command again',
      };
    }
    const record = keep({ body, seq, startedAt, endedAt, tries, read, answer, status, delivered });
    recording.add(record);
    record.then(
      () => recording.delete(record),
      () => {}, // close() hears of it
    );
  };

  /** Requests repeat the conversation so far, and replies its prompt ids. */
  const store = async (part: 'request' | 'response', bytes: Buffer): Promise<BlobRef> => {
    const ref = await blobs.put(bytes, last[part]);
    last[part] = { sha256: ref.sha256, bytes };
    return ref;
  };

  const keep = async (call: {
    body: Buffer;
    seq: number;
    startedAt: number;
    endedAt: number;
    tries: Call['upstream'];
    read: { request: ChatRequest };
    answer: Answer | null;
    status: number;
    delivered: Promise<Call['delivered']>;
  }): Promise<void> => {
    const { answer } = call;
    const id = `${session}-${call.seq}`;
    const reply = answer?.kind === 'reply' ? answer.reply : null;
    // Decided before anything is awaited: the next call builds on this one.
    const prompt = reply?.promptIds ? lineage.encode(reply.promptIds) : { base: null, keep: 0, tail: [] };
    if (reply?.promptIds && reply.completionIds) lineage.remember(id, reply.promptIds, reply.completionIds);
    tokens.prompt += reply?.usage.prompt ?? 0;
    tokens.completion += reply?.usage.completion ?? 0;
    const request = await store('request', call.body);
    const response =
      answer?.kind === 'reply' || answer?.kind === 'refused' ? await store('response', answer.body) : null;
    await options.calls.append({
      v: 'orchard.call/1',
      id,
      episode,
      session,
      seq: call.seq,
      api: 'chat',
      stream: call.read.request.stream,
      request,
      response,
      status: call.status,
      kind: 'main',
      thread: null,
      parentThread: null,
      finish: reply ? reply.finish : call.status === 499 ? 'abort' : 'error',
      tokens: {
        source: reply?.promptIds && reply.completionIds ? 'engine' : 'none',
        prompt,
        completion: reply?.completionIds ?? [],
        logprobs: reply?.logprobs ?? null,
        version: reply?.version ?? null,
      },
      usage: reply?.usage ?? { prompt: 0, completion: 0 },
      upstream: call.tries,
      delivered: await call.delivered,
      startedAt: call.startedAt,
      endedAt: call.endedAt,
    } satisfies Call);
  };

  return {
    handle,
    stats: () => ({ calls, tokens: { ...tokens }, failure, refusal }),
    async close() {
      ended.abort();
      await Promise.all(recording);
    },
  };
}

/** What a status says of the engine: an answer that is none, a refusal, or nothing at all. */
const codeOf = (status: number | null): string =>
  status === 200 ? 'model_rubbish' : [401, 403, 404].includes(status ?? 0) ? 'model_refused' : 'model_unreachable';

/** Sends comments while there is nothing to say; harnesses skip them and the connection stays. */
function keepAlive(response: ServerResponse): NodeJS.Timeout {
  return setInterval(() => {
    if (!response.headersSent)
      response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
    response.write(': waiting\n\n');
  }, KEEP_ALIVE_MS);
}

/** Answers the harness; resolves with how much of it got through. */
function tell(
  response: ServerResponse,
  { answer, request, status }: { answer: Answer | null; request: ChatRequest; status: number },
): Promise<Call['delivered']> {
  if (response.destroyed) return Promise.resolve('none');
  const begun = response.headersSent; // a stream that was kept alive: errors can only end it
  if (answer?.kind === 'reply') {
    const body = request.stream ? streamOf(answer.reply, request) : answer.body;
    if (!begun)
      response.writeHead(
        200,
        request.stream
          ? { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' }
          : { 'content-type': 'application/json', 'content-length': body.length },
      );
    return new Promise((resolve) => {
      response.once('close', () => resolve(response.writableFinished ? 'full' : 'partial'));
      response.end(body);
    });
  }
  if (begun) response.destroy();
  else if (answer?.kind === 'refused')
    response
      .writeHead(status, { 'content-type': 'application/json', 'content-length': answer.body.length })
      .end(answer.body);
  else if (answer?.kind === 'failed') refuse(response, status, `the model ${answer.cause}`, { code: UPSTREAM_FAILED });
  else refuse(response, status, 'this episode has used up its wall', { code: BUDGET, limit: 'wall' });
  return Promise.resolve('none');
}
