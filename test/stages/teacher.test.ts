import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { loadChat } from '../../src/data/chat.ts';
import type { Sample } from '../../src/records/sample.ts';
import type { StageContext } from '../../src/stages/context.ts';
import { openTeacher } from '../../src/stages/rl/teacher.ts';
import { type Play, startEngine } from '../support/engine.ts';

const policy = 'models/tiny-base';
const settings = {
  teacher: 'scorer',
  beta: 1,
  divergence: 'k1',
  lambda: 0.5,
  into: 'loss',
  only: false,
  temperature: 1,
} as const;

function contextOf(baseUrl: string): StageContext {
  const scorer = { baseUrl, model: 'big', apiKey: null, async [Symbol.asyncDispose]() {} };
  return {
    openScorer: async () => scorer,
    concurrency: 4,
    signal: new AbortController().signal,
  } as unknown as StageContext;
}

/** Scores every token by its place; says nothing of prompts that hold the id 13. */
const scoring: Play = async ({ body }, response) => {
  const chat = await loadChat(policy);
  const ids = typeof body.prompt === 'string' ? chat.encode(body.prompt) : (body.prompt as number[]);
  if (typeof body.prompt !== 'string' && ids.includes(13)) return void response.writeHead(500).end('out of memory');
  const prompt_logprobs = ids.map((id, at) =>
    at === 0 ? null : { [id]: { logprob: -at / 10, rank: 1 }, 999: { logprob: -9 } },
  );
  response
    .writeHead(200, { 'content-type': 'application/json' })
    .end(JSON.stringify({ choices: [{ index: 0, text: '', prompt_logprobs, prompt_token_ids: ids }] }));
};

const sample = (id: string, tokens: number[]): Sample => ({ id, tokens }) as Sample;

test('the teacher scores the very ids of a sample, and one it fails on concerns no other', {
  timeout: 30_000,
}, async () => {
  await using engine = await startEngine(scoring);
  const dir = mkdtempSync(join(tmpdir(), 'orchard-teacher-'));
  await using teacher = await openTeacher(contextOf(engine.baseUrl), { settings, dir, policy });
  const samples = [sample('a', [5, 6, 7]), sample('b', [5, 13, 7]), sample('c', [8, 9])];
  const scores = await teacher.score(samples, dir);
  expect(scores.get('a')!.logprobs).toEqual([0, -0.1, -0.2]);
  expect(scores.get('b')).toMatchObject({ logprobs: null, problem: expect.stringContaining('out of memory') });
  expect(scores.get('c')!.logprobs).toEqual([0, -0.1]);
  const asked = engine.asked.length;
  // A run that goes on does not pay for them again.
  expect(await teacher.score(samples, dir)).toEqual(scores);
  expect(engine.asked.length).toBe(asked);
});

test('a teacher with another tokenizer is refused, naming both', async () => {
  await using engine = await startEngine(
    (_, response) =>
      void response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ choices: [{ prompt_logprobs: [null, {}], prompt_token_ids: [1, 2] }] })),
  );
  const opened = openTeacher(contextOf(engine.baseUrl), { settings, dir: tmpdir(), policy });
  await expect(opened).rejects.toMatchObject({
    owner: 'user',
    message: expect.stringMatching(
      /scorer .* has another tokenizer than the policy \(models\/tiny-base\): a probe gives 2 ids/,
    ),
  });
});

test('an engine that cannot score is refused before anything is sampled', async () => {
  await using engine = await startEngine((_, response) => void response.writeHead(404).end('no such route'));
  const opened = openTeacher(contextOf(engine.baseUrl), { settings, dir: tmpdir(), policy });
  await expect(opened).rejects.toMatchObject({
    owner: 'user',
    message: expect.stringContaining('cannot score tokens'),
  });
});
