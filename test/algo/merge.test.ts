import { expect, test } from 'vitest';
import { mergeCalls } from '../../src/algo/merge.ts';
import type { ChatMessage } from '../../src/ports/inference.ts';
import type { Call } from '../../src/records/call.ts';
import type { Sample } from '../../src/records/sample.ts';
import { chat, render, tokenizer } from '../support/qwen3.ts';

interface Wire {
  messages: ChatMessage[];
  /** What the engine said, thoughts and end token included. */
  said: string;
  call?: Partial<Call>;
}

const system = (content: string): ChatMessage => ({ role: 'system', content });
const user = (content: string): ChatMessage => ({ role: 'user', content });
const tool = (content: string): ChatMessage => ({ role: 'tool', content, tool_call_id: 'call_1' });
const THOUGHT = '<think>\nlet me think\n</think>\n\n';
const WRITE = '{"command": "echo hello > out.txt && cat out.txt"}';
const acted = { said: `${THOUGHT}<tool_call>\n{"name": "exec", "arguments": ${WRITE}}\n</tool_call><|im_end|>` };
const done = { said: `${THOUGHT}The file holds hello.<|im_end|>` };
/** The acted turn as harnesses send it back: reasoning in a field of its own. */
const act = {
  role: 'assistant',
  content: null,
  reasoning_content: 'let me think',
  tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'exec', arguments: WRITE } }],
} as ChatMessage;

/** Calls as the proxy records them, with the ids that Qwen3's template and tokenizer give. */
function recorded(wire: Wire[]): { call: Call; promptIds: number[] }[] {
  return wire.map(({ messages, said, call }, seq) => {
    const promptIds = chat.encode(render(messages, { tools: [], generate: true }));
    const completion = chat.encode(said);
    return { promptIds, call: callOf({ seq, completion, ...call }) };
  });
}

function callOf({ seq = 0, completion, ...more }: Partial<Call> & { completion: number[] }): Call {
  return {
    v: 'orchard.call/1',
    id: `s-${seq}`,
    episode: 'e',
    session: 's',
    seq,
    api: 'chat',
    stream: false,
    request: { sha256: '', bytes: 0 },
    response: null,
    status: 200,
    kind: 'main',
    thread: null,
    parentThread: null,
    finish: 'stop',
    tokens: {
      source: 'engine',
      prompt: { base: null, keep: 0, tail: [] },
      completion,
      logprobs: completion.map((id) => -id / 1e6),
      version: 'v',
    },
    usage: { prompt: 0, completion: completion.length },
    upstream: [],
    delivered: 'full',
    startedAt: 10 * seq,
    endedAt: 10 * seq + 5,
    ...more,
  };
}

const merged = (wire: Wire[]): Sample[] => mergeCalls(recorded(wire), { episode: 'e', task: 't' });
const trainedText = ({ tokens, mask }: Sample): string =>
  tokenizer.decode(
    tokens.filter((_, at) => mask[at] === 1),
    { skip_special_tokens: false },
  );

const ask = [system('You work in a terminal.'), user('Create out.txt containing hello')];

test('plain turns are one sample, each reply trained once with its log-probabilities', () => {
  const wire = [
    { messages: ask, ...acted },
    { messages: [...ask, act, tool('hello')], ...done },
  ];
  const [sample, ...others] = merged(wire);
  expect(others).toEqual([]);
  expect(trainedText(sample!)).toBe(acted.said + done.said);
  expect(sample!.tokens).toEqual(chat.encode(render(wire[1]!.messages, { tools: [], generate: true }) + done.said));
  for (const [at, id] of sample!.tokens.entries())
    expect(sample!.logprobs![at]).toBe(sample!.mask[at] === 1 ? -id / 1e6 : 0);
  expect(sample!.episodeShare).toBe(1);
});

test('a message that moves along the tail begins a new sample at every turn', () => {
  const note = user('<<<context>>> no active sessions');
  const samples = merged([
    { messages: [...ask, note], ...acted },
    { messages: [...ask, act, tool('hello'), note], ...done },
  ]);
  expect(samples.map(trainedText)).toEqual([acted.said, done.said]);
  expect(samples.map(({ rootReason }) => rootReason)).toEqual(['start', expect.stringMatching('tail|rewrite')]);
  expect(samples[0]!.episodeShare + samples[1]!.episodeShare).toBeCloseTo(1);
});

test('a compaction ends one sample and begins another; its own call trains only when asked for', () => {
  const compacting = [...ask, act, tool('hello'), user('Write a handoff summary of the work so far.')];
  const next = [...ask, user('Another model worked on this before; its summary: out.txt was written.')];
  const wire: Wire[] = [
    { messages: ask, ...acted },
    { messages: compacting, said: 'out.txt was written.<|im_end|>', call: { kind: 'compaction' } },
    { messages: next, ...acted },
    {
      messages: [...next, act, tool('hello'), user('Write a handoff summary.')],
      said: 'It is there.<|im_end|>',
      call: { kind: 'compaction' },
    },
  ];
  const samples = merged(wire);
  expect(samples.map(trainedText)).toEqual([acted.said, acted.said]);
  expect(samples[1]!.rootReason).toBe('compaction');
  // Qwen3's template drops the thoughts before the last question, so each compaction call is a line of its own.
  const all = mergeCalls(recorded(wire), { episode: 'e', task: 't', compactions: true });
  expect(all.map(trainedText)).toEqual([
    acted.said,
    'out.txt was written.<|im_end|>',
    acted.said,
    'It is there.<|im_end|>',
  ]);
});

test('interleaved sub-agents are lines of their own, whatever order their calls come in', () => {
  const helper = [system('You work in a terminal.'), user('Read README and report.')];
  const samples = merged([
    { messages: ask, ...acted, call: { thread: 'root' } },
    { messages: helper, ...acted, call: { thread: 'helper', kind: 'subagent' } },
    { messages: [...ask, act, tool('started')], ...done, call: { thread: 'root' } },
    { messages: [...helper, act, tool('read')], ...done, call: { thread: 'helper', kind: 'subagent' } },
  ]);
  expect(samples.map(trainedText)).toEqual([acted.said + done.said, acted.said + done.said]);
  expect(samples.map(({ rootReason }) => rootReason)).toEqual(['start', 'subagent']);
});

test('a reply that was cut on its way counts for nothing, its retry does', () => {
  const wire = (cut: Partial<Call>): Wire[] => [
    { messages: ask, said: `${THOUGHT}I will<|im_end|>`, call: cut },
    { messages: ask, ...acted },
    { messages: [...ask, act, tool('hello')], ...done },
  ];
  expect(merged(wire({ delivered: 'partial' })).map(trainedText)).toEqual([acted.said + done.said]);
  // The same three calls had all been heard: the dead attempt is a sample beside the other.
  expect(merged(wire({}))).toHaveLength(2);
});

test('an error that makes the harness word its prompt anew leaves two lines', () => {
  const again = [ask[0]!, user('[Queued message from a previous turn] Create out.txt containing hello')];
  const samples = merged([
    { messages: ask, said: `${THOUGHT}Well.<|im_end|>` },
    { messages: again, ...acted },
    { messages: [...again, act, tool('hello')], ...done },
  ]);
  expect(samples.map(trainedText)).toEqual([`${THOUGHT}Well.<|im_end|>`, acted.said + done.said]);
});

test('a title call is on record and not trained', () => {
  const title = [system('You output only a title.'), user('Create out.txt containing hello')];
  const wire: Wire[] = [
    { messages: title, said: 'Write out.txt<|im_end|>', call: { kind: 'title' } },
    { messages: ask, ...acted },
    { messages: [...ask, act, tool('hello')], ...done },
  ];
  expect(merged(wire).map(trainedText)).toEqual([acted.said + done.said]);
});

test('a reply at its length limit ends a line and never carries one', () => {
  const half = `${THOUGHT}I would like to`;
  const samples = merged([
    { messages: ask, said: half, call: { finish: 'length' } },
    { messages: [...ask, { role: 'assistant', content: 'I would like to' }, user('Go on.')], ...acted },
  ]);
  expect(samples.map(trainedText)).toEqual([half, acted.said]);
});

test('two continuations of one reply train it once', () => {
  const samples = merged([
    { messages: ask, ...acted },
    { messages: [...ask, act, tool('hello')], ...done },
    { messages: [...ask, act, tool('other')], said: `${THOUGHT}Other.<|im_end|>` },
  ]);
  expect(samples.map(trainedText)).toEqual([acted.said + done.said, `${THOUGHT}Other.<|im_end|>`]);
});

test('calls that overlap in time never build on each other', () => {
  const first = chat.encode('abc');
  const calls = [
    { promptIds: [1], call: callOf({ seq: 0, completion: first, endedAt: 100 }) },
    { promptIds: [1, ...first, 2], call: callOf({ seq: 1, completion: [9], startedAt: 50, endedAt: 200 }) },
  ];
  expect(mergeCalls(calls, { episode: 'e', task: 't' })).toHaveLength(2);
});

/** Parent of each call by trying every earlier one: what the merge must find, written as plainly as can be. */
function bruteForce(calls: { call: Call; promptIds: number[] }[]): string[] {
  const lines: string[] = [];
  const parent = calls.map(({ promptIds, call }, index) => {
    let best = -1;
    for (let other = 0; other < index; other++) {
      const sequence = [...calls[other]!.promptIds, ...calls[other]!.call.tokens.completion];
      const isPrefix = sequence.every((id, at) => promptIds[at] === id);
      const bestLength = best < 0 ? -1 : calls[best]!.promptIds.length + calls[best]!.call.tokens.completion.length;
      if (isPrefix && calls[other]!.call.endedAt <= call.startedAt && sequence.length >= bestLength) best = other;
    }
    return best;
  });
  const used = new Set<number>();
  for (const [index, { promptIds, call }] of calls.entries()) {
    if (parent.includes(index)) continue; // somebody goes on from it
    const tokens = [...promptIds, ...call.tokens.completion];
    const mask = tokens.map(() => 0);
    for (let at = index; at >= 0; at = parent[at]!) {
      if (used.has(at)) continue;
      used.add(at);
      const from = calls[at]!.promptIds.length;
      mask.fill(1, from, from + calls[at]!.call.tokens.completion.length);
    }
    if (mask.includes(1)) lines.push(JSON.stringify({ tokens, mask }));
  }
  return lines.sort();
}

test('random call trees merge as brute force does', () => {
  let state = 12345;
  const draw = (below: number): number => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return Math.floor((state / 0x80000000) * below);
  };
  const ids = (count: number): number[] => Array.from({ length: count }, () => draw(3)); // few ids: many shared prefixes
  for (let round = 0; round < 400; round++) {
    const calls: { call: Call; promptIds: number[] }[] = [];
    const total = 1 + draw(8);
    for (let seq = 0; seq < total; seq++) {
      const before = calls[draw(calls.length + 1)];
      const promptIds =
        before && draw(4) > 0
          ? [...before.promptIds, ...before.call.tokens.completion, ...ids(draw(4))]
          : ids(1 + draw(4));
      calls.push({ promptIds, call: callOf({ seq, completion: ids(1 + draw(3)) }) });
    }
    const samples = mergeCalls(calls, { episode: 'e', task: 't' });
    expect(samples.map(({ tokens }) => tokens.length).sort(), `round ${round}`).toEqual(
      bruteForce(calls)
        .map((line) => JSON.parse(line).tokens.length)
        .sort(),
    );
    // Which of several paths trains a shared reply is a matter of taste; that it is trained once is not.
    const count = (masks: number[][]): number => masks.flat().reduce((sum, one) => sum + one, 0);
    expect(count(samples.map(({ mask }) => mask))).toBe(
      calls.reduce((sum, { call }) => sum + call.tokens.completion.length, 0),
    );
    expect(samples.map(({ tokens }) => JSON.stringify(tokens)).sort()).toEqual(
      bruteForce(calls)
        .map((line) => JSON.stringify(JSON.parse(line).tokens))
        .sort(),
    );
  }
});
