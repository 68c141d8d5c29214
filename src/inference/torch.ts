import { type ChildProcess, spawn } from 'node:child_process';
import { createWriteStream } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { z } from 'zod';
import { OrchardError, userError } from '../core/errors.ts';
import type { Inference, InferenceContext, InferenceKind } from '../ports/inference.ts';
import type { Weights } from '../records/weights.ts';

const config = z.strictObject({
  maxBatch: z.number().int().positive().default(32).describe('requests decoded together'),
  threads: z.number().int().positive().optional().describe('CPU threads; all cores when left out'),
});
type Config = z.infer<typeof config>;

const START_TIMEOUT_MS = 180_000;
const LOAD_TIMEOUT_MS = 300_000;
/** A server that dies more often than this does not get better by starting it again. */
const MAX_RESTARTS = 3;

/** The embedded engine: `orchard_trainer serve` in a child process, on the CPU or a GPU of this machine. */
export const torch: InferenceKind<Config> = {
  name: 'torch',
  config,
  async open(settings, context) {
    if (!context.weights)
      throw userError('inference.kind', 'torch serves weights, and here are none', 'set model.base');
    await mkdir(context.dir, { recursive: true });
    let weights = context.weights;
    let server = await start(settings, { context, weights });
    let closing = false;
    let restarts = 0;
    let restarting: Promise<void> = Promise.resolve();
    // One port for the whole life: a server that is started again must be found by those who have its address.
    const watch = (): void => {
      server.child.once('exit', () => {
        if (closing || context.signal.aborted || restarts++ >= MAX_RESTARTS) return;
        restarting = start(settings, { context, weights, port: server.port }).then(
          (next) => {
            server = next;
            watch();
          },
          () => {}, // callers see a model that cannot be reached, and say so with its address
        );
      });
    };
    watch();
    const inference: Inference = {
      baseUrl: `http://127.0.0.1:${server.port}/v1`,
      model: 'orchard',
      apiKey: null,
      capabilities: { tokenIds: true, logprobs: true },
      version: () => weights.version,
      ready: () => restarting,
      async load(next) {
        await loadInto(server.port, next);
        weights = next;
      },
      async [Symbol.asyncDispose]() {
        closing = true;
        await restarting;
        await stop(server.child);
      },
    };
    return inference;
  },
};

async function start(
  settings: Config,
  { context, weights, port = 0 }: { context: InferenceContext; weights: Weights; port?: number },
): Promise<{ child: ChildProcess; port: number }> {
  const log = join(context.dir, 'serve.log');
  const child = spawn(
    context.python,
    [
      ...[
        '-m',
        'orchard_trainer',
        'serve',
        '--model',
        weights.path,
        '--version',
        weights.version,
        '--port',
        String(port),
      ],
      ...[
        '--max-batch',
        String(settings.maxBatch),
        '--threads',
        String(settings.threads ?? availableParallelism()),
        '--parent-pid',
        String(process.pid),
      ],
    ],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  );
  const file = createWriteStream(log, { flags: 'a' });
  file.on('error', () => {}); // a full disk: whoever records will say so
  let tail = '';
  child.stderr.on('data', (chunk: Buffer) => {
    file.write(chunk);
    tail = (tail + chunk.toString()).slice(-1000);
  });
  child.once('close', () => file.end());
  const ready = new Promise<number>((resolve, reject) => {
    const fail = (cause: string): void => {
      clearTimeout(timer);
      reject(
        new OrchardError({
          owner: 'provider',
          code: 'engine_start',
          id: weights.path,
          cause: `the engine could not start on ${weights.path}: ${cause}`,
          wayOut: `see ${log}, and \`orchard doctor\``,
        }),
      );
    };
    const timer = setTimeout(() => fail(`not ready after ${START_TIMEOUT_MS / 1000} s`), START_TIMEOUT_MS);
    child.once('error', (error) => fail(error.message));
    child.once('exit', (code, signal) => fail(tail.trim().split('\n').at(-1) || `ended with ${code ?? signal}`));
    createInterface({ input: child.stdout }).on('line', (line) => {
      if (!line.startsWith('{')) return;
      const event = JSON.parse(line) as { event: string; port: number };
      if (event.event !== 'ready') return;
      clearTimeout(timer);
      resolve(event.port);
    });
  });
  const giveUp = (): void => void child.kill('SIGTERM');
  context.signal.addEventListener('abort', giveUp, { once: true });
  try {
    return { child, port: await ready };
  } catch (error) {
    await stop(child);
    context.signal.throwIfAborted();
    throw error;
  } finally {
    context.signal.removeEventListener('abort', giveUp);
  }
}

async function loadInto(port: number, weights: Weights): Promise<void> {
  const fail = (cause: string): OrchardError =>
    new OrchardError({
      owner: 'provider',
      code: 'engine_load',
      id: weights.version,
      cause: `the engine did not load ${weights.version}: ${cause}`,
      wayOut: 'run the same command again',
    });
  let response: Response;
  try {
    response = await fetch(`http://127.0.0.1:${port}/load`, {
      method: 'POST',
      signal: AbortSignal.timeout(LOAD_TIMEOUT_MS),
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(weights),
    });
  } catch (error) {
    throw fail((error as Error).message);
  }
  const text = await response.text();
  if (!response.ok) throw fail(text.slice(0, 300));
  const { version } = JSON.parse(text) as { version: string };
  if (version !== weights.version) throw fail(`it reports ${version}`);
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const gone = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  const killer = setTimeout(() => child.kill('SIGKILL'), 5000);
  await gone;
  clearTimeout(killer);
}
