import { expect, test } from 'vitest';
import { folder } from '../support/orchard.ts';

const place = folder();

test('--help answers with every command and an example', async () => {
  const { code, stdout } = await place.run(['--help']);
  expect(code).toBe(0);
  for (const command of [
    'run',
    'collect',
    'train',
    'eval',
    'plan',
    'status',
    'logs',
    'show',
    'list',
    'tasks',
    'data',
    'schema',
    'doctor',
  ])
    expect(stdout).toMatch(new RegExp(`^ {2}${command}\\b`, 'm'));
  expect(stdout).toContain('orchard run tiny');
});

test.each([
  'run',
  'collect',
  'train sft',
  'train rl',
  'train value',
  'rerank',
  'tasks select',
  'plot',
  'eval swebench',
  'plan',
  'status',
  'logs',
  'show',
  'list',
  'tasks check',
  'doctor',
  'data export',
  'data inspect',
  'data convert',
  'eval swebench grade',
  'eval swebench compare',
  'eval swebench validate',
  'eval swebench export',
  'eval swebench images',
  'eval swebench import',
])('%s --help has examples', async (command) => {
  const { code, stdout } = await place.run([...command.split(' '), '--help']);
  expect(code).toBe(0);
  expect(stdout).toContain('Examples:');
});

test('plan shows values with where they came from, and starts nothing', async () => {
  const { code, stdout } = await place.run(['plan', 'tiny', '--set', 'harness.turns=9']);
  expect(code).toBe(0);
  expect(stdout).toMatch(/--set +harness\.turns: 9/);
  expect(stdout).toMatch(/tiny\.yaml:\d+ +seed: 7/);
  expect(stdout).toContain('sft ← collect');
  const json = JSON.parse((await place.run(['plan', 'orchard-swe-4b', '--json'])).stdout);
  const stages = json.stages as { kind: string; does: string[] }[];
  expect(stages.map(({ kind }) => kind)).toEqual('collect sft select rl rl value eval rerank'.split(' '));
  expect(stages.every(({ does }) => does.length > 0)).toBe(true);
});

test('a recipe for what is not there yet is planned whole, and its run says what is missing', async () => {
  const planned = await place.run(['plan', 'orchard-swe-4b']);
  expect(planned.code).toBe(0);
  const stages = ['collect', 'sft', 'select', 'rl', 'rl-dense', 'value', 'eval', 'rerank'];
  for (const stage of stages) expect(planned.stdout).toMatch(new RegExp(`^${stage}( |$)`, 'm'));
  const run = await place.run(['run', 'orchard-swe-4b']);
  expect(run.code).toBe(2);
  expect(run.stderr).toContain('sandbox kubernetes can be planned but is not there to run yet');
});

test('a missing argument and an unknown option of a command exit with 2', async () => {
  expect((await place.run(['run'])).code).toBe(2);
  const { code, stderr } = await place.run(['plan', 'tiny', '--jsn']);
  expect([code, stderr]).toEqual([2, expect.stringContaining('--json')]);
});

test('a mistyped command names the nearest and exits with 2', async () => {
  const { code, stderr } = await place.run(['colect', 'tiny']);
  expect(code).toBe(2);
  expect(stderr).toContain('collect');
});

test('a wrong recipe exits with 2 and leaves no run folder', async () => {
  const { code, stderr } = await place.run(['run', 'tiny', '--set', 'harness.turn=3', '--name', 'bad']);
  expect(code).toBe(2);
  expect(stderr).toContain('did you mean turns?');
  expect((await place.run(['status', 'bad'])).stderr).toContain('bad');
});

test('a run that is not there names those that are', async () => {
  for (const command of ['status', 'show', 'logs']) {
    const { code, stderr } = await place.run([command, 'nowhere']);
    expect(code).toBe(2);
    expect(stderr).toContain('nowhere');
  }
});

test('tasks check proves tasks sound', { timeout: 60_000 }, async () => {
  const { code, stderr } = await place.run(['tasks', 'check', 'tiny', '--set', 'tasks.limit=4']);
  expect(code, stderr).toBe(0);
  expect(stderr).toContain('4 sound, 0 broken');
});

test('doctor says what the machine allows', { timeout: 60_000 }, async () => {
  const { stdout } = await place.run(['doctor']);
  expect(stdout).toMatch(/ok +trainer: torch \d/);
  expect(stdout).toMatch(/local sandbox: isolation (namespace|none)/);
});
