// What one turn of an agent costs besides the model: the mini-swe loop in a local sandbox through the recording proxy,
// against a stub that always asks for the same echo; beside the bare subprocess.
import { spawnSync } from 'node:child_process';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openBlobs } from '../../src/core/blobs.ts';
import { openJsonl } from '../../src/core/jsonl.ts';
import { miniSwe } from '../../src/harnesses/mini-swe/index.ts';
import { startProxy } from '../../src/proxy/server.ts';
import { local } from '../../src/sandboxes/local/index.ts';
import { quantile, startStub } from './measure.mjs';

const dir = await mkdtemp(join(tmpdir(), 'orchard-bench-'));
const scratchDir = process.getuid() === 0 ? '/var/cache/orchard' : join(dir, 'scratch');
await mkdir(scratchDir, { recursive: true });
const driver = await local.open(local.config.parse({}), { scratchDir });
const blobs = await openBlobs(join(dir, 'blobs'));
const calls = await openJsonl(join(dir, 'calls.jsonl'));

async function episode(turns, output) {
  const command = `head -c ${output} /dev/zero | tr '\\0' x`;
  const call = { id: 'c', type: 'function', function: { name: 'bash', arguments: JSON.stringify({ command }) } };
  const stub = await startStub({ message: { role: 'assistant', content: '', tool_calls: [call] } });
  const proxy = await startProxy({
    blobs,
    calls,
    upstream: { baseUrl: stub.baseUrl, apiKey: null, model: 'm', tokenIds: false },
  });
  const channel = proxy.openEpisode({
    episode: `e${turns}`,
    task: 't',
    session: `s${Math.random()}`,
    limits: { calls: 1e6, tokens: 1e12, wallMs: 1e7 },
  });
  const sandbox = await driver.create({
    id: 'bench',
    workspace: { kind: 'files', files: { 'a.txt': 'a\n' } },
    network: 'none',
    memoryMiB: 512,
    processes: 64,
    lifetimeMs: 1e6,
  });
  const bare = [];
  const inside = [];
  for (let round = 0; round < 60; round++) {
    let started = performance.now();
    spawnSync('bash', ['-c', command]);
    bare.push(performance.now() - started);
    started = performance.now();
    await sandbox.exec(command, { timeoutMs: 10_000 });
    inside.push(performance.now() - started);
  }
  const started = performance.now();
  const end = await miniSwe.open(miniSwe.config.parse({ turns })).run({
    episode: 'e',
    statement: 's',
    endpoint: { baseUrl: channel.baseUrl, apiKey: channel.apiKey, model: 'm' },
    sandbox,
    sampling: { temperature: 0, topP: 1, maxTokensPerCall: 100 },
    signal: new AbortController().signal,
  });
  const perTurn = (performance.now() - started) / turns;
  if (end.kind !== 'call_limit') throw new Error(`ended: ${end.kind}`);
  await sandbox[Symbol.asyncDispose]();
  await channel.close();
  await proxy[Symbol.asyncDispose]();
  stub.close();
  const b = quantile(bare, 0.5);
  const s = quantile(inside, 0.5);
  console.log(
    `  ${`${turns} turns, ${output} bytes each`.padEnd(32)} ${perTurn.toFixed(2)} ms a turn: bare command ${b.toFixed(2)}, sandbox adds ${(s - b).toFixed(2)}, loop, proxy and stub ${(perTurn - s).toFixed(2)}`,
  );
}

try {
  for (const [turns, output] of [
    [20, 20],
    [100, 20],
    [100, 2000],
    [300, 2000],
  ])
    await episode(turns, output);
} finally {
  await driver[Symbol.asyncDispose]();
  await calls[Symbol.asyncDispose]();
  await blobs[Symbol.asyncDispose]();
  await rm(dir, { recursive: true, force: true });
}
