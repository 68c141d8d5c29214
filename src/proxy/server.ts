import { randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Agent } from 'undici';
import type { Blobs } from '../core/blobs.ts';
import { OrchardError } from '../core/errors.ts';
import type { JsonlWriter } from '../core/jsonl.ts';
import { type Channel, type EpisodeOptions, openChannel } from './channel.ts';
import { refuse } from './refuse.ts';
import type { Upstream } from './upstream.ts';

export interface ProxyOptions {
  blobs: Blobs;
  calls: JsonlWriter;
  upstream: Upstream;
  /** Any free port when left out. */
  port?: number;
}

/** The recording proxy: between a harness and an engine, with an address and a key of its own for every episode. */
export interface RecordingProxy extends AsyncDisposable {
  openEpisode(options: EpisodeOptions): EpisodeProxy;
}

export interface EpisodeProxy {
  /** Ends in `/v1`. */
  baseUrl: string;
  apiKey: string;
  stats: Channel['stats'];
  /** Waits until all calls are recorded; afterwards the address is gone. */
  close(): Promise<void>;
}

const PATH = /^\/e\/([^/]+)\/v1\/chat\/completions(?:\?.*)?$/;
/** Histories of 200,000 tokens are a few MiB. */
const MAX_BODY_BYTES = 256 * 1024 * 1024;

/** @throws OrchardError owner `user`, code `port_in_use` */
export async function startProxy(options: ProxyOptions): Promise<RecordingProxy> {
  // Time limits are ours, for each call; an engine may think for minutes before its first byte.
  const agent = new Agent({ headersTimeout: 0, bodyTimeout: 0, connections: 1024, pipelining: 1 });
  const channels = new Map<string, { channel: Channel; apiKey: string }>();
  const server = createServer({ keepAliveTimeout: 60_000, requestTimeout: 0 }, (request, response) => {
    const key = PATH.exec(request.url ?? '')?.[1];
    const found = key === undefined ? undefined : channels.get(key);
    if (!found) return refuse(response, 404, `no such address: ${request.url}`);
    if (request.headers.authorization !== `Bearer ${found.apiKey}`)
      return refuse(response, 401, 'wrong key for this episode');
    if (request.method !== 'POST') return refuse(response, 405, 'POST only');
    readBody(request)
      .then((body) => found.channel.handle(body, response))
      .catch((error: Error) => refuse(response, 400, error.message));
  });
  const port = await listen(server, options.port ?? 0);
  return {
    openEpisode(episode) {
      const key = randomBytes(9).toString('base64url');
      const apiKey = `ok-${randomBytes(18).toString('base64url')}`;
      const channel = openChannel({
        ...episode,
        agent,
        blobs: options.blobs,
        calls: options.calls,
        upstream: options.upstream,
      });
      channels.set(key, { channel, apiKey });
      return {
        baseUrl: `http://127.0.0.1:${port}/e/${key}/v1`,
        apiKey,
        stats: channel.stats,
        async close() {
          channels.delete(key);
          await channel.close();
        },
      };
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await agent.destroy();
    },
  };
}

async function listen(server: Server, port: number): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) =>
      reject(
        new OrchardError(
          {
            owner: 'user',
            code: 'port_in_use',
            id: String(port),
            cause: `cannot listen on 127.0.0.1:${port}: ${error.message}`,
            wayOut: 'choose another port, or none for any free one',
          },
          { cause: error },
        ),
      ),
    );
    server.listen(port, '127.0.0.1', resolve);
  });
  return (server.address() as AddressInfo).port;
}

async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_BODY_BYTES) throw new Error('the request is too large');
    chunks.push(chunk);
  }
  return chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
}
