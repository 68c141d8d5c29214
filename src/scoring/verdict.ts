import { createWriteStream } from 'node:fs';
import { copyFile, open, readFile } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import type { Instance } from '../benchmarks/swe-bench/sources.ts';
import { writeJson } from '../core/folder.ts';
import type { Score, ScoreClass } from '../records/score.ts';
import { harden, readLog } from './hardened.ts';
import type { InstanceFiles } from './layout.ts';
import type { Grader, OfficialReport } from './official.ts';

export type Verdict = Pick<
  Score,
  'class' | 'resolved' | 'tests' | 'prepared' | 'reason' | 'hardened' | 'log' | 'exitCode'
>;

export const NO_VERDICT = {
  resolved: false,
  tests: null,
  prepared: [],
  reason: null,
  hardened: null,
  log: null,
  exitCode: null,
} satisfies Partial<Verdict>;

/** Written behind a log by the official runner, and by ours, when time was up. */
export const timeoutNote = (seconds: number): string => `\n\nTimeout error: ${seconds} seconds exceeded.`;
const TIMED_OUT = /Timeout error: \d+ seconds exceeded\.\s*$/;

/**
 * The official verdict on a log, with the stricter one beside it; writes report.json as the official code does.
 * @throws GraderError when the official code raised, died or hung on it
 */
export async function gradeLog(
  instance: Instance,
  evidence: { files: InstanceFiles; patch: Buffer | null; exitCode: number | null; grader: Grader },
): Promise<Verdict> {
  const { files, grader, patch, exitCode } = evidence;
  const log = await readLog(files.log, new Set([...instance.failToPass, ...instance.passToPass]));
  const facts = { bytes: log.bytes, sha256: log.sha256, tail: log.tail };
  if (TIMED_OUT.test(log.tail))
    return { ...NO_VERDICT, class: 'timeout', reason: 'tests_timed_out', log: facts, exitCode };
  const official = await grader.grade(instance.row, files.log);
  const { report } = official;
  await writeJson(files.report, { [instance.id]: report });
  const reason = report.resolved ? null : await grader.reason([files.log, files.runLog]);
  return {
    class: classOf(report),
    resolved: report.resolved,
    tests: report.tests_status
      ? { FAIL_TO_PASS: report.tests_status.FAIL_TO_PASS, PASS_TO_PASS: report.tests_status.PASS_TO_PASS }
      : null,
    prepared: official.prepared,
    reason: reason?.[0] ?? null,
    hardened: harden(instance, { official, log, patch, exitCode }),
    log: facts,
    exitCode,
  };
}

function classOf(report: OfficialReport): ScoreClass {
  if (report.resolved) return 'resolved';
  if (!report.tests_status) return 'tests_missing';
  return report.tests_status.FAIL_TO_PASS.failure.length > 0 ? 'f2p_unmet' : 'p2p_broken';
}

/**
 * Copies a log to where it is graded. Logs of sb-cli are one JSON string: they are unwrapped.
 * @returns what was done to it
 */
export async function takeLog(from: string, to: string): Promise<string[]> {
  const file = await open(from);
  const { buffer, bytesRead } = await file.read(Buffer.alloc(1), 0, 1, 0);
  await file.close();
  if (bytesRead === 1 && buffer[0] === 34) {
    try {
      const text: unknown = JSON.parse(await readFile(from, 'utf8'));
      if (typeof text === 'string') {
        await pipeline([text], createWriteStream(to));
        return ['the log was one JSON string: it was unwrapped'];
      }
    } catch {
      // a log that only starts like one
    }
  }
  if (from !== to) await copyFile(from, to);
  return [];
}
