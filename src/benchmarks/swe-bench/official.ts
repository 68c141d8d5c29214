import { sha256 } from '../../core/hash.ts';
import type { Profile } from '../../records/score.ts';
import type { Instance } from './sources.ts';

/** The official grader that a row's generation was made for. */
export const profileOf = ({ source }: Instance): Profile => (source === 'SWE-bench 4.x' ? '4.1' : '5.0');

/**
 * An instance whose row is what the official code reads: lists of tests as lists. Rows with a parser of orchard's own
 * get the official one that reads the same log, its names of tests, and a script around their test command.
 */
export function toOfficial(instance: Instance): Instance {
  const official = withOfficialRow(instance);
  return { ...official, rowSha256: sha256(JSON.stringify(DECIDING.map((field) => official.row[field] ?? null))) };
}

/** What a verdict depends on. Their hash is the same whichever kind of file the row came from. */
const DECIDING = [
  'instance_id',
  'repo',
  'version',
  'base_commit',
  'test_patch',
  'FAIL_TO_PASS',
  'PASS_TO_PASS',
  'log_parser',
  'eval_type',
  'eval_script',
];

function withOfficialRow(instance: Instance): Instance {
  if (instance.source !== 'orchard') {
    const { failToPass, passToPass, row } = instance;
    return { ...instance, row: { ...row, FAIL_TO_PASS: failToPass, PASS_TO_PASS: passToPass } };
  }
  const unittest = instance.logParser === 'unittest';
  const named = (tests: string[]): string[] => (unittest ? tests.map(djangoName) : tests);
  const [failToPass, passToPass] = [named(instance.failToPass), named(instance.passToPass)];
  const logParser = unittest ? 'parse_log_django' : 'parse_log_pytest_v2';
  const evalScript = scriptAround(instance);
  return {
    ...instance,
    failToPass,
    passToPass,
    logParser,
    evalScript,
    row: {
      instance_id: instance.id,
      repo: instance.repo,
      version: instance.version,
      base_commit: instance.baseCommit,
      image: instance.workspace?.kind === 'image' ? instance.workspace.image : '',
      patch: instance.goldPatch,
      test_patch: instance.testPatch,
      problem_statement: instance.statement,
      FAIL_TO_PASS: failToPass,
      PASS_TO_PASS: passToPass,
      log_parser: logParser,
      eval_type: 'pass_and_fail',
      eval_script: evalScript,
      ...(instance.workspace?.kind === 'files' ? { files: instance.workspace.files } : {}),
    },
  };
}

/** `a.b.Class.test` as unittest prints it and the official parser of Django reads it: `test (a.b.Class.test)`. */
const djangoName = (test: string): string => `${test.slice(test.lastIndexOf('.') + 1)} (${test})`;

/** The shape of a 5.x eval.sh: the benchmark's tests put in place, then the test command between the markers. */
function scriptAround({ testPatch, evalScript }: Instance): string {
  const paths = [...testPatch.matchAll(/^diff --git a\/(\S+) b\/(\S+)$/gm)].flatMap((match) => [match[1]!, match[2]!]);
  const reset = [...new Set(paths)]
    .map((path) => `'${path.replaceAll("'", "'\\''")}'`)
    .map((path) => `git checkout -q -f HEAD -- ${path} 2>/dev/null || rm -rf -- ${path}`);
  return [
    '#!/bin/bash',
    'set -uxo pipefail',
    ...reset,
    "git apply -v - <<'EOF_114329324912'",
    testPatch.replace(/\n$/, ''),
    'EOF_114329324912',
    ": '>>>>> Start Test Output'",
    evalScript ?? '',
    ": '>>>>> End Test Output'",
    ...reset,
    '',
  ].join('\n');
}
