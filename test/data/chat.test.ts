import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { loadChat } from '../../src/data/chat.ts';
import type { ChatMessage } from '../../src/ports/inference.ts';
import { chat, render, tokenizer } from '../support/qwen3.ts';

const bash = [{ type: 'function', function: { name: 'bash', parameters: { type: 'object', properties: {} } } }];
const call = (command: string, content: string | null = null): ChatMessage => ({
  role: 'assistant',
  content,
  tool_calls: [{ id: 'c', type: 'function', function: { name: 'bash', arguments: JSON.stringify({ command }) } }],
});
const talk: ChatMessage[] = [
  { role: 'system', content: 'You work in a shell.' },
  { role: 'user', content: 'Wie heißt die Datei? 你好 🙂' },
  call('ls -la', 'I look.'),
  { role: 'tool', content: 'a.txt\n  indented\n', tool_call_id: 'c' },
  call("sed -i 's/a/b/' a.txt"),
  { role: 'tool', content: '', tool_call_id: 'c' },
  { role: 'assistant', content: 'Done.' },
];

const textOf = (ids: number[]): string => tokenizer.decode(ids, { skip_special_tokens: false });

test('a conversation is tokenized as later prompts show it, and equals its whole text', () => {
  const [row, ...others] = chat.encodeConversation(talk, bash);
  expect(others).toEqual([]);
  const later = render([...talk, { role: 'user', content: 'Thanks.' }], { tools: bash, generate: false });
  const whole = later.slice(0, later.lastIndexOf('<|im_start|>user')).trimEnd();
  expect(textOf(row!.tokens)).toBe(whole);
  // Every border between prompt and reply lies at a special token, so taking it apart changes no id.
  expect(row!.tokens).toEqual(chat.encode(whole));
});

test('exactly what the assistant wrote is marked, end tokens included', () => {
  const [row] = chat.encodeConversation(talk, bash);
  const written = row!.turns.map(({ from, to }) => textOf(row!.tokens.slice(from, to)));
  expect(written).toEqual(
    [
      'I look.\n<tool_call>\n{"name": "bash", "arguments": {"command": "ls -la"}}\n</tool_call><|im_end|>',
      '<tool_call>\n{"name": "bash", "arguments": {"command": "sed -i \'s/a/b/\' a.txt"}}\n</tool_call><|im_end|>',
      'Done.<|im_end|>',
    ].map((text) => expect.stringContaining(text)),
  );
  expect(row!.mask.reduce((sum, one) => sum + one)).toBe(row!.turns.reduce((sum, { from, to }) => sum + to - from, 0));
  expect(row!.turns.map(({ turn }) => turn)).toEqual([0, 1, 2]);
});

test('a template that drops earlier thoughts begins a new row; each turn is trained once, where it was said', () => {
  const thinking: ChatMessage[] = [
    { role: 'user', content: 'One?' },
    { role: 'assistant', content: '<think>\nhm\n</think>\n\nYes.' },
    { role: 'user', content: 'Two?' },
    { role: 'assistant', content: '<think>\nwell\n</think>\n\nNo.' },
  ];
  const rows = chat.encodeConversation(thinking, []);
  expect(rows).toHaveLength(2);
  const trained = rows.map((row) => textOf(row.tokens.filter((_, at) => row.mask[at] === 1)));
  expect(trained).toEqual(['<think>\nhm\n</think>\n\nYes.<|im_end|>', '<think>\nwell\n</think>\n\nNo.<|im_end|>']);
  expect(textOf(rows[1]!.tokens)).not.toContain('hm');
  expect(rows.flatMap((row) => row.turns.map(({ turn }) => turn))).toEqual([0, 1]);
});

test('arguments that are no JSON still reach the template', () => {
  const odd: ChatMessage = {
    role: 'assistant',
    content: null,
    tool_calls: [{ id: 'c', type: 'function', function: { name: 'bash', arguments: '{broken' } }],
  };
  const [row] = chat.encodeConversation([{ role: 'user', content: 'x' }, odd], bash);
  expect(textOf(row!.tokens)).toContain('{broken');
});

test('a folder without tokenizer, with a broken one, or without template says so by name', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'orchard-chat-'));
  await expect(loadChat(dir)).rejects.toMatchObject({ owner: 'user', message: `${dir} has no tokenizer_config.json` });
  await writeFile(join(dir, 'tokenizer_config.json'), '{}');
  await expect(loadChat(dir)).rejects.toMatchObject({ message: `${dir} has no tokenizer.json` });
  await writeFile(join(dir, 'tokenizer.json'), '{ "model"');
  await expect(loadChat(dir)).rejects.toMatchObject({
    owner: 'user',
    message: expect.stringContaining('tokenizer.json'),
  });
});

test('the tiny model’s own tokenizer and template agree with it turn by turn', async () => {
  const tiny = await loadChat('models/tiny-base');
  const [row, ...others] = tiny.encodeConversation(talk, bash);
  expect(others).toEqual([]);
  expect(row!.tokens).toEqual(tiny.encode(tiny.render(talk, bash).trimEnd()));
});
