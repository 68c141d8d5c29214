import { cpSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { encodeCandidate } from '../../src/data/candidate.ts';
import { loadChat } from '../../src/data/chat.ts';
import { openClassifier, openOnnx } from '../../src/stages/value/scorer.ts';
import { startEngine } from '../support/engine.ts';

const base = 'models/tiny-base';
const options = { apiKey: 'k', concurrency: 3, signal: new AbortController().signal };

test('scores of an engine’s classification endpoint come back in the order they were asked for', async () => {
  await using engine = await startEngine(async ({ body }, response) => {
    const ids = body.input as number[];
    await new Promise((done) => setTimeout(done, 30 - 5 * ids.length));
    response.writeHead(200).end(JSON.stringify({ data: [{ index: 0, probs: [ids.length / 10] }] }));
  });
  const scorer = openClassifier({ baseUrl: engine.baseUrl, model: 'value' }, options);
  expect(await scorer.score([[1], [1, 2, 3], [1, 2]])).toEqual([0.1, 0.3, 0.2]);
  expect(engine.asked[0]!.headers.authorization).toBe('Bearer k');
});

test('an endpoint that gives no probability is named with what it said', { timeout: 20_000 }, async () => {
  await using engine = await startEngine((_, response) => void response.writeHead(200).end('{"data":[{"probs":[7]}]}'));
  const scorer = openClassifier({ baseUrl: engine.baseUrl, model: 'value' }, options);
  await expect(scorer.score([[1]])).rejects.toMatchObject({
    owner: 'reward',
    message: expect.stringContaining('gave no probability'),
  });
});

test('a value model whose file is not the one it describes is refused, naming both', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'orchard-value-'));
  writeFileSync(join(folder, 'value.onnx'), 'other bytes');
  writeFileSync(
    join(folder, 'value.json'),
    JSON.stringify({ v: 'orchard.value/1', onnxSha256: 'abcdef', context: 10 }),
  );
  cpSync(join(base, 'tokenizer.json'), join(folder, 'tokenizer.json'));
  await expect(openOnnx(folder, { base })).rejects.toMatchObject({
    owner: 'user',
    message: expect.stringMatching(/value.onnx is not the file that value.json describes: .* not abcdef/),
  });
});

test('the value model sees the conversation and the patch, and of a long attempt its head and tail', async () => {
  const chat = await loadChat(base);
  const messages = [
    { role: 'user' as const, content: 'the issue' },
    { role: 'assistant' as const, content: `start ${'middle '.repeat(500)} finish` },
  ];
  const whole = encodeCandidate(chat, { messages, patch: Buffer.from('+x = 1') }, { maxTokens: 1e6 });
  const cut = encodeCandidate(chat, { messages, patch: Buffer.from('+x = 1') }, { maxTokens: 101 });
  expect(cut).toHaveLength(101);
  expect(cut.slice(0, 50)).toEqual(whole.slice(0, 50));
  expect(cut.slice(50)).toEqual(whole.slice(-51));
});
