import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { z } from 'zod';
import { userError } from '../core/errors.ts';
import type { ChatMessage, Inference, InferenceKind } from '../ports/inference.ts';

const config = z.strictObject({});

/**
 * A model written by hand, served like any other: the benchmark's script answers, told by headers whose episode it is.
 * It has no tokens, so what it says is good for supervised fine-tuning only.
 */
export const scripted: InferenceKind<z.infer<typeof config>> = {
  name: 'scripted',
  config,
  async open(_, { script }) {
    if (!script)
      throw userError('kind', 'this benchmark has no scripted model', 'name a real one, for example kind: openai');
    const { play, tasks } = script;
    let served = 0;
    const server = createServer(async (request, response) => {
      const answer = (status: number, body: object): void =>
        void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
      try {
        const { messages } = JSON.parse(await text(request)) as { messages: ChatMessage[] };
        const task = tasks.get(decodeURIComponent(String(request.headers['x-orchard-task'] ?? '')));
        if (!task) return answer(400, { error: { message: 'the header x-orchard-task names no task' } });
        const { content, commands } = play({
          task,
          episode: decodeURIComponent(String(request.headers['x-orchard-episode'] ?? '')),
          messages,
        });
        const turn = messages.length;
        const calls = commands.map((command, index) => ({
          id: `call_${turn}_${index}`,
          type: 'function',
          function: { name: 'bash', arguments: JSON.stringify({ command }) },
        }));
        const message = { role: 'assistant', content, ...(calls.length > 0 ? { tool_calls: calls } : {}) };
        answer(200, {
          id: `scripted-${served++}`,
          object: 'chat.completion',
          model: 'scripted',
          choices: [{ index: 0, message, finish_reason: calls.length > 0 ? 'tool_calls' : 'stop' }],
        });
      } catch (error) {
        answer(500, { error: { message: (error as Error).message } });
      }
    });
    await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, '127.0.0.1', resolve));
    const inference: Inference = {
      baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
      model: 'scripted',
      apiKey: null,
      capabilities: { tokenIds: false, logprobs: false },
      version: () => 'scripted',
      async load(weights) {
        throw userError(
          'inference.kind',
          `a scripted model cannot load ${weights.version}`,
          'use inference.kind torch',
        );
      },
      async [Symbol.asyncDispose]() {
        server.closeAllConnections();
        await new Promise((resolve) => server.close(resolve));
      },
    };
    return inference;
  },
};
