import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { mergeCalls } from '../../src/algo/merge.ts';
import { openBlobs, openBlobsReader } from '../../src/core/blobs.ts';
import { openJsonl, readJsonl } from '../../src/core/jsonl.ts';
import { decodePrompts } from '../../src/proxy/lineage.ts';
import { type EpisodeProxy, startProxy } from '../../src/proxy/server.ts';
import { Call } from '../../src/records/call.ts';
import { type Engine, type Play, reply, startEngine } from '../support/engine.ts';

interface Setting {
  engine: Engine;
  episode: EpisodeProxy;
  dir: string;
  /** Ends the episode and reads what was recorded. */
  calls(): Promise<Call[]>;
  ask(body: object | string, options?: { key?: string; path?: string; signal?: AbortSignal }): Promise<Response>;
}

const LIMITS = { calls: 100, tokens: 1_000_000, wallMs: 60_000 };

async function open(
  play: Play,
  { tokenIds = false, limits = {} }: { tokenIds?: boolean; limits?: Partial<typeof LIMITS> } = {},
): Promise<Setting> {
  const dir = await mkdtemp(join(tmpdir(), 'orchard-proxy-'));
  const engine = await startEngine(play);
  const blobs = await openBlobs(join(dir, 'blobs'));
  const calls = await openJsonl(join(dir, 'calls.jsonl'));
  const upstream = { baseUrl: engine.baseUrl, apiKey: 'secret', model: 'm', tokenIds };
  const proxy = await startProxy({ blobs, calls, upstream });
  const episode = proxy.openEpisode({ episode: 'e:1', task: 't/ä', session: 's', limits: { ...LIMITS, ...limits } });
  let closed = false;
  const close = async (): Promise<void> => {
    if (closed) return;
    closed = true;
    await episode.close();
    await proxy[Symbol.asyncDispose]();
    await calls[Symbol.asyncDispose]();
    await blobs[Symbol.asyncDispose]();
    await engine[Symbol.asyncDispose]();
  };
  onTestFinished(async () => {
    await close();
    await rm(dir, { recursive: true, force: true });
  });
  return {
    engine,
    episode,
    dir,
    async calls() {
      await close();
      return await Array.fromAsync(readJsonl(join(dir, 'calls.jsonl'), Call));
    },
    ask: (body, { key = episode.apiKey, path = '/chat/completions', signal } = {}) =>
      fetch(`${episode.baseUrl}${path}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: typeof body === 'string' ? body : JSON.stringify(body),
        ...(signal ? { signal } : {}),
      }),
  };
}

const hello = { model: 'x', messages: [{ role: 'user', content: 'hello' }] };

/** Text and tool calls of a stream, put together as OpenAI's clients do. */
function joined(stream: string): {
  content: string;
  calls: { name: string; arguments: string }[];
  finish: string;
  usage: unknown;
} {
  const events = stream.split('\n\n').filter((event) => event.startsWith('data: '));
  expect(events.at(-1)).toBe('data: [DONE]');
  let content = '';
  let finish = '';
  let usage: unknown = null;
  const calls: { name: string; arguments: string }[] = [];
  for (const event of events.slice(0, -1)) {
    const chunk = JSON.parse(event.slice(6));
    usage = chunk.usage ?? usage;
    const choice = chunk.choices[0];
    if (!choice) continue;
    content += choice.delta.content ?? '';
    finish = choice.finish_reason ?? finish;
    for (const { index, function: made } of choice.delta.tool_calls ?? []) {
      calls[index] ??= { name: '', arguments: '' };
      calls[index].name += made.name ?? '';
      calls[index].arguments += made.arguments ?? '';
    }
  }
  return { content, calls, finish, usage };
}

test('a call passes through and is recorded with its bytes', async () => {
  const setting = await open((_, response) => reply(response, { content: 'hi ä' }));
  const body = '{ "messages" : [ {"role":"user","content":"h\\u00e4"} ],\n "odd_field": 1.0 }\n';
  const answer = await setting.ask(body);
  expect(answer.status).toBe(200);
  const told = Buffer.from(await answer.arrayBuffer());
  expect(JSON.parse(told.toString()).choices[0].message.content).toBe('hi ä');
  const [call] = await setting.calls();
  expect(call).toMatchObject({ episode: 'e:1', seq: 0, status: 200, finish: 'stop', delivered: 'full', stream: false });
  expect(call!.usage).toEqual({ prompt: 3, completion: 2 });
  await using blobs = await openBlobsReader(join(setting.dir, 'blobs'));
  expect((await blobs.get(call!.request.sha256)).toString()).toBe(body);
  expect(await blobs.get(call!.response!.sha256)).toEqual(told);
});

test('the engine gets the request as it was but for what recording needs, its own key, and whose it is', async () => {
  const setting = await open((_, response) => reply(response, { promptIds: [1, 2], completionIds: [3] }), {
    tokenIds: true,
  });
  await setting.ask('{"messages":[],"temperature":0.70}');
  const { raw, headers } = setting.engine.asked[0]!;
  expect(raw).toBe('{"messages":[],"temperature":0.70,"stream":false,"return_token_ids":true,"logprobs":true}');
  expect(headers.authorization).toBe('Bearer secret');
  expect(decodeURIComponent(String(headers['x-orchard-task']))).toBe('t/ä');
});

test('a harness that wants a stream gets one, the engine is asked for one piece', async () => {
  const toolCalls = [
    { id: 'a', type: 'function' as const, function: { name: 'bash', arguments: '{"command":"ls"}' } },
    { id: 'b', type: 'function' as const, function: { name: 'bash', arguments: '{"command":"pwd"}' } },
  ];
  const setting = await open((_, response) => reply(response, { content: 'look', toolCalls }));
  const answer = await setting.ask({ ...hello, stream: true, stream_options: { include_usage: true } });
  expect(answer.headers.get('content-type')).toBe('text/event-stream');
  expect(joined(await answer.text())).toEqual({
    content: 'look',
    calls: toolCalls.map((call) => call.function),
    finish: 'tool_calls',
    usage: { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 },
  });
  expect(setting.engine.asked[0]!.body).toMatchObject({ stream: false });
  expect(setting.engine.asked[0]!.body).not.toHaveProperty('stream_options');
  expect((await setting.calls())[0]).toMatchObject({ stream: true, finish: 'tool_calls', delivered: 'full' });
});

test('each episode has an address and a key of its own', async () => {
  const setting = await open((_, response) => reply(response));
  expect((await setting.ask(hello, { key: 'wrong' })).status).toBe(401);
  const other = setting.episode.baseUrl.replace(/\/e\/[^/]+/, '/e/other');
  expect((await fetch(`${other}/chat/completions`, { method: 'POST' })).status).toBe(404);
  await setting.episode.close();
  expect((await setting.ask(hello)).status).toBe(404);
  expect(setting.engine.asked).toHaveLength(0);
});

test('what is no chat request is refused and costs nothing', async () => {
  const setting = await open((_, response) => reply(response));
  for (const body of ['', 'nonsense', '[]', 'null', '{"messages":1}']) {
    const answer = await setting.ask(body);
    expect(answer.status).toBe(400);
    expect(((await answer.json()) as { error: { message: string } }).error.message).toContain('cannot be read');
  }
  expect(setting.episode.stats()).toMatchObject({ calls: 0, failure: undefined });
});

test('an engine that fails now and then is asked again, unseen by the harness', async () => {
  const setting = await open((_, response, number) => {
    if (number === 0) response.socket!.destroy();
    else if (number === 1) response.writeHead(429, { 'retry-after': '1' }).end('{}');
    else if (number === 2) response.writeHead(200).end('<html>');
    else reply(response);
  });
  const started = Date.now();
  expect((await setting.ask(hello)).status).toBe(200);
  expect(Date.now() - started).toBeGreaterThanOrEqual(1000); // the engine asked for a second
  expect(setting.episode.stats().failure).toBeUndefined();
  const [call] = await setting.calls();
  expect(call!.upstream.map(({ status }) => status)).toEqual([null, 429, 200, 200]);
});

test.each([
  { choices: null },
  { choices: [] },
  { choices: [{ message: { role: 'assistant', content: [{ type: 'text', text: 'x' }] } }] },
  { choices: [{ message: { role: 'assistant', tool_calls: [{ id: 'x' }] } }] },
  {
    choices: [{ message: { role: 'assistant', tool_calls: [{ id: 'x', function: { name: 'bash', arguments: {} } }] } }],
  },
])('a reply that no harness could read is the provider’s: %j', { timeout: 30_000 }, async (body) => {
  const setting = await open((_, response) => void response.end(JSON.stringify(body)), { limits: { wallMs: 1500 } });
  expect((await setting.ask(hello)).status).toBe(502);
  expect(setting.episode.stats().failure).toMatchObject({ owner: 'provider', code: 'model_rubbish' });
});

test('an engine whose key is wrong is not asked again; the failure is the provider’s and named', async () => {
  const setting = await open((_, response) => void response.writeHead(401).end('{"error":"no"}'));
  const answer = await setting.ask(hello);
  expect(answer.status).toBe(502);
  expect(setting.engine.asked).toHaveLength(1);
  expect(setting.episode.stats().failure).toMatchObject({ owner: 'provider', code: 'model_refused', id: 'e:1' });
});

test('a refusal that is the harness’s business reaches it word for word', async () => {
  const words = '{"error":{"message":"too long","code":"context_length_exceeded"}}';
  const setting = await open((_, response) => void response.writeHead(400).end(words));
  const answer = await setting.ask(hello);
  expect([answer.status, await answer.text()]).toEqual([400, words]);
  expect(setting.episode.stats().failure).toBeUndefined();
  expect((await setting.calls())[0]).toMatchObject({ status: 400, finish: 'error' });
});

test('the caps of calls and tokens end an episode with a refusal that names them', async () => {
  const few = await open((_, response) => reply(response), { limits: { calls: 1 } });
  await few.ask(hello);
  const refused = await few.ask(hello);
  expect([refused.status, await refused.json()]).toMatchObject([
    400,
    { error: { code: 'orchard_budget_exhausted', limit: 'calls' } },
  ]);
  const short = await open((_, response) => reply(response), { limits: { tokens: 5 } });
  await short.ask(hello);
  expect(await (await short.ask(hello)).json()).toMatchObject({ error: { limit: 'tokens' } });
  expect(short.engine.asked).toHaveLength(1);
});

test('the cap of time ends even a call that is under way', async () => {
  const setting = await open((_, response, number) => (number === 0 ? reply(response) : undefined), {
    limits: { wallMs: 500 },
  });
  await setting.ask(hello);
  const answer = await setting.ask(hello);
  expect(await answer.json()).toMatchObject({ error: { code: 'orchard_budget_exhausted', limit: 'wall' } });
  await setting.engine.asked[1]!.hungUp;
  expect(setting.episode.stats().failure).toBeUndefined();
});

test('time that runs out while the engine fails, or before it ever replied, is the provider’s', async () => {
  const silent = await open(() => {}, { limits: { wallMs: 300 } });
  expect((await silent.ask(hello)).status).toBe(502);
  expect(silent.episode.stats().failure).toMatchObject({ owner: 'provider' });
  const failing = await open(
    (_, response, number) => (number === 0 ? reply(response) : void response.writeHead(500).end()),
    {
      limits: { wallMs: 700 },
    },
  );
  await failing.ask(hello);
  expect((await failing.ask(hello)).status).toBe(502);
  expect(failing.episode.stats().failure).toMatchObject({ owner: 'provider' });
  expect((await failing.calls())[1]!.upstream.length).toBeGreaterThan(0);
});

test('a harness that hangs up stops the engine, and the call is on record as aborted', async () => {
  const setting = await open(() => {});
  const controller = new AbortController();
  const answer = setting.ask(hello, { signal: controller.signal });
  answer.catch(() => {});
  while (setting.engine.asked.length === 0) await sleep(10);
  controller.abort();
  await setting.engine.asked[0]!.hungUp;
  await expect(answer).rejects.toThrow();
  expect((await setting.calls())[0]).toMatchObject({ status: 499, finish: 'abort', delivered: 'none' });
});

test('a slow engine’s stream is kept open by comments', { timeout: 30_000 }, async () => {
  const setting = await open(async (_, response) => {
    await sleep(16_000);
    reply(response, { content: 'late' });
  });
  const text = await (await setting.ask({ ...hello, stream: true })).text();
  expect(text).toMatch(/^: waiting\n\n/);
  expect(joined(text).content).toBe('late');
});

test('token ids come back exactly, and a long episode takes space linear in its turns', async () => {
  // Every turn repeats the conversation so far, as agents do: 200 turns of 50 tokens are 1 million prompt ids.
  const turns = 200;
  let history: number[] = [];
  const sent: { prompt: number[]; completion: number[] }[] = [];
  const setting = await open(
    (_, response, number) => {
      const prompt = [...history, ...Array.from({ length: 40 }, (_, at) => (number * 97 + at * 31) % 50_000)];
      const completion = Array.from({ length: 10 }, (_, at) => (number * 89 + at * 17) % 50_000);
      history = [...prompt, ...completion];
      sent.push({ prompt, completion });
      reply(response, { promptIds: prompt, completionIds: completion });
    },
    { tokenIds: true, limits: { calls: turns, tokens: 1e9 } },
  );
  const messages: object[] = [];
  for (let turn = 0; turn < turns; turn++) {
    messages.push({ role: 'user', content: `turn ${turn} ${Math.random().toString(36).repeat(20)}` });
    expect((await setting.ask({ messages })).status).toBe(200);
  }
  const calls = await setting.calls();
  const prompts = decodePrompts(calls);
  expect(calls.map(({ id, tokens }) => ({ prompt: prompts.get(id), completion: tokens.completion }))).toEqual(sent);
  const [pack] = await readdir(join(setting.dir, 'blobs'));
  const { size } = await stat(join(setting.dir, 'blobs', pack!));
  const raw = calls.reduce((sum, { request }) => sum + request.bytes, 0);
  expect(raw).toBeGreaterThan(4_000_000);
  expect(size).toBeLessThan(raw / 10);
  expect((await readFile(join(setting.dir, 'calls.jsonl'))).length).toBeLessThan(turns * 2000);
  // One line of turns is one sample: the whole conversation, each completion trained once.
  const samples = mergeCalls(
    calls.map((call) => ({ call, promptIds: prompts.get(call.id)! })),
    { episode: 'e', task: 't' },
  );
  expect(samples).toHaveLength(1);
  expect(samples[0]!.tokens).toEqual(history);
});

test('64 episodes at a time keep their calls apart', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'orchard-proxy-'));
  onTestFinished(() => rm(dir, { recursive: true, force: true }));
  await using engine = await startEngine(async ({ body }, response) => {
    await sleep(Math.random() * 5);
    reply(response, { content: (body.messages as { content: string }[])[0]!.content });
  });
  {
    await using blobs = await openBlobs(join(dir, 'blobs'));
    await using calls = await openJsonl(join(dir, 'calls.jsonl'));
    const upstream = { baseUrl: engine.baseUrl, apiKey: null, model: 'm', tokenIds: false };
    await using proxy = await startProxy({ blobs, calls, upstream });
    await Promise.all(
      Array.from({ length: 64 }, async (_, number) => {
        const episode = proxy.openEpisode({ episode: `e${number}`, task: 't', session: `s${number}`, limits: LIMITS });
        for (let turn = 0; turn < 5; turn++) {
          const answer = await fetch(`${episode.baseUrl}/chat/completions`, {
            method: 'POST',
            headers: { authorization: `Bearer ${episode.apiKey}` },
            body: JSON.stringify({ messages: [{ role: 'user', content: `${number}.${turn}` }] }),
          });
          expect(JSON.stringify(await answer.json())).toContain(`"${number}.${turn}"`);
        }
        await episode.close();
      }),
    );
  }
  const calls = await Array.fromAsync(readJsonl(join(dir, 'calls.jsonl'), Call));
  expect(calls).toHaveLength(320);
  await using blobs = await openBlobsReader(join(dir, 'blobs'));
  for (const { episode, seq, request } of calls)
    expect((await blobs.get(request.sha256)).toString()).toContain(`${episode.slice(1)}.${seq}`);
});

test('a port in use is named', async () => {
  const taken = createServer();
  await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
  const { port } = taken.address() as AddressInfo;
  onTestFinished(() => void taken.close());
  const started = startProxy({ blobs: null!, calls: null!, upstream: null!, port });
  await expect(started).rejects.toMatchObject({ owner: 'user', code: 'port_in_use', id: String(port) });
});
