// What the recording proxy adds to a call: requests of 20 KB against a stub, direct and through the proxy, stub,
// proxy and load each a process of its own. `proxy.mjs serve PORT UPSTREAM DIR` is the proxy alone, at /v1 and for any
// key, for load generators that know nothing of episodes.
import { fork } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Agent } from 'undici';
import { openBlobs } from '../../src/core/blobs.ts';
import { openJsonl } from '../../src/core/jsonl.ts';
import { openChannel } from '../../src/proxy/channel.ts';
import { startProxy } from '../../src/proxy/server.ts';
import { quantile, startStub } from './measure.mjs';

const LIMITS = { calls: 1e9, tokens: 1e15, wallMs: 3_600_000 };
const BYTES = 20_000;

async function recording(dir) {
  return { blobs: await openBlobs(join(dir, 'blobs')), calls: await openJsonl(join(dir, 'calls.jsonl')) };
}

/** Each connection of a load is an episode of its own, as each agent is. */
async function proxyProcess({ upstream, dir, episodes }) {
  const proxy = await startProxy({
    ...(await recording(dir)),
    upstream: { baseUrl: upstream, apiKey: null, model: 'stub', tokenIds: false },
  });
  const open = Array.from({ length: episodes }, (_, index) =>
    proxy.openEpisode({ episode: `e${index}`, task: 't', session: `s${index}`, limits: LIMITS }),
  );
  process.send(open.map(({ baseUrl, apiKey }) => ({ baseUrl, apiKey })));
}

async function serve(port, upstream, dir) {
  const channel = openChannel({
    ...(await recording(dir)),
    agent: new Agent({ headersTimeout: 0, bodyTimeout: 0, connections: 1024 }),
    upstream: { baseUrl: upstream, apiKey: null, model: 'stub', tokenIds: false },
    episode: 'e',
    task: 't',
    session: 's',
    limits: LIMITS,
  });
  createServer((request, response) => {
    const chunks = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', () => void channel.handle(Buffer.concat(chunks), response));
  }).listen(port, '127.0.0.1');
}

/** Closed loop for `ms`: each connection asks again as soon as it is answered. Its history grows a little each time. */
async function load({ targets, ms }) {
  const agents = targets.map(() => new Agent({ connections: 1, headersTimeout: 0 }));
  const times = [];
  const started = performance.now();
  await Promise.all(
    targets.map(async ({ baseUrl, apiKey }, index) => {
      const url = new URL(baseUrl);
      let history = `${index}`.padEnd(BYTES - 200, ' history of an agent');
      while (performance.now() - started < ms) {
        history += ` ${Math.random()}`;
        if (history.length > BYTES) history = history.slice(0, BYTES - 2000);
        const body = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: history }] });
        const asked = performance.now();
        const answer = await agents[index].request({
          origin: url.origin,
          path: `${url.pathname}/chat/completions`,
          method: 'POST',
          headers: { 'content-type': 'application/json', authorization: `Bearer ${apiKey}` },
          body,
        });
        await answer.body.arrayBuffer();
        if (answer.statusCode !== 200) throw new Error(`answered ${answer.statusCode}`);
        if (asked - started > ms / 5) times.push(performance.now() - asked); // connections are open by then
      }
    }),
  );
  const seconds = (performance.now() - started) / 1000;
  process.send({ p50: quantile(times, 0.5), p99: quantile(times, 0.99), perSecond: times.length / (0.8 * seconds) });
}

/** A part of this file in a process of its own; resolves with what it sends first. */
function part(name, options) {
  const child = fork(import.meta.filename, [name, JSON.stringify(options)]);
  return new Promise((resolve, reject) => {
    child.once('message', (message) => resolve({ child, message }));
    child.once('exit', (code) => reject(new Error(`${name} ended with ${code}`)));
  });
}

async function main() {
  for (const { delayMs, connections } of [
    { delayMs: 0, connections: 1 },
    { delayMs: 0, connections: 64 },
    { delayMs: 50, connections: 1 },
    { delayMs: 50, connections: 64 },
    { delayMs: 50, connections: 512 },
  ]) {
    const stub = await part('stub', { delayMs });
    const dir = await mkdtemp(join(tmpdir(), 'orchard-bench-'));
    const proxy = await part('proxy', { upstream: stub.message, dir, episodes: connections });
    const direct = Array.from({ length: connections }, () => ({ baseUrl: stub.message, apiKey: 'x' }));
    const results = {};
    for (const [name, targets] of [
      ['direct', direct],
      ['orchard', proxy.message],
    ]) {
      const { child, message } = await part('load', { targets, ms: 4000 });
      results[name] = message;
      child.kill();
    }
    const { direct: a, orchard: b } = results;
    const recorded = (await readFile(join(dir, 'calls.jsonl'), 'utf8')).split('\n').length - 1;
    console.log(
      `  ${`engine ${delayMs} ms, ${connections} at a time`.padEnd(32)} direct p50 ${a.p50.toFixed(2)} p99 ${a.p99.toFixed(2)} ms, ${a.perSecond.toFixed(0)}/s   orchard adds p50 ${(b.p50 - a.p50).toFixed(2)} p99 ${(b.p99 - a.p99).toFixed(2)} ms, ${b.perSecond.toFixed(0)}/s, ${recorded} recorded`,
    );
    proxy.child.kill();
    stub.child.kill();
    await rm(dir, { recursive: true, force: true });
  }
}

const [name, ...args] = process.argv.slice(2);
if (name === undefined) await main();
else if (name === 'stub') process.send((await startStub(JSON.parse(args[0]))).baseUrl);
else if (name === 'proxy') await proxyProcess(JSON.parse(args[0]));
else if (name === 'load') await load(JSON.parse(args[0]));
else if (name === 'serve') await serve(Number(args[0]), args[1], args[2]);
