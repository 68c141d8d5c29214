import { stripVTControlCharacters } from 'node:util';
import type { Instance } from '../benchmarks/swe-bench/sources.ts';
import type { Suspicion } from '../records/score.ts';
import { type FileFacts, scanLines } from './lines.ts';
import type { Graded } from './official.ts';
import { type PatchFile, patchFiles } from './patch.ts';

const START = '>>>>> Start Test Output';
const END = '>>>>> End Test Output';
const EXIT = /^>>>>> Test Exit Code:\s*(-?\d+)/;
const POISON = ['Patch Apply Failed', 'Reset Failed', 'Tests Errored', 'Tests Timed Out'].map(
  (word) => `>>>>> ${word}`,
);

/** What the raw log says, whatever the official code makes of it. */
export interface LogFacts extends FileFacts {
  starts: number;
  ends: number;
  /** Every recorded exit status, in order. */
  exits: number[];
  poison: string[];
  /** Words of status that stood beside each named test, in order. */
  seen: Map<string, string[]>;
  /** Results of named tests before the first START or after the last END. */
  outside: number;
  /** `SKIPPED [1] file:line`, which names no test. */
  skippedWithoutId: number;
  nul: boolean;
}

/** One pass over a log of any size. */
export async function readLog(path: string, tests: Set<string>): Promise<LogFacts> {
  const seen = new Map<string, string[]>();
  const facts = {
    starts: 0,
    ends: 0,
    exits: [] as number[],
    poison: [] as string[],
    outside: 0,
    skippedWithoutId: 0,
    nul: false,
  };
  let afterEnd = 0;
  const result = (test: string, status: string): void => {
    if (!tests.has(test)) return;
    if (facts.starts === 0) facts.outside++;
    else if (facts.ends >= facts.starts) afterEnd++;
    const known = seen.get(test);
    if (known) known.push(status);
    else seen.set(test, [status]);
  };
  const readResult = resultReader(result);
  const file = await scanLines(path, (raw) => {
    const line = stripVTControlCharacters(raw);
    if (line.includes('\0')) facts.nul = true;
    if (line.includes('>>>>> ')) {
      if (line.includes(START)) facts.starts++;
      if (line.includes(END)) {
        facts.ends++;
        afterEnd = 0; // what stood between two ends was not after the last one
      }
      const exit = EXIT.exec(line);
      if (exit) facts.exits.push(Number(exit[1]));
      for (const word of POISON) if (line.includes(word)) facts.poison.push(word);
      return;
    }
    if (/^SKIPPED \[\d+\] /.test(line)) facts.skippedWithoutId++;
    readResult(line);
  });
  return { ...file, ...facts, outside: facts.outside + afterEnd, seen };
}

/** Reads results of pytest, unittest and Django, and Go, line by line. */
function resultReader(result: (test: string, status: string) => void): (line: string) => void {
  /** The test behind the last ` ... `: its status may stand on a later line, behind what the test prints. */
  let open: { test: string; settled: boolean } | null = null;
  return (line) => {
    const pytest = /^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (.+)$/.exec(line);
    if (pytest) {
      result(pytest[2]!, pytest[1]!);
      const cut = pytest[2]!.indexOf(' - ');
      if (cut > 0) result(pytest[2]!.slice(0, cut), pytest[1]!);
      return;
    }
    const go = /^\s*--- (PASS|FAIL|SKIP): (\S+)/.exec(line);
    if (go) return result(go[2]!, GO[go[1]!]!);
    const dots = line.indexOf(' ... ');
    if (dots > 0) open = { test: line.slice(0, dots), settled: false };
    const word = dots > 0 ? line.slice(dots + 5) : line;
    const status = /^(ok|FAIL|ERROR|skipped|expected failure|unexpected success)\b/.exec(word)?.[1];
    // A line that starts with ok counts again officially, even behind a failure.
    if (open && status && (!open.settled || status === 'ok')) {
      result(open.test, UNITTEST[status]!);
      open.settled = true;
    }
  };
}

const GO: Record<string, string> = { PASS: 'PASSED', FAIL: 'FAILED', SKIP: 'SKIPPED' };

const UNITTEST: Record<string, string> = {
  ok: 'PASSED',
  FAIL: 'FAILED',
  ERROR: 'ERROR',
  skipped: 'SKIPPED',
  'expected failure': 'XFAIL',
  'unexpected success': 'FAILED',
};

export interface Hardened {
  verdict: 'resolved' | 'unresolved' | 'doubtful';
  suspicious: Suspicion[];
}

/** Reasons that by themselves show that a named test did not pass. */
const DECISIVE = new Set(['xfail', 'skipped', 'disagreement', 'exit_status']);

/**
 * The second verdict: what the log, the patch and the status map say against the official one. `doubtful` is for what
 * a person has to look at.
 */
export function harden(
  instance: Instance,
  evidence: {
    official: Graded;
    log: LogFacts;
    patch: Buffer | null;
    /** Exit status of the test command, read outside of the log; null when nobody did. */
    exitCode: number | null;
  },
): Hardened {
  const { official } = evidence;
  const suspicious = [
    ...logSuspicions(instance, evidence),
    ...(evidence.patch === null ? [] : patchSuspicions(instance, patchFiles(evidence.patch))),
  ];
  if (official.report.resolved) {
    const verdict = suspicious.some(({ code }) => DECISIVE.has(code))
      ? 'unresolved'
      : suspicious.length > 0
        ? 'doubtful'
        : 'resolved';
    return { verdict, suspicious };
  }
  // Against a failure only what may have hidden a success counts.
  const hiding = [...suspicious.filter(({ code }) => HIDING.has(code)), ...hiddenSuccess(evidence)];
  return { verdict: hiding.length > 0 ? 'doubtful' : 'unresolved', suspicious: hiding };
}

const HIDING = new Set(['poison', 'markers', 'outside']);

function logSuspicions(
  instance: Instance,
  { official, log, exitCode }: { official: Graded; log: LogFacts; exitCode: number | null },
): Suspicion[] {
  const found: Suspicion[] = [];
  const add = (code: string, detail: string): void => void found.push({ code, detail });
  const { statuses } = official;
  const failures = Object.values(statuses).some((status) => status === 'FAILED' || status === 'ERROR');
  if (log.starts > 1 || log.ends > 1)
    add('markers', `${log.starts} start and ${log.ends} end markers: results may be hidden between them`);
  if (log.starts > 0 && log.ends === 0) add('truncated', 'the end marker is missing');
  const last = exitCode ?? log.exits.at(-1) ?? null;
  if (log.exits.length > 1) add('forged_exit', `the log has ${log.exits.length} exit codes: ${log.exits.join(', ')}`);
  if (exitCode !== null && log.exits.length > 0 && log.exits[0] !== exitCode)
    add('forged_exit', `the log says ${log.exits[0]}, the test command ended with ${exitCode}`);
  if (last !== null && last !== 0 && !failures)
    add('exit_status', `the test command ended with ${last}, and no test is reported as failed`);
  if (log.poison.length > 0) add('poison', `the log contains ${[...new Set(log.poison)].join(', ')}`);
  if (log.outside > 0) add('outside', `${log.outside} results stand outside of the markers`);
  if (log.nul) add('nul', 'the log has NUL bytes');
  const failOnly = instance.row.eval_type === 'fail_only';
  const names = [...instance.failToPass, ...instance.passToPass];
  for (const test of names) {
    const words = log.seen.get(test) ?? [];
    const bad = words.some((word) => word === 'FAILED' || word === 'ERROR');
    const good = words.some((word) => word === 'PASSED' || word === 'XFAIL');
    if (bad && good) add('disagreement', `${test}: ${words.join(', ')}`);
  }
  for (const test of instance.failToPass) {
    if (statuses[test] === 'XFAIL') add('xfail', `${test} is expected to fail`);
    if (statuses[test] === 'SKIPPED') add('skipped', `${test} is skipped`);
  }
  if (failOnly) {
    if (Object.keys(statuses).length === 0) add('no_evidence', 'no test is reported at all: absent counts as passed');
  } else {
    const vanished = official.report.resolved
      ? names.filter((test) => statuses[test] === undefined && nearNames(test, statuses).length === 0)
      : [];
    if (vanished.length > 0)
      add('vanished', `${vanished.length} named tests are not in the log: ${vanished.slice(0, 3).join(', ')}`);
  }
  return found;
}

/** Looking for a near name reads all names: of a suite that vanished as a whole this many tell enough. */
const LOOKED_FOR = 100;

/** Keys that are the test's name but for spaces, a reason, or a cut parameter. */
const nearNames = (test: string, statuses: Record<string, string>): string[] => {
  const wanted = test.trim();
  return Object.keys(statuses).filter(
    (key) =>
      key !== test &&
      (key.trim() === wanted ||
        key.startsWith(`${wanted} - `) ||
        (test.split('[').length > test.split(']').length && key.startsWith(test))),
  );
};

/** Named tests that fail officially because of how their names are read. */
function hiddenSuccess({ official, log }: { official: Graded; log: LogFacts }): Suspicion[] {
  const found: Suspicion[] = [];
  const failing = [
    ...(official.report.tests_status?.FAIL_TO_PASS.failure ?? []),
    ...(official.report.tests_status?.PASS_TO_PASS.failure ?? []),
  ];
  const absent = failing.filter((test) => official.statuses[test] === undefined);
  for (const test of absent.slice(0, LOOKED_FOR)) {
    const near = nearNames(test, official.statuses);
    if (near.length > 0) found.push({ code: 'near_name', detail: `${test} is absent, but there is ${near[0]}` });
  }
  if (log.skippedWithoutId > 0 && absent.length > 0)
    found.push({
      code: 'skipped_without_id',
      detail: `${absent.length} named tests are absent, and ${log.skippedWithoutId} were skipped without a name`,
    });
  return found;
}

/** Files that tell a test runner what to run and how. The second row also holds what real fixes change. */
const TEST_SET_UP =
  /(^|\/)(conftest\.py|pytest\.ini|\.?pytest\.toml|tox\.ini|noxfile\.py|sitecustomize\.py|usercustomize\.py|[^/]*\.pth|(jest|vitest|karma|ava|mocha|wdio|playwright)[^/]*\.(config|conf|setup)\.[cm]?[jt]s|\.mocharc[^/]*|phpunit\.xml(\.dist)?|\.rspec|spec_helper\.rb|test_helper\.rb)$/;
const SHARED_SET_UP =
  /(^|\/)(pyproject\.toml|setup\.cfg|setup\.py|package\.json|Makefile|Gemfile|Rakefile|pom\.xml|build\.gradle(\.kts)?|Cargo\.toml)$/;
const TEST_FILE =
  /(^|\/)(tests?|testing|specs?|__tests__)\/|(^|\/)(test_[^/]*|[^/]*_test|[^/]*\.(test|spec)|[^/]*Test|[^/]*_spec)\.\w+$/;
const HOOKS =
  /pytest_(runtest_\w+|report_teststatus|collection_modifyitems|pyfunc_call|terminal_summary|sessionfinish|plugins)\b|\b(rep|report)\.outcome\s*=|os\._exit\(|addSuccess\b|TestCase\.run\b|TestResult\b|process\.exit\(0\)|-p no:\w+/;
const MARKS =
  /\bxfail\b|\bpytest\.skip\b|mark\.skip|unittest\.(skip|expectedFailure)|@skip\w*\(|\b(it|test|describe)\.(skip|todo|failing)\b|\bx(it|describe|test)\(|\bt\.Skip\w*\(|#\[ignore|@Disabled|@Ignore\b/;
const SETTING = /test|pytest|jest|mocha|karma/i;

function patchSuspicions(instance: Instance, files: PatchFile[]): Suspicion[] {
  const found: Suspicion[] = [];
  const add = (code: string, detail: string): void => void found.push({ code, detail });
  const own = new Set(patchFiles(Buffer.from(instance.testPatch)).map(({ path }) => path));
  for (const { path, change, mode, added, removed } of files) {
    if (path.startsWith('/') || path.split('/').includes('..'))
      add('outside_path', `${path} leads out of the repository`);
    if (mode === '120000') add('symlink', `${path} becomes a symbolic link`);
    if (mode === '160000') add('submodule', `${path} is a submodule, which a patch cannot carry`);
    if (own.has(path)) {
      add('test_file', `${path} is one of the benchmark's tests`);
      continue;
    }
    if (TEST_SET_UP.test(path)) add('test_set_up', `${path} decides how tests run`);
    else if (SHARED_SET_UP.test(path) && [...added, ...removed].some((line) => SETTING.test(line)))
      add('test_set_up', `${path}: settings of tests are changed`);
    else if (TEST_FILE.test(path) && change !== 'new') add('test_file', `${path}: an existing test is ${change}`);
    const hook = added.find((line) => HOOKS.test(line));
    if (hook) add('outcome_hook', `${path}: ${hook.trim().slice(0, 120)}`);
    const mark = added.find((line) => MARKS.test(line));
    if (mark) add('skip_mark', `${path}: ${mark.trim().slice(0, 120)}`);
    const forged = added.find((line) => line.includes('>>>>> '));
    if (forged) add('forged_marker', `${path}: ${forged.trim().slice(0, 120)}`);
  }
  return found;
}
