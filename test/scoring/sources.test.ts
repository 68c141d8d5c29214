import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { profileOf, toOfficial } from '../../src/benchmarks/swe-bench/official.ts';
import { readRows, writeRows } from '../../src/benchmarks/swe-bench/read.ts';
import { type Instance, OTHER_RULES, readInstance } from '../../src/benchmarks/swe-bench/sources.ts';
import { describe, openGraders, readInstances } from '../../src/scoring/instances.ts';

const graders = openGraders({ dir: join(import.meta.dirname, '../../grader'), workers: 1 });
const dir = mkdtempSync(join(tmpdir(), 'orchard-sources-'));
afterAll(async () => {
  await graders[Symbol.asyncDispose]();
  rmSync(dir, { recursive: true, force: true });
});

const common = {
  instance_id: 'pallets__flask-1',
  repo: 'pallets/flask',
  base_commit: 'c0ffee',
  problem_statement: 'It breaks.\r\n',
  patch: 'diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\r\n+b\r\n',
  test_patch: '',
  FAIL_TO_PASS: ['t.py::f'],
  PASS_TO_PASS: ["t.py::p['q']"],
};
const four = {
  ...common,
  version: '2.0',
  environment_setup_commit: 'c',
  hints_text: '',
  created_at: '2023-01-05T10:00:00Z',
};
const five = {
  ...four,
  image: 'swebench/x:latest',
  eval_script: '#!/bin/bash\ntrue\n',
  log_parser: 'parse_log_pytest',
  eval_type: 'pass_and_fail',
};

const ROWS: Record<string, Record<string, unknown>> = {
  'SWE-bench 4.x': four,
  'SWE-bench 5.x': five,
  'SWE-Gym': { ...common, version: '2.0', created_at: '2023' },
  'SWE-smith': {
    instance_id: 'a__b.1',
    patch: 'p',
    FAIL_TO_PASS: ['t'],
    PASS_TO_PASS: [],
    image_name: 'i',
    repo: 'swesmith/a',
    problem_statement: 's',
  },
  'R2E-Gym': {
    repo_name: 'pandas',
    docker_image: 'i',
    commit_hash: 'c',
    parsed_commit_content: '{}',
    problem_statement: 's',
    expected_output_json: '{}',
  },
  'SWE-rebench': {
    ...four,
    meta: {},
    install_config: { test_cmd: 'pytest', log_parser: 'parse_log_pytest' },
    docker_image: 'i',
  },
  'SWE-rebench V2': {
    ...common,
    language: 'go',
    interface: '',
    pr_description: '',
    image_name: 'i',
    install_config: {},
  },
  'SWE-bench-Live': {
    ...common,
    docker_image: 'i',
    rebuild_cmds: [],
    test_cmds: ['pytest'],
    print_cmds: [],
    log_parser: 'pytest',
  },
};

test.each(Object.entries(ROWS))(
  'a row of %s is told by its fields, also inside a NeMo Gym envelope',
  async (source, row) => {
    const file = join(dir, `${source.replaceAll(/\W/g, '')}.jsonl`);
    const envelope = {
      responses_create_params: {
        metadata: { instance_id: row.instance_id, dataset_name: 'x', instance_dict: JSON.stringify(row) },
      },
      agent_ref: {},
    };
    for (const line of [row, envelope]) {
      writeFileSync(file, `${JSON.stringify(line)}\n`);
      const read = readInstances(file, { split: 'test', ids: null, profile: null, graders });
      if (source.startsWith('SWE-bench ')) {
        const [{ instance, profile } = { instance: null, profile: null }] = (await read).ready;
        expect(instance!.source).toBe(source);
        expect(profile).toBe(source === 'SWE-bench 4.x' ? '4.1' : '5.0');
      } // Another rule grades these: refused with the rule's name, never graded by the wrong one.
      else
        await expect(read).rejects.toThrow(new RegExp(OTHER_RULES[source as keyof typeof OTHER_RULES]!.slice(0, 20)));
    }
  },
);

test('lists of tests are read as lists, as JSON text and as Python literals, with quotes inside', () => {
  for (const spelled of [
    ["t.py::p['q']", 'a "b"'],
    JSON.stringify(["t.py::p['q']", 'a "b"']),
    `["t.py::p['q']", 'a "b"']`,
    `['t.py::p[\\'q\\']', "a \\"b\\""]`,
  ]) {
    const read = readInstance({ ...five, PASS_TO_PASS: spelled }, { index: 0 }) as Instance;
    expect(read.passToPass).toEqual(["t.py::p['q']", 'a "b"']);
  }
});

test('a 4.x row names no image: it follows from the id, in lower case and for amd64', () => {
  const read = readInstance({ ...four, instance_id: 'Pallets__Flask-1' }, { index: 0 }) as Instance;
  expect(read.workspace).toEqual({
    kind: 'image',
    image: 'swebench/sweb.eval.x86_64.pallets_1776_flask-1:latest',
    workdir: '/testbed',
  });
});

test.each([
  ['FAIL_TO_PASS', { ...five, FAIL_TO_PASS: 'not a list' }, 'expected a list of test names'],
  ['FAIL_TO_PASS', { ...five, FAIL_TO_PASS: [1] }, ''],
  ['FAIL_TO_PASS', { ...five, FAIL_TO_PASS: '[]' }, 'no test that the patch has to make pass'],
  ['patch', { ...five, patch: null }, ''],
  ['instance_id', { ...five, instance_id: '../../etc' }, 'cannot name a folder'],
  ['log_parser', { ...five, log_parser: 'parse_log_unheard_of' }, 'has no parser'],
  ['eval_type', { ...five, eval_type: 'sometimes' }, 'has no type'],
  ['version', { ...four, version: '99.9' }, 'does not know version 99.9'],
  ['repo', { ...four, repo: 'nobody/nothing' }, 'does not know nobody/nothing'],
  ['row', 7, 'is not an object'],
  ['instance_id', five, 'occurs twice'],
])('P32 and others: a row with a bad %s is refused by name, and the rest goes on', async (field, row, cause) => {
  const file = join(dir, 'bad.json');
  writeFileSync(file, JSON.stringify([cause === 'occurs twice' ? five : { ...five, instance_id: 'first' }, row]));
  const { ready, refused } = await readInstances(file, { split: 'test', ids: null, profile: null, graders });
  expect(ready).toHaveLength(1);
  expect(refused).toHaveLength(1);
  expect(refused[0]!.field).toBe(field);
  expect(describe(refused[0]!)).toContain(cause);
});

test('a row of 4.x under --profile 5.0 is refused by the field that it lacks', async () => {
  const file = join(dir, 'old.jsonl');
  writeFileSync(file, `${JSON.stringify(four)}\n`);
  await expect(readInstances(file, { split: 'test', ids: null, profile: '5.0', graders })).rejects.toThrow(
    /log_parser: missing.*--profile 4\.1/s,
  );
});

test('JSON, JSONL, Parquet, a folder of splits and a task repository give the same instance and the same hash', async () => {
  const { instance_id, patch, test_patch, eval_script, problem_statement, FAIL_TO_PASS, PASS_TO_PASS, ...task } = five;
  const repository = join(dir, 'repository', 'tasks', instance_id);
  mkdirSync(repository, { recursive: true });
  for (const [name, text] of Object.entries({
    'task.yaml': JSON.stringify({ ...task, split: 'test' }),
    'tests.json': JSON.stringify({ FAIL_TO_PASS, PASS_TO_PASS }),
    'problem_statement.md': problem_statement,
    'gold.patch': patch,
    'test.patch': test_patch,
    'eval.sh': eval_script,
  }))
    writeFileSync(join(repository, name), text);
  mkdirSync(join(dir, 'splits'));
  await writeRows(join(dir, 'splits', 'test.parquet'), [five]);
  await writeRows(join(dir, 'rows.json'), [five]);
  await writeRows(join(dir, 'rows.jsonl'), [five]);
  const read = await Promise.all(
    ['rows.json', 'rows.jsonl', 'splits/test.parquet', 'splits', 'repository'].map(async (path) => {
      const { rows } = await readRows(join(dir, path), 'test');
      return toOfficial(readInstance(rows[0], { index: 0 }) as Instance);
    }),
  );
  for (const { row: _, ...instance } of read) {
    const { row: __, ...first } = read[0]!;
    expect(instance).toEqual(first);
    expect(profileOf(read[0]!)).toBe('5.0');
    expect(instance.goldPatch).toContain('-a\r\n'); // byte for byte
  }
});

test('the last row of a file that does not end in a newline is read, and blank lines are passed over', async () => {
  const file = join(dir, 'unended.jsonl');
  writeFileSync(file, `${JSON.stringify(five)}\n\n${JSON.stringify({ ...five, instance_id: 'b' })}`);
  const { ready } = await readInstances(file, { split: 'test', ids: null, profile: null, graders });
  expect(ready.map(({ instance }) => instance.id)).toEqual(['pallets__flask-1', 'b']);
});

test.each([
  ['nothing.jsonl', null, /there is no data set/],
  ['torn.json', '[{"a":', /cannot read/],
  ['one.json', '{"a": 1}', /expected a list of rows/],
  ['empty.jsonl', '', /has no rows/],
  ['not.parquet', 'PAR0', /cannot read/],
])('%s is refused as a data set', async (name, content, message) => {
  const file = join(dir, name);
  if (content !== null) writeFileSync(file, content);
  await expect(readInstances(file, { split: 'test', ids: null, profile: null, graders })).rejects.toThrow(message);
});

test('an id that the data set does not have is refused', async () => {
  await expect(
    readInstances(join(dir, 'rows.jsonl'), { split: 'test', ids: ['x__y-1'], profile: null, graders }),
  ).rejects.toThrow(/has no x__y-1/);
});
