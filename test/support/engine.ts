import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

export interface Asked {
  raw: string;
  body: Record<string, unknown>;
  headers: IncomingHttpHeaders;
  /** Resolves when the connection of the request closes before it was answered. */
  hungUp: Promise<void>;
}

/** A server in the place of a model: `play` answers, every request is kept. */
export interface Engine extends AsyncDisposable {
  baseUrl: string;
  asked: Asked[];
}

export type Play = (asked: Asked, response: ServerResponse, number: number) => void | Promise<void>;

export async function startEngine(play: Play, port = 0): Promise<Engine> {
  const asked: Asked[] = [];
  const server = createServer(async (request, response) => {
    const raw = await text(request);
    const hungUp = new Promise<void>((resolve) =>
      response.once('close', () => {
        if (!response.writableFinished) resolve();
      }),
    );
    const one = { raw, body: JSON.parse(raw) as Record<string, unknown>, headers: request.headers, hungUp };
    asked.push(one);
    await play(one, response, asked.length - 1);
  });
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(port, '127.0.0.1', resolve));
  return {
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    asked,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export interface ReplyParts {
  content?: string;
  toolCalls?: { id: string; type: 'function'; function: { name: string; arguments: string } }[];
  promptIds?: number[];
  completionIds?: number[];
  finish?: string;
}

/** A chat completion as vLLM gives it, with token ids where they are given here. */
export function reply(
  response: ServerResponse,
  { content = 'well', toolCalls, promptIds, completionIds, finish }: ReplyParts = {},
): void {
  const body = {
    id: 'chatcmpl-1',
    object: 'chat.completion',
    model: 'm',
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content, ...(toolCalls ? { tool_calls: toolCalls } : {}) },
        finish_reason: finish ?? (toolCalls ? 'tool_calls' : 'stop'),
        ...(completionIds
          ? { token_ids: completionIds, logprobs: { content: completionIds.map(() => ({ token: '', logprob: -0.5 })) } }
          : {}),
      },
    ],
    usage: { prompt_tokens: promptIds?.length ?? 3, completion_tokens: completionIds?.length ?? 2, total_tokens: 5 },
    ...(promptIds ? { prompt_token_ids: promptIds, version: 'base@v_000001' } : {}),
  };
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
