import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parquetWriteFile } from 'hyparquet-writer';
import { expect, test } from 'vitest';
import { parsers } from '../../src/benchmarks/swe-bench/parse.ts';
import { readRows } from '../../src/benchmarks/swe-bench/read.ts';
import { rowsToTasks } from '../../src/benchmarks/swe-bench/rows.ts';

const row = {
  instance_id: 'a__b-1',
  repo: 'a/b',
  base_commit: 'c',
  problem_statement: 's',
  patch: 'p',
  test_patch: 't',
  FAIL_TO_PASS: ['x'],
  PASS_TO_PASS: [] as string[] | string,
  image: 'i',
  eval_script: 'true',
  log_parser: 'pytest',
};
const read = (rows: unknown[]) => rowsToTasks(rows, { benchmark: 'swe-bench', source: 'rows' });

test.each([
  ['a list', ['x', "it's"]],
  ['JSON text', '["x", "it\'s"]'],
  ['a Python literal', `['x', "it's"]`],
])('test names as %s are read alike', (_, value) => {
  expect(read([{ ...row, FAIL_TO_PASS: value }])[0]!.failToPass).toEqual(['x', "it's"]);
});

test.each([
  [{ ...row, FAIL_TO_PASS: 'x, y' }, /a__b-1: FAIL_TO_PASS/],
  [{ ...row, FAIL_TO_PASS: [] }, /no test that the patch has to make pass/],
  [{ ...row, eval_script: undefined }, /a__b-1: eval_script/],
  [{ ...row, image: undefined }, /neither files nor image/],
  [{}, /row 1: instance_id/],
  [null, /row 1/],
])('a row that cannot be graded is named by id and field', (bad, message) => {
  expect(() => read([bad])).toThrow(message);
});

test('two rows with one id are refused', () => {
  expect(() => read([row, row])).toThrow(/occurs twice/);
});

test('JSON, JSON lines and Parquet give the same rows, from a file or from a folder by split', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'orchard-rows-'));
  const flat = { ...row, FAIL_TO_PASS: JSON.stringify(row.FAIL_TO_PASS), PASS_TO_PASS: '[]' };
  await writeFile(join(dir, 'one.json'), JSON.stringify([flat]));
  await writeFile(join(dir, 'two.jsonl'), `${JSON.stringify(flat)}\n`);
  parquetWriteFile({
    filename: join(dir, 'three.parquet'),
    columnData: Object.entries(flat).map(([name, value]) => ({ name, data: [value] })),
  });
  const tasks = await Promise.all(
    ['one', 'two', 'three'].map(async (split) => read((await readRows(dir, split)).rows)[0]!),
  );
  const [first, ...others] = tasks.map(({ rowSha256: _, ...rest }) => rest);
  for (const other of others) expect(other).toEqual(first);
  await expect(readRows(dir, 'four')).rejects.toThrow(/has no four/);
  await expect(readRows(join(dir, 'nothing'), 'x')).rejects.toThrow(/no data set/);
});

test('unittest logs of old and new Pythons, docstrings and noise are read', () => {
  const log = [
    'test_a (m.C.test_a) ... ok',
    'test_b (m.C) ... FAIL',
    'test_c (m.C.test_c)',
    'A docstring. ... ERROR',
    'test_d (m.C.test_d) ... printed',
    'ok',
    "test_e (m.C.test_e) ... skipped 'why'",
    'ok',
  ].join('\n');
  expect(Object.fromEntries(parsers.unittest!(log))).toEqual({
    'm.C.test_a': 'passed',
    'm.C.test_b': 'failed',
    'm.C.test_c': 'error',
    'm.C.test_d': 'passed',
    'm.C.test_e': 'skipped',
  });
});

test('the short summary of pytest is read, reasons and parameters included', () => {
  const log = ['PASSED a.py::t[x - y]', 'FAILED a.py::u - assert 1 == 2', 'ERROR a.py::v', 'noise PASSED z'].join('\n');
  expect(Object.fromEntries(parsers.pytest!(log))).toEqual({
    'a.py::t[x - y]': 'passed',
    'a.py::u': 'failed',
    'a.py::v': 'error',
  });
});
