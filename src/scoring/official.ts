import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { z } from 'zod';
import { userError } from '../core/errors.ts';
import { openGate } from '../core/limit.ts';
import type { Profile } from '../records/score.ts';

const Tests = z.object({ success: z.array(z.string()), failure: z.array(z.string()) });

/** One value of the official get_eval_report, as it is. */
export const OfficialReport = z.looseObject({
  patch_successfully_applied: z.boolean(),
  resolved: z.boolean(),
  tests_status: z.looseObject({ FAIL_TO_PASS: Tests, PASS_TO_PASS: Tests }).optional(),
});
export type OfficialReport = z.infer<typeof OfficialReport>;

export interface Graded {
  report: OfficialReport;
  /** Test name to the status that the log parser made; empty when the log was not usable. */
  statuses: Record<string, string>;
  prepared: string[];
}

/** The answer of one request is lost: the worker raised, died, or did not answer in time. */
export class GraderError extends Error {}

export interface Grader extends AsyncDisposable {
  /** Version of the official package. */
  readonly version: string;
  /** Why this row cannot be graded by this version: the field and the cause; null when it can. */
  unknown(row: Record<string, unknown>): { field: string; cause: string } | null;
  /** eval.sh of a row. @throws GraderError */
  script(row: Record<string, unknown>): Promise<string>;
  /** @throws GraderError */
  grade(row: Record<string, unknown>, log: string): Promise<Graded>;
  /** The official guess at trouble of the environment in these logs, with its tier. @throws GraderError */
  reason(logs: string[]): Promise<[reason: string, tier: string] | null>;
}

const Hello = z.object({
  version: z.string(),
  parsers: z.array(z.string()).optional(),
  repositories: z.record(z.string(), z.array(z.string())).optional(),
});
type Hello = z.infer<typeof Hello>;

/** Nothing that the official code does to a log takes longer; a worker that does hangs. */
const ANSWER_MS = 300_000;

/**
 * Workers that run the official swebench package. They live until disposed; one that dies, hangs or raises costs one
 * answer and is replaced.
 * @throws OrchardError owner `user` when the package is not installed
 */
export async function openGrader(
  profile: Profile,
  options: { dir: string; workers: number; answerMs?: number },
): Promise<Grader> {
  const python = join(options.dir, profile, '.venv', 'bin', 'python');
  if (!existsSync(python))
    throw userError(
      profile,
      `the official grader ${profile} is not installed (${python})`,
      'run `node scripts/setup.mjs` in the checkout of orchard',
    );
  // Together they may take half of the machine.
  const memoryMiB = Math.max(512, Math.min(4096, Math.floor(totalmem() / 2 ** 21 / options.workers)));
  const start = () =>
    startWorker(python, {
      script: join(options.dir, 'worker.py'),
      memoryMiB,
      answerMs: options.answerMs ?? ANSWER_MS,
    });
  const first = start();
  const hello = await first.hello.catch((error: Error) => {
    throw userError(
      profile,
      `the official grader ${profile} does not start: ${error.message}`,
      `remove ${join(options.dir, profile, '.venv')} and run \`node scripts/setup.mjs\` again`,
    );
  });
  const idle: Worker[] = [first];
  const all = new Set<Worker>(idle);
  const gate = openGate(options.workers);
  const ask = (body: object): Promise<Record<string, unknown>> =>
    gate(async () => {
      const worker = idle.pop() ?? start();
      all.add(worker);
      try {
        const answer = await worker.ask(body);
        if (typeof answer.error === 'string') throw new GraderError(answer.error);
        return answer;
      } finally {
        if (worker.alive()) idle.push(worker);
        else all.delete(worker);
      }
    });
  return {
    version: hello.version,
    unknown: (row) => unknownTo(hello, row),
    script: async (row) => String((await ask({ op: 'script', row })).script),
    async grade(row, log) {
      const { report, statuses, prepared } = await ask({ op: 'grade', row, log });
      return {
        report: OfficialReport.parse(report),
        statuses: statuses as Graded['statuses'],
        prepared: prepared as string[],
      };
    },
    reason: async (logs) => (await ask({ op: 'reason', logs })).reason as [string, string] | null,
    async [Symbol.asyncDispose]() {
      await Promise.all([...all].map((worker) => worker.stop()));
    },
  };
}

function unknownTo({ version, parsers, repositories }: Hello, row: Record<string, unknown>) {
  if (parsers) {
    for (const field of ['log_parser', 'eval_script'])
      if (typeof row[field] !== 'string')
        return { field, cause: `missing, and swebench ${version} needs it: a row of 4.x is graded by --profile 4.1` };
    if (!parsers.includes(String(row.log_parser)))
      return { field: 'log_parser', cause: `swebench ${version} has no parser ${String(row.log_parser)}` };
    const type = row.eval_type ?? 'pass_and_fail';
    return type === 'pass_and_fail' || type === 'fail_only'
      ? null
      : { field: 'eval_type', cause: `swebench ${version} has no type ${String(type)}` };
  }
  const versions = repositories?.[String(row.repo)];
  if (!versions) return { field: 'repo', cause: `swebench ${version} does not know ${String(row.repo)}` };
  return versions.includes(String(row.version))
    ? null
    : { field: 'version', cause: `swebench ${version} does not know version ${String(row.version)} of ${row.repo}` };
}

interface Worker {
  hello: Promise<Hello>;
  /** One request at a time. @throws GraderError when it died or did not answer in time */
  ask(body: object): Promise<Record<string, unknown>>;
  alive(): boolean;
  stop(): Promise<void>;
}

function startWorker(
  python: string,
  { script, memoryMiB, answerMs }: { script: string; memoryMiB: number; answerMs: number },
): Worker {
  const child = spawn(python, [script], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { PYTHONUTF8: '1', ORCHARD_GRADER_MIB: String(memoryMiB) },
  });
  let said = '';
  child.stderr.on('data', (chunk: Buffer) => {
    said = (said + chunk.toString()).slice(-4000);
  });
  child.stdin.on('error', () => {}); // it died: `close` tells
  const lines = createInterface({ input: child.stdout });
  let dead: string | null = null;
  let waiting: { resolve(line: string): void; reject(error: Error): void } | null = null;
  const next = (): Promise<string> =>
    new Promise((resolve, reject) => {
      if (dead !== null) return reject(new GraderError(dead));
      const timer = setTimeout(() => {
        fail(`did not answer within ${answerMs / 1000} s`);
        child.kill('SIGKILL');
      }, answerMs);
      const settle =
        <T>(how: (value: T) => void) =>
        (value: T) => {
          clearTimeout(timer);
          waiting = null;
          how(value);
        };
      waiting = { resolve: settle(resolve), reject: settle(reject) };
    });
  const fail = (how: string): void => {
    dead ??= `the grader's process ${how}`;
    waiting?.reject(new GraderError(dead));
  };
  lines.on('line', (line) => waiting?.resolve(line));
  child.on('error', (error) => fail(`did not start: ${error.message}`));
  const closed = new Promise<void>((resolve) =>
    child.on('close', (code, signal) => {
      fail(`ended with ${signal ?? code}${said ? `: ${said.trim().split('\n').at(-1)}` : ''}`);
      resolve();
    }),
  );
  const hello = next().then((line) => Hello.parse(JSON.parse(line)));
  hello.catch(() => {}); // heard of when asked
  return {
    hello,
    async ask(body) {
      await hello;
      const answer = next();
      child.stdin.write(`${JSON.stringify({ id: 0, ...body })}\n`);
      return JSON.parse(await answer) as Record<string, unknown>;
    },
    alive: () => dead === null,
    async stop() {
      child.kill('SIGKILL');
      await closed;
    },
  };
}
