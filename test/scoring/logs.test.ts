import { spawnSync } from 'node:child_process';
import {
  createWriteStream,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { finished } from 'node:stream/promises';
import { afterAll, expect, test } from 'vitest';
import { toOfficial } from '../../src/benchmarks/swe-bench/official.ts';
import { type Instance, readInstance } from '../../src/benchmarks/swe-bench/sources.ts';
import { harden, readLog } from '../../src/scoring/hardened.ts';
import { openGraders } from '../../src/scoring/instances.ts';
import { filesIn, findLogs, isFolderName, modelFolder } from '../../src/scoring/layout.ts';
import type { GraderError } from '../../src/scoring/official.ts';
import { patchFiles } from '../../src/scoring/patch.ts';
import { gradeLog, takeLog } from '../../src/scoring/verdict.ts';

const graderDir = join(import.meta.dirname, '../../grader');
const graders = openGraders({ dir: graderDir, workers: 2 });
const dir = mkdtempSync(join(tmpdir(), 'orchard-logs-'));
afterAll(async () => {
  await graders[Symbol.asyncDispose]();
  rmSync(dir, { recursive: true, force: true });
});

const ROW = {
  instance_id: 'pallets__flask-1',
  repo: 'pallets/flask',
  version: '2.0',
  base_commit: 'c',
  problem_statement: 's',
  patch: 'p',
  test_patch: '',
  FAIL_TO_PASS: ['t.py::f'],
  PASS_TO_PASS: ['t.py::p', 't.py::q[a'],
  image: 'i',
  eval_script: 'true',
  log_parser: 'parse_log_pytest',
  eval_type: 'pass_and_fail',
};
const instance = toOfficial(readInstance(ROW, { index: 0 }) as Instance);

const START = "+ : '>>>>> Start Test Output'\n";
const END = "+ : '>>>>> End Test Output'\n";
const GOOD = 'PASSED t.py::f\nPASSED t.py::p\nPASSED t.py::q[a b]\n';

/** Pieces of what real logs hold, put together by a generator with a known seed. */
function* oddLogs(count: number): Iterable<string> {
  let state = 11;
  const random = (below: number): number => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return Math.floor((state / 2147483648) * below);
  };
  const pieces = [
    START,
    END,
    GOOD,
    'FAILED t.py::f - assert 1\n',
    'ERROR t.py::p\n',
    'SKIPPED [1] t.py:3: no\n',
    'XFAIL t.py::f - known\n',
    'PASSED t.py::q[a\n',
    '>>>>> Test Exit Code: 0\n',
    '>>>>> Test Exit Code: 1\n',
    '>>>>> Tests Timed Out\n',
    '>>>>> Applied Patch\n',
    'PASSED\n',
    'FAILED\n',
    '\u001b[31mFAILED\u001b[0m t.py::p\r\n',
    '10%\r20%\r',
    'a\0b\n',
    `${'x'.repeat(20_000)}\n`,
    'PASSED t.py::f PASSED t.py::p\n',
    'test_f (m.C) ... ok\n',
    '\n',
    '\u2028\u0085\u001c',
  ];
  for (let index = 0; index < count; index++)
    yield Array.from({ length: random(14) }, () => pieces[random(pieces.length)]).join('');
}

test.each(['4.1', '5.0'] as const)(
  'profile %s: over odd logs each test has the status that the official functions give when called directly',
  async (profile) => {
    const folder = mkdtempSync(join(dir, 'odd-'));
    const logs = [...oddLogs(120)].map((text, index) => {
      const file = join(folder, `${index}.txt`);
      writeFileSync(file, text);
      return file;
    });
    // The package as it is imported by everybody, with none of the worker's preparations.
    const direct = spawnSync(
      join(graderDir, profile, '.venv/bin/python'),
      [
        '-c',
        `
import json, sys
row, logs = json.load(sys.stdin)
sys.path.insert(0, sys.argv[1])
import plain
for log in logs:
    try:
        print(json.dumps(plain.report(row, log)))
    except Exception as problem:
        print(json.dumps({"error": type(problem).__name__}))
`,
        import.meta.dirname,
      ],
      { input: JSON.stringify([instance.row, logs]), encoding: 'utf8', maxBuffer: 1 << 26 },
    );
    expect(direct.stderr).toBe('');
    const expected = direct.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    const grader = await graders.of(profile);
    const answers = await Promise.all(
      logs.map((log) =>
        grader.grade(instance.row, log).then(
          ({ report }) => report as object,
          (error: GraderError) => ({ error: error.message.split(':')[0] }),
        ),
      ),
    );
    expect(answers).toEqual(expected);
    // The comparison is not empty: both verdicts and unusable logs occur.
    for (const word of ['"resolved":true', '"resolved":false', '"patch_successfully_applied":false'])
      expect(JSON.stringify(answers)).toContain(word);
  },
);

test('a worker that dies, hangs, raises or prints costs one answer, named, and the next ones are answered', async () => {
  const broken = mkdtempSync(join(dir, 'broken-'));
  mkdirSync(join(broken, '5.0/.venv/bin'), { recursive: true });
  writeFileSync(join(broken, '5.0/.venv/bin/python'), '#!/bin/sh\nexec python3 "$@"\n', { mode: 0o755 });
  writeFileSync(
    join(broken, 'worker.py'),
    `
import json, os, sys, time
print(json.dumps({"version": "5.0.2", "parsers": []}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    log = request["log"]
    if log == "dies": os.kill(os.getpid(), 9)
    if log == "exits": sys.exit("ValueError: the last line")
    if log == "hangs": time.sleep(600)
    answer = {"error": "KeyError: 'x'"} if log == "raises" else {"report": {"patch_successfully_applied": True, "resolved": True}, "statuses": {}, "prepared": []}
    print(json.dumps({"id": request["id"], **answer}), flush=True)
`,
  );
  const { openGrader } = await import('../../src/scoring/official.ts');
  await using grader = await openGrader('5.0', { dir: broken, workers: 2, answerMs: 2000 });
  const ask = (log: string): Promise<string> =>
    grader.grade({}, log).then(
      ({ report }) => String(report.resolved),
      (error: Error) => `${error.constructor.name}: ${error.message}`,
    );
  const answers = await Promise.all(['dies', 'good', 'exits', 'raises', 'hangs', 'good', 'good'].map(ask));
  expect(answers).toEqual([
    "GraderError: the grader's process ended with SIGKILL",
    'true',
    "GraderError: the grader's process ended with 1: ValueError: the last line",
    "GraderError: KeyError: 'x'",
    "GraderError: the grader's process did not answer within 2 s",
    'true',
    'true',
  ]);
});

test('a grader that is not installed, or does not start, is told with the way out', async () => {
  const { openGrader } = await import('../../src/scoring/official.ts');
  await expect(openGrader('4.1', { dir, workers: 1 })).rejects.toThrow(/is not installed/);
  const broken = mkdtempSync(join(dir, 'start-'));
  mkdirSync(join(broken, '4.1/.venv/bin'), { recursive: true });
  writeFileSync(join(broken, '4.1/.venv/bin/python'), '#!/bin/sh\necho "ModuleNotFoundError: swebench" >&2; exit 1\n', {
    mode: 0o755,
  });
  await expect(openGrader('4.1', { dir: broken, workers: 1 })).rejects.toThrow(/does not start.*ModuleNotFoundError/s);
});

test('one line of 1 GB is read in little memory, and costs this instance its answer at most', async () => {
  const files = filesIn(mkdtempSync(join(dir, 'line-')));
  writeFileSync(files.log, `${START}${GOOD}`);
  truncateSync(files.log, 1 << 30); // NUL bytes without a newline
  const out = openSync(files.log, 'a');
  writeSync(out, `\n${END}`);
  const before = process.memoryUsage().rss;
  const facts = await readLog(files.log, new Set(instance.failToPass));
  expect({ nul: facts.nul, ends: facts.ends, seen: facts.seen.get('t.py::f') }).toEqual({
    nul: true,
    ends: 1,
    seen: ['PASSED'],
  });
  expect(process.memoryUsage().rss - before).toBeLessThan(200 * 2 ** 20);
  // The official code reads the whole log: within its memory it answers, beyond it MemoryError is what is told.
  const { openGrader } = await import('../../src/scoring/official.ts');
  await using grader = await openGrader('5.0', { dir: graderDir, workers: 64 });
  await expect(grader.grade(instance.row, files.log)).rejects.toThrow(/MemoryError/);
  const small = filesIn(mkdtempSync(join(dir, 'small-')));
  writeFileSync(small.log, `${START}${GOOD}${END}`);
  expect((await grader.grade(instance.row, small.log)).report.resolved).toBe(true);
}, 120_000);

test('logs that are interleaved, cut or wrapped as one JSON string are taken as they are', async () => {
  const whole = `${START}${GOOD}${END}`;
  const files = filesIn(mkdtempSync(join(dir, 'wrapped-')));
  const from = join(dir, 'wrapped.txt');
  writeFileSync(from, JSON.stringify(whole));
  expect(await takeLog(from, files.log)).toEqual(['the log was one JSON string: it was unwrapped']);
  const grade = async (text: string) => {
    writeFileSync(files.log, text);
    return gradeLog(instance, { files, patch: null, exitCode: null, grader: await graders.of('5.0') });
  };
  expect((await grade(whole)).class).toBe('resolved');
  writeFileSync(from, '"not closed');
  expect(await takeLog(from, files.log)).toEqual([]);
  // Two streams that write into one line hide a result: officially a failure.
  expect((await grade(whole.replace('\nPASSED t.py::p', ' PASSED t.py::p'))).class).toBe('p2p_broken');
  for (let cut = 0; cut < whole.length; cut += 7) {
    const verdict = await grade(whole.slice(0, cut));
    expect(verdict.resolved).toBe(false);
  }
});

test('no log and no patch, however hostile, takes the stricter verdict long', async () => {
  const folder = mkdtempSync(join(dir, 'hostile-'));
  const seeds = [
    ' ',
    '\t',
    ' - ',
    ' ... ',
    '"',
    '\\',
    'a/',
    'b/',
    ' b/',
    '../',
    '[',
    '(',
    '@@ ',
    '--- ',
    'PASSED ',
    'test_',
    '/tests/',
    '.config',
    '\u001b[',
    '\u001b]',
    '>>>>> ',
    '\r',
    'pytest_',
    '@skip',
  ];
  for (const first of seeds)
    for (const second of seeds.slice(0, 8)) {
      const body = (first + second).repeat(40_000);
      for (const head of [
        '',
        'diff --git "a/',
        'diff --git a/',
        '+++ b/',
        '--- ',
        '@@ -1 +1 @@\n+',
        'SKIPPED [1',
        '--- PASS: ',
        'PASSED ',
      ]) {
        const text = `diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n+x\n${head}${body}\n${body}`;
        const started = performance.now();
        const patch = patchFiles(Buffer.from(text));
        expect(patch.length).toBeGreaterThan(0);
        const seconds = (performance.now() - started) / 1000;
        expect(seconds, `${JSON.stringify(head)} and ${JSON.stringify(first + second)}`).toBeLessThan(5);
      }
    }
  const log = join(folder, 'log.txt');
  const out = createWriteStream(log);
  for (const first of seeds) for (const second of seeds) out.write(`${(first + second).repeat(5000)}\n`);
  out.end();
  await finished(out);
  const started = performance.now();
  const facts = await readLog(log, new Set(['x']));
  harden(instance, {
    official: { report: { resolved: true, patch_successfully_applied: true }, statuses: {}, prepared: [] },
    log: facts,
    patch: Buffer.from(
      seeds
        .map((seed) => `diff --git a/${seed.repeat(2000)} b/${seed.repeat(2000)}\n@@ -1 +1 @@\n+${seed.repeat(2000)}\n`)
        .join(''),
    ),
    exitCode: null,
  });
  expect((performance.now() - started) / 1000).toBeLessThan(20);
}, 120_000);

test('names that lead elsewhere never become folders', () => {
  for (const name of ['', '.', '..', 'a/b', 'a\\b', 'a\0b', 'x'.repeat(300)]) expect(isFolderName(name)).toBe(false);
  expect(modelFolder('org/model')).toBe('org__model');
  expect(modelFolder('..')).toMatch(/^model-[0-9a-f]{12}$/);
  expect(modelFolder('x'.repeat(300))).toMatch(/^model-/);
});

test('P23: logs are found at any depth by their id; of two models one has to be named', async () => {
  const root = mkdtempSync(join(dir, 'found-'));
  const put = (path: string, text = ''): void => {
    mkdirSync(join(root, path, '..'), { recursive: true });
    writeFileSync(join(root, path), text);
  };
  put('run/model-a/x__y-1/test_output.txt');
  put('run/model-a/x__y-1/patch.diff');
  put('run/model-a/foreign__z-9/test_output.txt');
  put('flat/x__y-2.log');
  put('run/model-a/x__y-3/run_instance.log', 'Patch Apply Failed');
  const ids = new Set(['x__y-1', 'x__y-2', 'x__y-3']);
  const found = await findLogs(root, ids);
  expect([...found.keys()].sort()).toEqual([...ids]);
  expect(found.get('x__y-1')).toMatchObject({ model: 'model-a', patch: expect.stringContaining('patch.diff') });
  expect(found.get('x__y-3')).toMatchObject({ log: null });
  put('run/model-b/x__y-1/test_output.txt');
  await expect(findLogs(root, ids)).rejects.toThrow(/of model-a and of model-b/);
  expect((await findLogs(join(root, 'run/model-b'), ids)).size).toBe(1);
  await expect(findLogs(join(root, 'flat'), new Set(['other']))).rejects.toThrow(/no log of any instance/);
  await expect(findLogs(join(root, 'absent'), ids)).rejects.toThrow(/there is no folder/);
});
