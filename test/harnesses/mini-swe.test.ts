import { chmod, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { miniSwe } from '../../src/harnesses/mini-swe/index.ts';
import type { HarnessEnd } from '../../src/ports/harness.ts';
import type { ChatMessage } from '../../src/ports/inference.ts';
import type { SandboxDriver } from '../../src/ports/sandbox.ts';
import { local } from '../../src/sandboxes/local/index.ts';
import { type Engine, type Play, reply, startEngine } from '../support/engine.ts';

const SUBMIT = 'echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT';

let driver: SandboxDriver;
beforeAll(async () => {
  const scratchDir = await mkdtemp(join(tmpdir(), 'orchard-scratch-'));
  await chmod(scratchDir, 0o755);
  driver = await local.open(local.config.parse({}), { scratchDir });
});
afterAll(() => driver[Symbol.asyncDispose]());

/** Runs the loop against an engine; says how it ended and what the model was shown at each call. */
async function run(
  play: Play,
  { settings = {}, signal = new AbortController().signal }: { settings?: object; signal?: AbortSignal } = {},
): Promise<{ end: HarnessEnd; shown: ChatMessage[][]; engine: Engine }> {
  const engine = await startEngine(play);
  onTestFinished(() => engine[Symbol.asyncDispose]());
  await using sandbox = await driver.create({
    id: 'e',
    workspace: { kind: 'files', files: { 'a.txt': 'one\n' } },
    network: driver.capabilities.network === 'open' ? 'open' : 'none',
    memoryMiB: 512,
    processes: 64,
    lifetimeMs: 60_000,
  });
  const end = await miniSwe.open(miniSwe.config.parse(settings)).run({
    episode: 'e',
    statement: 'mend {{output}} $& it',
    endpoint: { baseUrl: engine.baseUrl, apiKey: 'k', model: 'm' },
    sandbox,
    sampling: { temperature: 0.5, topP: 0.9, maxTokensPerCall: 77 },
    signal,
  });
  return { end, engine, shown: engine.asked.map(({ body }) => body.messages as ChatMessage[]) };
}

const call = (command: string, name = 'bash') => ({
  id: 'c1',
  type: 'function' as const,
  function: { name, arguments: JSON.stringify({ command }) },
});

/** An engine that runs these commands one after the other, the last one again and again. */
const commands =
  (...list: string[]): Play =>
  (_, response, number) =>
    reply(response, { content: '', toolCalls: [call(list[Math.min(number, list.length - 1)]!)] });

test('commands run in the repository, their output comes back, and the sentinel ends the attempt', async () => {
  const { end, shown, engine } = await run(commands('cat a.txt; exit 3', SUBMIT));
  expect(end).toMatchObject({ kind: 'submitted', oddities: { unknownTools: 0, unparsable: 0 } });
  expect(shown[0]!.map(({ role }) => role)).toEqual(['system', 'user']);
  expect(shown[0]![1]!.content).toContain('mend {{output}} $& it'); // what is put in is no template
  expect(shown[1]!.at(-1)).toEqual({
    role: 'tool',
    tool_call_id: 'c1',
    content: '<returncode>3</returncode>\n<output>\none\n</output>',
  });
  expect(engine.asked[0]!.body).toMatchObject({ temperature: 0.5, top_p: 0.9, max_tokens: 77, model: 'm' });
  expect(engine.asked[0]!.headers.authorization).toBe('Bearer k');
});

test('the history only ever grows: each prompt begins with the one before', async () => {
  const { shown } = await run(commands('echo 1', 'echo 2', 'echo 3', SUBMIT));
  for (let turn = 1; turn < shown.length; turn++)
    expect(shown[turn]!.slice(0, shown[turn - 1]!.length)).toEqual(shown[turn - 1]);
});

test('the sentinel counts only as the first line of a command that succeeded', async () => {
  const { end, shown } = await run(commands(`echo x; ${SUBMIT}`, `${SUBMIT}; false`, `echo; ${SUBMIT}`));
  expect(end.kind).toBe('submitted');
  expect(shown).toHaveLength(3); // an empty line in front does not matter, another word does
});

test('a turn without tool call is told so, and a few of them end the attempt', async () => {
  const { end, shown } = await run((_, response) => reply(response, { content: 'I think…' }), {
    settings: { formatErrors: 2 },
  });
  expect(end).toMatchObject({ kind: 'format_limit', detail: 'no tool call' });
  expect(shown).toHaveLength(2);
  expect(shown[1]!.at(-1)).toMatchObject({ role: 'user', content: expect.stringContaining('no tool call') });
});

test('unknown tools and arguments that cannot be read are counted apart and answered', async () => {
  const { end, shown } = await run((_, response, number) => {
    if (number === 0) reply(response, { toolCalls: [call('x', 'edit_file')] });
    else if (number === 1)
      reply(response, { toolCalls: [{ ...call(''), function: { name: 'bash', arguments: '{"command": 3}' } }] });
    else reply(response, { toolCalls: [call(SUBMIT)] });
  });
  expect(end).toMatchObject({ kind: 'submitted', oddities: { unknownTools: 1, unparsable: 1 } });
  expect(shown[1]!.at(-1)!.content).toContain('there is no tool edit_file');
  expect(shown[2]!.at(-1)!.content).toContain('no JSON object');
});

test('several calls of one turn are answered each by its id', async () => {
  const { shown } = await run((_, response, number) =>
    number === 0
      ? reply(response, {
          toolCalls: [
            { ...call('echo a'), id: 'x' },
            { ...call('echo b'), id: 'y' },
          ],
        })
      : reply(response, { toolCalls: [call(SUBMIT)] }),
  );
  expect(shown[1]!.slice(-2)).toMatchObject([
    { tool_call_id: 'x', content: expect.stringContaining('a\n') },
    { tool_call_id: 'y', content: expect.stringContaining('b\n') },
  ]);
});

test('a command that takes too long is stopped, says so, and the attempt goes on', async () => {
  const { end, shown } = await run(commands('echo begun; sleep 60', SUBMIT), { settings: { commandTimeoutMs: 400 } });
  expect(end.kind).toBe('submitted');
  expect(shown[1]!.at(-1)!.content).toMatch(/begun\n[\s\S]*stopped after 0\.4 s/);
});

test('long output is cut in the middle with the number left out', async () => {
  const { shown } = await run(commands('seq 1 3000', SUBMIT), { settings: { outputCharacters: 200 } });
  const content = shown[1]!.at(-1)!.content!;
  expect(content.length).toBeLessThan(400);
  expect(content).toMatch(/^<returncode>0[\s\S]*1\n2\n[\s\S]*characters left out[\s\S]*3000\n/);
});

test('thoughts that the engine keeps apart go back to it', async () => {
  const { shown } = await run((_, response, number) => {
    const message = {
      role: 'assistant',
      content: 'x',
      reasoning_content: 'hm',
      tool_calls: [call(number === 0 ? 'true' : SUBMIT)],
    };
    response.end(JSON.stringify({ choices: [{ message, finish_reason: 'tool_calls' }] }));
  });
  expect(shown[1]![2]).toMatchObject({ role: 'assistant', content: 'x', reasoning_content: 'hm' });
});

test.each([
  [{ code: 'orchard_budget_exhausted', limit: 'tokens' }, 'token_limit'],
  [{ code: 'orchard_budget_exhausted', limit: 'wall' }, 'time_limit'],
  [{ code: 'orchard_budget_exhausted', limit: 'calls' }, 'call_limit'],
  [{ code: 'context_length_exceeded' }, 'context_limit'],
  [{ code: 400, message: "This model's maximum context length is 2048 tokens." }, 'context_limit'],
])('%o ends the attempt as %s, which is the model’s own end', async (error, kind) => {
  const { end } = await run((_, response) => void response.writeHead(400).end(JSON.stringify({ error })));
  expect(end.kind).toBe(kind);
});

test('turns are limited too', async () => {
  expect((await run(commands('true'), { settings: { turns: 3 } })).end).toMatchObject({
    kind: 'call_limit',
    detail: 'harness.turns',
  });
});

test('an engine that fails is nobody’s end: the episode stops as a failure of the provider', async () => {
  const failing = run((_, response) => void response.writeHead(502).end('{"error":{"message":"gone"}}'));
  await expect(failing).rejects.toMatchObject({ owner: 'provider', id: 'e', message: 'gone' });
});

test('a cancelled run stops at once', async () => {
  const controller = new AbortController();
  const running = run(() => controller.abort(new Error('stop')), { signal: controller.signal });
  await expect(running).rejects.toThrow('stop');
});
