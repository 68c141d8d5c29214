// From recorded calls to batches: merging by token prefix, packing into safetensors, and, for text without ids,
// tokenizing turn by turn with a chat template. 40 episodes of 60 turns that end at about 32,000 tokens.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { mergeCalls } from '../../src/algo/merge.ts';
import { writeBatch } from '../../src/data/batches.ts';
import { loadChat } from '../../src/data/chat.ts';

const EPISODES = 40;
const TURNS = 60;
let state = 1;
const draw = (below) => {
  state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
  return state % below;
};
const ids = (count) => Array.from({ length: count }, () => draw(150_000));

function recorded(episode) {
  let history = ids(2000);
  return Array.from({ length: TURNS }, (_, seq) => {
    const promptIds = history;
    const completion = ids(150);
    history = [...promptIds, ...completion, ...ids(350)];
    const tokens = {
      source: 'engine',
      completion,
      logprobs: completion.map(() => -0.5),
      version: 'v',
      prompt: { base: null, keep: 0, tail: [] },
    };
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
}

const show = (what, tokens, ms) =>
  console.log(
    `  ${what.padEnd(32)} ${((tokens / ms) * 1000).toLocaleString('en', { maximumFractionDigits: 0 })} tokens/s`,
  );

const episodes = Array.from({ length: EPISODES }, (_, index) => recorded(`e${index}`));
let started = performance.now();
const samples = episodes.flatMap((calls, index) => mergeCalls(calls, { episode: `e${index}`, task: 't' }));
const tokens = samples.reduce((sum, sample) => sum + sample.tokens.length, 0);
show('merge', tokens, performance.now() - started);

const dir = await mkdtemp(join(tmpdir(), 'orchard-bench-'));
started = performance.now();
await writeBatch(join(dir, 'batch'), samples, {
  kind: 'sft',
  step: 0,
  policyVersion: null,
  sampling: null,
  loss: { name: 'sft', params: {} },
});
show('pack', tokens, performance.now() - started);
await rm(dir, { recursive: true, force: true });

const chat = await loadChat(join(import.meta.dirname, '../../models/tiny-base'));
const word = () => draw(1e6).toString(36);
const messages = [{ role: 'user', content: Array.from({ length: 300 }, word).join(' ') }];
for (let turn = 0; turn < TURNS; turn++) {
  const call = {
    id: 'c',
    type: 'function',
    function: { name: 'bash', arguments: JSON.stringify({ command: Array.from({ length: 30 }, word).join(' ') }) },
  };
  messages.push(
    { role: 'assistant', content: null, tool_calls: [call] },
    { role: 'tool', tool_call_id: 'c', content: Array.from({ length: 60 }, word).join(' ') },
  );
}
started = performance.now();
let encoded = 0;
for (let round = 0; round < 5; round++)
  for (const row of chat.encodeConversation(messages, [])) encoded += row.tokens.length;
show(`tokenize, ${TURNS} turns`, encoded, performance.now() - started);
