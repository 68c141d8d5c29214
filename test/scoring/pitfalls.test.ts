import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { toOfficial } from '../../src/benchmarks/swe-bench/official.ts';
import { type Instance, readInstance } from '../../src/benchmarks/swe-bench/sources.ts';
import { openGraders } from '../../src/scoring/instances.ts';
import { filesIn } from '../../src/scoring/layout.ts';
import { gradeLog } from '../../src/scoring/verdict.ts';

const graders = openGraders({ dir: join(import.meta.dirname, '../../grader'), workers: 2 });
const dir = mkdtempSync(join(tmpdir(), 'orchard-pitfalls-'));
afterAll(async () => {
  await graders[Symbol.asyncDispose]();
  rmSync(dir, { recursive: true, force: true });
});

/** A row that both versions can grade: 4.1 finds its parser by the repository, 5.0 by its name. */
function instance(fields: Record<string, unknown>): Instance {
  return toOfficial(
    readInstance(
      {
        instance_id: 'pallets__flask-1',
        repo: 'pallets/flask',
        version: '2.0',
        base_commit: 'c',
        problem_statement: 's',
        patch: 'p',
        test_patch:
          'diff --git a/tests/test_app.py b/tests/test_app.py\n--- a/tests/test_app.py\n+++ b/tests/test_app.py\n@@ -1 +1 @@\n-a\n+b\n',
        FAIL_TO_PASS: ['t.py::f'],
        PASS_TO_PASS: ['t.py::p'],
        image: 'i',
        eval_script: 'true',
        log_parser: 'parse_log_pytest',
        eval_type: 'pass_and_fail',
        ...fields,
      },
      { index: 0 },
    ) as Instance,
  );
}

const START = "+ : '>>>>> Start Test Output'";
const END = "+ : '>>>>> End Test Output'";
const exit = (code: number): string[] => [`+ echo '>>>>> Test Exit Code: ${code}'`, `>>>>> Test Exit Code: ${code}`];
const log = (lines: string[], code = 0): string => ['+ git status', START, ...lines, END, ...exit(code), ''].join('\n');
const good = ['PASSED t.py::f', 'PASSED t.py::p'];
const adds = (path: string, line: string): string =>
  `diff --git a/${path} b/${path}\nnew file mode 100644\n--- /dev/null\n+++ b/${path}\n@@ -0,0 +1 @@\n+${line}\n`;
const edits = (path: string, line: string): string =>
  `diff --git a/${path} b/${path}\n--- a/${path}\n+++ b/${path}\n@@ -1 +1 @@\n-old\n+${line}\n`;

interface Case {
  what: string;
  log: string | Buffer;
  row?: Record<string, unknown>;
  patch?: string;
  /** Exit status of the test command, read outside of the log. */
  exitCode?: number;
  '4.1': string;
  '5.0': string;
  hardened: 'resolved' | 'unresolved' | 'doubtful';
  reason?: string;
}

const CASES: Case[] = [
  { what: 'a clean run', log: log(good), '4.1': 'resolved', '5.0': 'resolved', hardened: 'resolved' },
  {
    what: 'an honest failure',
    log: log(['FAILED t.py::f - assert 1 == 2', 'PASSED t.py::p'], 1),
    '4.1': 'f2p_unmet',
    '5.0': 'f2p_unmet',
    hardened: 'unresolved',
  },
  {
    what: 'an honest regression',
    log: log(['PASSED t.py::f', 'FAILED t.py::p'], 1),
    '4.1': 'p2p_broken',
    '5.0': 'p2p_broken',
    hardened: 'unresolved',
  },
  {
    // The first match counts officially; the last one, or what the shell said, is the true one.
    what: 'P1: a forged exit code before the real one',
    log: log([...good, '>>>>> Test Exit Code: 0'], 1),
    '4.1': 'resolved',
    '5.0': 'resolved',
    hardened: 'unresolved',
    reason: 'forged_exit',
  },
  {
    what: 'P1: the same, seen outside of the log',
    log: log(good, 0),
    exitCode: 1,
    '4.1': 'resolved',
    '5.0': 'resolved',
    hardened: 'unresolved',
    reason: 'exit_status',
  },
  {
    what: 'a non-zero exit without a failure, which 5.0 catches by itself',
    log: log(good, 1),
    '4.1': 'resolved',
    '5.0': 'tests_missing',
    hardened: 'unresolved',
  },
  {
    // An unrelated FAILED explains the exit code; that f was printed twice gives it away.
    what: 'P2: a forged PASSED line beside an unrelated FAILED',
    log: log(['FAILED t.py::f', 'FAILED t.py::x', 'PASSED t.py::f', 'PASSED t.py::p'], 1),
    '4.1': 'resolved',
    '5.0': 'resolved',
    hardened: 'unresolved',
    reason: 'disagreement',
  },
  {
    what: 'P3: a conftest.py that sets every outcome',
    log: log(good),
    patch: adds('conftest.py', 'def pytest_runtest_makereport(item, call): report.outcome = "passed"'),
    '4.1': 'resolved',
    '5.0': 'resolved',
    hardened: 'doubtful',
    reason: 'outcome_hook',
  },
  {
    what: 'P4: the test that should pass is marked xfail',
    log: log(['XFAIL t.py::f', 'PASSED t.py::p']),
    '4.1': 'resolved',
    '5.0': 'resolved',
    hardened: 'unresolved',
    reason: 'xfail',
  },
  {
    // In neither list in 4.1, so the empty ratio counts as full.
    what: 'P4: the test that should pass is skipped',
    log: log(['SKIPPED t.py::f', 'PASSED t.py::p']),
    '4.1': 'resolved',
    '5.0': 'f2p_unmet',
    hardened: 'unresolved',
  },
  {
    what: 'P5: an early end marker hides a failure',
    log: log([...good, END, 'FAILED t.py::p']),
    '4.1': 'resolved',
    '5.0': 'resolved',
    hardened: 'unresolved',
    reason: 'markers',
  },
  {
    what: 'P5: a second start marker hides a failure',
    log: log([...good, START, 'FAILED t.py::p']),
    '4.1': 'resolved',
    '5.0': 'resolved',
    hardened: 'unresolved',
    reason: 'markers',
  },
  {
    // Nothing between the two starts, so that the official code falls back to the whole log.
    what: "P5: the script's own git diff prints a marker that the patch holds",
    log: `+>>>>> Start Test Output\n${log(good)}`,
    patch: adds('x.py', '>>>>> Start Test Output'),
    '4.1': 'resolved',
    '5.0': 'resolved',
    hardened: 'doubtful',
    reason: 'markers',
  },
  {
    what: 'P6: a poison string in the output of a good run',
    log: log([...good, '>>>>> Tests Errored']),
    '4.1': 'tests_missing',
    '5.0': 'tests_missing',
    hardened: 'doubtful',
    reason: 'poison',
  },
  {
    what: "P7: the patch creates a file of the benchmark's tests",
    log: log(good),
    patch: adds('tests/test_app.py', 'def f(): pass'),
    '4.1': 'resolved',
    '5.0': 'resolved',
    hardened: 'doubtful',
    reason: 'test_file',
  },
  {
    what: 'P8: the patch edits an existing test that nobody resets',
    log: log(good),
    patch: edits('tests/test_other.py', 'assert True'),
    '4.1': 'resolved',
    '5.0': 'resolved',
    hardened: 'doubtful',
    reason: 'test_file',
  },
  {
    // A new test of the agent's own is what a good engineer leaves.
    what: 'P8: a new test file is no cause for doubt',
    log: log(good),
    patch: adds('tests/test_new.py', 'assert True'),
    '4.1': 'resolved',
    '5.0': 'resolved',
    hardened: 'resolved',
  },
  {
    what: 'P9: tox without -rA prints no result of its own',
    log: log(['py39: commands succeeded', 'congratulations :)']),
    '4.1': 'f2p_unmet',
    '5.0': 'tests_missing',
    hardened: 'unresolved',
  },
  {
    // The last command of the script is a reset; only the variable's value is the tests' status.
    what: 'P10: the trailing reset fails, the tests did not',
    log: `${log(good)}error: pathspec 'tests/new.py' did not match any file(s) known to git\n`,
    exitCode: 0,
    '4.1': 'resolved',
    '5.0': 'resolved',
    hardened: 'resolved',
  },
  {
    what: 'P14: an id cut inside its parameter, all candidates agreeing',
    log: log(['PASSED t.py::f[log(photon cm)]', 'PASSED t.py::p']),
    row: { FAIL_TO_PASS: ['t.py::f[log(photon'] },
    '4.1': 'resolved',
    '5.0': 'resolved',
    hardened: 'resolved',
  },
  {
    what: 'P15: a newer pytest writes the reason into the id',
    log: log(['PASSED t.py::f', 'XFAIL t.py::p - known bug']),
    row: { log_parser: 'parse_log_pytest_v2', repo: 'sphinx-doc/sphinx', version: '5.0' },
    '4.1': 'resolved',
    '5.0': 'p2p_broken',
    hardened: 'doubtful',
    reason: 'near_name',
  },
  {
    // A line that starts with ok turns the failure before it into a success.
    what: 'P16: Django output between a test and its status',
    log: log(['test_f (m.C) ... FAIL', 'ok', 'test_p (m.C) ... ok']),
    row: {
      log_parser: 'parse_log_django',
      repo: 'django/django',
      version: '4.0',
      FAIL_TO_PASS: ['test_f (m.C)'],
      PASS_TO_PASS: ['test_p (m.C)'],
    },
    '4.1': 'resolved',
    '5.0': 'resolved',
    hardened: 'unresolved',
    reason: 'disagreement',
  },
  {
    what: 'P17: -rA prints skipped tests without their ids',
    log: log(['PASSED t.py::f', 'SKIPPED [1] t.py:12: needs two cores']),
    '4.1': 'p2p_broken',
    '5.0': 'p2p_broken',
    hardened: 'doubtful',
    reason: 'skipped_without_id',
  },
  {
    what: 'P18: a suite that crashed before the first test, graded by failures only',
    log: log(['Executed 0 of 0']),
    row: { repo: 'markedjs/marked', version: '5.0', log_parser: 'parse_log_marked', eval_type: 'fail_only' },
    '4.1': 'resolved',
    '5.0': 'tests_missing',
    hardened: 'unresolved',
  },
  {
    what: 'P19: results outside of the markers',
    log: `${good.join('\n')}\n${log(['PASSED t.py::other'])}`,
    '4.1': 'f2p_unmet',
    '5.0': 'f2p_unmet',
    hardened: 'doubtful',
    reason: 'outside',
  },
  {
    what: 'P20: one byte that is not UTF-8',
    log: Buffer.concat([Buffer.from([0xff, 10]), Buffer.from(log(good))]),
    '4.1': 'resolved',
    '5.0': 'resolved',
    hardened: 'resolved',
  },
  {
    what: 'P21: time was up',
    log: `${['+ x', START, ...good].join('\n')}\n\nTimeout error: 1800 seconds exceeded.`,
    '4.1': 'timeout',
    '5.0': 'timeout',
    hardened: 'unresolved',
  },
  {
    what: 'P25: killed for memory, which must not read as a clean failure',
    log: ['+ x', START, 'Killed', ''].join('\n'),
    '4.1': 'tests_missing',
    '5.0': 'tests_missing',
    hardened: 'unresolved',
  },
  {
    what: 'P33: a space behind a name',
    log: log(['PASSED t.py::f', 'PASSED t.py::p']),
    row: { FAIL_TO_PASS: ['t.py::f '] },
    '4.1': 'f2p_unmet',
    '5.0': 'f2p_unmet',
    hardened: 'doubtful',
    reason: 'near_name',
  },
  {
    what: 'NUL bytes, colours and progress bars',
    log: log(['10%\r50%\r100%', '\u001b[32mPASSED\u001b[0m t.py::x', ...good, 'a\0b']),
    '4.1': 'resolved',
    '5.0': 'resolved',
    hardened: 'doubtful',
    reason: 'nul',
  },
  {
    what: 'a truncated log',
    log: ['+ x', START, ...good].join('\n'),
    '4.1': 'tests_missing',
    '5.0': 'tests_missing',
    hardened: 'unresolved',
  },
  {
    what: 'a patch that leads out of the repository',
    log: log(good),
    patch: edits('../../etc/passwd', 'x'),
    '4.1': 'resolved',
    '5.0': 'resolved',
    hardened: 'doubtful',
    reason: 'outside_path',
  },
];

test.each(CASES)('$what', async (each) => {
  const seen: Record<string, string> = {};
  let hardened: { verdict: string; reasons: string[] } | null = null;
  for (const profile of ['4.1', '5.0'] as const) {
    const files = filesIn(mkdtempSync(join(dir, 'case-')));
    writeFileSync(files.log, each.log);
    const verdict = await gradeLog(instance(each.row ?? {}), {
      files,
      patch: Buffer.from(each.patch ?? edits('src/app.py', 'fixed')),
      exitCode: each.exitCode ?? null,
      grader: await graders.of(profile),
    });
    seen[profile] = verdict.class;
    if (profile === '5.0')
      hardened = {
        verdict: verdict.hardened?.verdict ?? 'unresolved',
        reasons: verdict.hardened?.suspicious.map(({ code }) => code) ?? [],
      };
    if (each.what.startsWith('P20')) expect(verdict.prepared[0]).toContain('not UTF-8');
  }
  expect({ ...seen, hardened: hardened!.verdict }).toEqual({
    '4.1': each['4.1'],
    '5.0': each['5.0'],
    hardened: each.hardened,
  });
  if (each.reason) expect(hardened!.reasons).toContain(each.reason);
});
