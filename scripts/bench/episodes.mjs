// What orchard itself costs in a step of reinforcement learning, at 10,000 episodes: choosing groups, advantages,
// merging calls and packing rows.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { advantages } from '../../src/algo/advantage.ts';
import { balance, dropReason } from '../../src/algo/balance.ts';
import { mergeCalls } from '../../src/algo/merge.ts';
import { writeBatch } from '../../src/data/batches.ts';

const EPISODES = 10_000;
const MAX = 16;
const settings = { n: 8, max: MAX, stride: 8, band: [0.375, 0.625] };
let state = 7;
const draw = (below) => {
  state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
  return state % below;
};
const took = async (what, work) => {
  const started = performance.now();
  const result = await work();
  const ms = performance.now() - started;
  console.log(`  ${what.padEnd(58)} ${ms.toFixed(0)} ms, ${((1000 * ms) / EPISODES).toFixed(1)} µs an episode`);
  return result;
};

console.log(`${EPISODES.toLocaleString('en')} episodes`);
const prompts = Array.from({ length: EPISODES / MAX }, () => {
  const hard = draw(10);
  return Array.from({ length: MAX }, () => ({
    resolved: draw(50) === 0 ? null : draw(10) >= hard,
    status: draw(8) === 0 ? 'context' : 'completed',
  }));
});
await took('choose groups, stride by stride, and filter them', () => {
  let kept = 0;
  for (const outcomes of prompts) {
    const pool = [];
    for (;;) {
      const decision = balance(pool, settings);
      if ('group' in decision) {
        if (dropReason(decision.group, settings.n) === null) kept++;
        break;
      }
      pool.push(...outcomes.slice(pool.length, pool.length + decision.roll));
    }
  }
  return kept;
});
await took('advantages', () => {
  for (let group = 0; group < EPISODES / 8; group++)
    advantages(
      Array.from({ length: 8 }, () => draw(2)),
      'grpo',
    );
});

/** 5 calls that end at about 600 tokens, as in the tiny recipe. */
const recorded = (episode) => {
  let history = Array.from({ length: 200 }, () => draw(1000));
  return Array.from({ length: 5 }, (_, seq) => {
    const promptIds = history;
    const completion = Array.from({ length: 30 }, () => draw(1000));
    history = [...promptIds, ...completion, ...Array.from({ length: 50 }, () => draw(1000))];
    const tokens = { source: 'engine', completion, logprobs: completion.map(() => -0.5), version: 'v', prompt: {} };
    const call = {
      id: `${episode}-${seq}`,
      seq,
      kind: 'main',
      thread: null,
      delivered: 'full',
      finish: 'stop',
      tokens,
      startedAt: 10 * seq,
      endedAt: 10 * seq + 5,
    };
    return { promptIds, call };
  });
};
const episodes = Array.from({ length: EPISODES }, (_, index) => recorded(`e${index}`));
const samples = await took('merge calls into rows', () =>
  episodes.flatMap((calls, index) => mergeCalls(calls, { episode: `e${index}`, task: 't' })),
);
const dir = await mkdtemp(join(tmpdir(), 'orchard-bench-'));
await took('pack rows with five streams into safetensors', () =>
  writeBatch(
    join(dir, 'batch'),
    samples.map((sample) => ({ ...sample, advantages: sample.mask })),
    {
      kind: 'rl',
      step: 0,
      policyVersion: 'v',
      sampling: { temperature: 1, top_p: 1 },
      loss: { name: 'policy', params: {} },
      streams: ['advantage', 'sampler_logprob'],
    },
  ),
);
await rm(dir, { recursive: true });
