import type { ServerResponse } from 'node:http';

/** An error in OpenAI's shape. */
export function refuse(
  response: ServerResponse,
  status: number,
  message: string,
  more: Record<string, unknown> = {},
): void {
  if (response.headersSent || response.destroyed) return;
  const body = JSON.stringify({ error: { message, type: 'orchard', ...more } });
  response
    .writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) })
    .end(body);
}
