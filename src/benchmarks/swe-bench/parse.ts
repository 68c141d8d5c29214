import type { TestStatus } from '../../records/verdict.ts';

/** Reads test statuses out of a log. */
export type LogParser = (log: string) => Map<string, TestStatus>;

const UNITTEST: Record<string, TestStatus> = {
  ok: 'passed',
  FAIL: 'failed',
  ERROR: 'error',
  skipped: 'skipped',
  'expected failure': 'passed',
  'unexpected success': 'failed',
};

/**
 * `python -m unittest -v`: `name (module.Class.name) ... ok`, or before Python 3.11 `name (module.Class) ... ok`; a
 * docstring may stand on a line of its own, and a test may print before its status.
 * @returns `module.Class.name` to status
 */
function unittest(log: string): Map<string, TestStatus> {
  const statuses = new Map<string, TestStatus>();
  let pending: string | null = null;
  for (const line of log.split('\n')) {
    const start = /^(\w+) \(([\w.]+)\)/.exec(line);
    if (start) pending = start[2]!.endsWith(`.${start[1]}`) ? start[2]! : `${start[2]}.${start[1]}`;
    const end = /(?:^|\.\.\. )(ok|FAIL|ERROR|skipped|expected failure|unexpected success)(?: .*)?$/.exec(line);
    if (pending !== null && end) {
      statuses.set(pending, UNITTEST[end[1]!]!);
      pending = null;
    }
  }
  return statuses;
}

const PYTEST: Record<string, TestStatus> = {
  PASSED: 'passed',
  FAILED: 'failed',
  ERROR: 'error',
  SKIPPED: 'skipped',
  XFAIL: 'passed',
  XPASS: 'failed',
};

/** The short summary of `pytest -rA`: `PASSED path::test`, `FAILED path::test - reason`. */
function pytest(log: string): Map<string, TestStatus> {
  const statuses = new Map<string, TestStatus>();
  for (const line of log.split('\n')) {
    const match = /^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S+?::[^\s[]+(?:\[.*\])?)(?: - .*)?$/.exec(line);
    if (match) statuses.set(match[2]!, PYTEST[match[1]!]!);
  }
  return statuses;
}

export const parsers: Record<string, LogParser> = { unittest, pytest };
