import { execFileSync } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { type Play, reply, startEngine } from '../support/engine.ts';
import { descendants, folder, until } from '../support/orchard.ts';

const place = folder();

const collecting = (baseUrl: string): string => `tasks: { count: 4, extra: 0 }
concurrency: 2
limits: { retries: 0 }
teacher: { kind: openai, baseUrl: '${baseUrl}', model: m }
stages:
  - collect: { episodesPerTask: 1 }
`;

async function engine(play: Play): Promise<string> {
  const started = await startEngine(play);
  onTestFinished(() => started[Symbol.asyncDispose]());
  return started.baseUrl;
}

/** The first call is the one that looks whether the engine works. */
const sound: Play = (_, response) => reply(response, { content: 'hi' });

test('a model server that is not there is named with its address before any episode', async () => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  const { code, stderr } = await place.run([
    'collect',
    place.recipe('absent', collecting(`http://127.0.0.1:${port}/v1`)),
  ]);
  expect(code).toBe(1);
  expect(stderr).toContain(`orchard: cannot reach http://127.0.0.1:${port}/v1`);
  expect(place.lines('absent/collect/episodes.jsonl')).toEqual([]);
});

test('a model server that dies in the middle: its episodes are failures of the infrastructure, and are repeated', {
  timeout: 120_000,
}, async () => {
  let dead = true;
  const url = await engine((asked, response, number) => {
    if (dead && number > 2) response.socket!.destroy();
    else
      reply(response, {
        toolCalls: [
          {
            id: 'c',
            type: 'function',
            function: { name: 'bash', arguments: '{"command":"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}' },
          },
        ],
      });
    void asked;
  });
  const recipe = place.recipe('dies', collecting(url));
  const first = await place.run(['collect', recipe]);
  expect(first.code).toBe(1);
  expect(first.stderr).toMatch(
    /orchard: \d of 4 attempts of collect failed for reasons of the infrastructure, the first: the model at http.* cannot be reached/,
  );
  expect(first.stderr).toContain('only those are repeated');
  const before = place.lines('dies/collect/verdicts.jsonl');
  const settled = before.filter(({ class: kind }) => kind === 'empty_patch').map(({ episode }) => episode);
  expect(settled.length).toBeGreaterThan(0);
  dead = false;
  expect((await place.run(['collect', recipe])).code).toBe(0);
  const after = place.lines('dies/collect/verdicts.jsonl').slice(before.length);
  expect(after.every(({ class: kind }) => kind === 'empty_patch')).toBe(true);
  expect(after.map(({ episode }) => episode).filter((episode) => settled.includes(episode))).toEqual([]);
  expect(after.length + settled.length).toBe(4);
});

test('a model server that answers rubbish is called that, and no episode counts against the model', {
  timeout: 120_000,
}, async () => {
  const url = await engine((asked, response, number) =>
    number === 0 ? sound(asked, response, 0) : void response.end('<html>'),
  );
  const { code, stderr } = await place.run(['collect', place.recipe('rubbish', collecting(url))]);
  expect(code).toBe(1);
  expect(stderr).toContain('answered rubbish');
  const verdicts = place.lines('rubbish/collect/verdicts.jsonl');
  expect(new Set(verdicts.map(({ class: kind }) => kind))).toEqual(new Set(['infrastructure']));
  const [verdict] = verdicts as { failure: { owner: string; code: string } }[];
  expect(verdict!.failure).toMatchObject({ owner: 'provider', code: 'model_rubbish' });
  const { stdout } = await place.run(['status', 'rubbish', '--failures']);
  expect(stdout).toContain('model_rubbish');
});

test('a server that is no chat server, and a key that is not set, stop before anything is started', async () => {
  const html = await engine((_, response) => void response.end('<html>'));
  expect((await place.run(['collect', place.recipe('html', collecting(html))])).stderr).toContain(
    'does not answer like a chat model',
  );
  const recipe = place.recipe('nokey', collecting(html).replace('model: m', 'model: m, apiKeyEnv: NO_SUCH_KEY'));
  const { code, stderr } = await place.run(['collect', recipe]);
  expect(code).toBe(2);
  expect(stderr).toContain('the environment variable NO_SUCH_KEY is not set');
});

const judging = (baseUrl: string, tokens: number): string => `tasks: { count: 12, extra: 0 }
concurrency: 1
limits: { judgeTokens: ${tokens} }
trainer: { kind: local, threads: 1 }
judge: { kind: openai, baseUrl: '${baseUrl}', model: j }
stages:
  - collect: { episodesPerTask: 1 }
  - sft: { epochs: 1, batchRows: 8, learningRate: 1.0e-3, credit: { epsilon: 0.05 } }
`;

test('a judge out of budget says what it spent and where; what it judged is kept', { timeout: 60_000 }, async () => {
  const url = await engine((_, response) =>
    reply(response, { content: '[{"step":0,"value":0.1},{"step":2,"value":0.6}]' }),
  );
  const { code, stderr } = await place.run(['run', place.recipe('budget', judging(url, 8))]);
  expect(code).toBe(1);
  expect(stderr).toMatch(/the judge has spent its 8 tokens, 2 attempts are judged/);
  expect(stderr).toContain('raise limits.judgeTokens');
  expect(place.lines('budget/sft/values.jsonl')).toHaveLength(2);
  const more = await place.run(['run', join(place.dir, 'budget.yaml'), '--set', 'limits.judgeTokens=1000000']);
  expect(more.code, more.stderr).toBe(0);
  const judged = place.lines('budget/sft/values.jsonl').map(({ episode }) => episode);
  expect(new Set(judged).size).toBe(judged.length);
});

test('a judge’s answer that cannot be read drops that attempt by name and reason', { timeout: 60_000 }, async () => {
  const url = await engine((_, response, number) =>
    reply(response, {
      content:
        number % 2 === 0 ? 'I would say good.' : 'Here: ```json\n[{"step":0,"value":0.1},{"step":1,"value":0.6}]\n```',
    }),
  );
  const { code, stderr } = await place.run(['run', place.recipe('unreadable', judging(url, 1_000_000))]);
  expect(code, stderr).toBe(0);
  expect(stderr).toMatch(/\d judge_failed/);
  const selection = place.lines('unreadable/sft/selection.jsonl');
  const dropped = selection.filter(({ use }) => use === 'judge_failed');
  expect(dropped.length).toBeGreaterThan(0);
  for (const { detail, id } of dropped)
    expect([id, detail]).toEqual([expect.stringContaining('collect:tiny__'), 'the judge gave no JSON list']);
  expect(selection.some(({ use }) => use === 'rise')).toBe(true);
});

test('a killed engine is started again under the episodes that use it', { timeout: 120_000 }, async () => {
  const recipe = place.recipe(
    'engine',
    'tasks: { count: 16, extra: 0 }\nconcurrency: 4\nstages:\n  - eval: { models: [base], maxTokensPerCall: 48 }\n',
  );
  const running = place.start(['run', recipe]);
  await until('the evaluation is under way', () => place.lines('engine/eval/base/episodes.jsonl').length > 1, 60_000);
  const server = descendants(running.pid).find(({ command }) => command.includes('orchard_trainer serve'))!;
  process.kill(server.pid, 'SIGKILL');
  const { code, stderr } = await running.ended;
  expect(code, stderr).toBe(0);
  expect(place.report('engine').rows[0]).toMatchObject({ total: 16, infrastructure: 0 });
});

/** Whether this machine lets us mount a small file system of our own. */
const mount = (() => {
  for (const unshare of [
    ['unshare', '--mount'],
    ['unshare', '--user', '--map-root-user', '--mount'],
  ]) {
    try {
      execFileSync(unshare[0]!, [...unshare.slice(1), 'sh', '-c', 'mount -t tmpfs none /mnt'], { stdio: 'ignore' });
      return unshare;
    } catch {
      // the next way
    }
  }
  return null;
})();

test.skipIf(mount === null)(
  'a disk that fills is named, and the run goes on once there is room',
  { timeout: 120_000 },
  async () => {
    const recipe = place.recipe(
      'full',
      'tasks: { count: 120, extra: 0 }\nstages:\n  - collect: { episodesPerTask: 2 }\n',
    );
    const cli = `${process.execPath} ${join(import.meta.dirname, '../../bin/orchard.js')} collect ${recipe}`;
    // In one mount namespace: a disk of 400 KiB, then the same with room.
    const script = `mkdir -p ${place.runs} && mount -t tmpfs -o size=400k none ${place.runs}
    ${cli}; echo "first: $?"; mount -o remount,size=64m ${place.runs}
    ${cli}; echo "second: $?"
    ${cli.replace(/ collect .*/, ' status full')}; wc -l <${place.runs}/full/collect/verdicts.jsonl`;
    const out = execFileSync(mount![0]!, [...mount!.slice(1), 'sh', '-c', `exec 2>&1\n${script}`], {
      cwd: place.dir,
      encoding: 'utf8',
    });
    expect(out).toMatch(
      /orchard: the disk is full[\s\S]*free some space and run the same command again[\s\S]*first: 1/,
    );
    expect(out).toMatch(/second: 0/);
    expect(out).toMatch(/collect +done +240 attempts · \d+ resolved, \d+ failed, \d+ empty patch, 0 infrastructure/);
  },
);
