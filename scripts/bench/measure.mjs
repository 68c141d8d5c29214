// What the measurements share.
import { createServer } from 'node:http';

/** The value below which a share `q` of the numbers lies. */
export function quantile(numbers, q) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(q * sorted.length) - 1)];
}

/** A server in the place of an engine: the same 2 KB completion to everyone, after `delayMs`. */
export async function startStub({ delayMs = 0, message = { role: 'assistant', content: 'x'.repeat(1700) } } = {}) {
  const body = JSON.stringify({
    id: 'stub',
    object: 'chat.completion',
    model: 'stub',
    choices: [{ index: 0, message, finish_reason: message.tool_calls ? 'tool_calls' : 'stop' }],
    usage: { prompt_tokens: 5000, completion_tokens: 400, total_tokens: 5400 },
  });
  const answer = (response) =>
    response
      .writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) })
      .end(body);
  const server = createServer((request, response) => {
    request.resume();
    request.on('end', () => (delayMs > 0 ? setTimeout(answer, delayMs, response) : answer(response)));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    baseUrl: `http://127.0.0.1:${server.address().port}/v1`,
    close: () => server.closeAllConnections() ?? server.close(),
  };
}
