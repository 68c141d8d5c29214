import { type ChildProcess, spawn } from 'node:child_process';
import { createWriteStream } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { finished } from 'node:stream/promises';
import { z } from 'zod';
import { OrchardError } from '../core/errors.ts';
import { writeJson } from '../core/folder.ts';
import type { TrainerKind, TrainerLine, TrainJob } from '../ports/trainer.ts';
import type { Weights } from '../records/weights.ts';

const config = z.strictObject({
  precision: z.enum(['fp32', 'bf16']).default('fp32'),
  processes: z.number().int().positive().default(1).describe('torchrun processes on this machine'),
  threads: z
    .number()
    .int()
    .positive()
    .optional()
    .describe('CPU threads of each process; all cores shared out when left out'),
  microTokens: z.number().int().positive().default(4096).describe('tokens per forward pass of one process'),
  checkpointEverySteps: z.number().int().positive().default(50),
});
type Config = z.infer<typeof config>;

/** Exit codes of orchard_trainer. */
const WRONG_INPUT = 42;
const PREEMPTED = 143;

/** Trains in a child process of this machine, on its GPUs where it has some and on the CPU otherwise. */
export const local: TrainerKind<Config> = {
  name: 'local',
  config,
  open: (settings, { python }) => ({ train: (job) => train(settings, { python, job }) }),
};

async function train(settings: Config, { python, job }: { python: string; job: TrainJob }): Promise<Weights> {
  await mkdir(job.dir, { recursive: true });
  await writeJson(join(job.dir, 'trainer.json'), job.config);
  const threads = settings.threads ?? Math.max(1, Math.floor(availableParallelism() / settings.processes));
  const entry = [
    '-m',
    'orchard_trainer',
    'train',
    '--dir',
    job.dir,
    '--threads',
    String(threads),
    '--parent-pid',
    String(process.pid),
  ];
  const launch =
    settings.processes === 1
      ? entry
      : ['-m', 'orchard_trainer', 'launch', '--standalone', `--nproc-per-node=${settings.processes}`, ...entry];
  const child = spawn(python, launch, { stdio: ['ignore', 'pipe', 'pipe'] });
  const log = createWriteStream(join(job.dir, 'trainer.log'), { flags: 'a' });
  log.on('error', () => {}); // a full disk: the trainer itself will say so
  let tail = '';
  child.stderr.on('data', (chunk: Buffer) => {
    log.write(chunk);
    tail = (tail + chunk.toString()).slice(-2000);
  });
  let published: Weights | null = null;
  const lines = createInterface({ input: child.stdout });
  lines.on('line', (text) => {
    const line = parseLine(text);
    if (line === null) log.write(`${text}\n`);
    else {
      if (line.event === 'published') published = { path: String(line.path), version: String(line.version) };
      job.onLine(line);
    }
  });
  const code = await ended(child, job);
  log.end();
  await finished(log);
  if (code === 0 && published !== null) return published;
  if (job.signal.aborted) throw job.signal.reason;
  throw new OrchardError({
    owner: code === WRONG_INPUT ? 'user' : 'trainer',
    code: code === WRONG_INPUT ? 'trainer_input' : code === PREEMPTED ? 'trainer_preempted' : 'trainer_failed',
    id: job.dir,
    cause: `training in ${job.dir} ended with ${code}${tail.trim() === '' ? '' : `: ${lastSentence(tail)}`}`,
    wayOut:
      code === WRONG_INPUT
        ? 'correct what it names and run again'
        : `run the same command again: it continues from the last checkpoint (log: ${join(job.dir, 'trainer.log')})`,
  });
}

/** Resolves with the exit code, or the name of the signal. A cancelled job gets SIGTERM, and SIGKILL if it does not checkpoint in time. */
async function ended(child: ChildProcess, job: TrainJob): Promise<number | string> {
  let killer: NodeJS.Timeout | undefined;
  const stop = (): void => {
    child.kill('SIGTERM');
    killer = setTimeout(() => child.kill('SIGKILL'), 15_000);
  };
  if (job.signal.aborted) stop();
  job.signal.addEventListener('abort', stop, { once: true });
  try {
    return await new Promise((resolve, reject) => {
      child.once('error', (error) =>
        reject(
          new OrchardError(
            {
              owner: 'trainer',
              code: 'trainer_start',
              id: job.dir,
              cause: `cannot start Python: ${error.message}`,
              wayOut: 'run `orchard doctor`; scripts/setup.mjs installs the trainer',
            },
            { cause: error },
          ),
        ),
      );
      child.once('close', (code, signal) => resolve(code ?? signal ?? 'unknown'));
    });
  } finally {
    clearTimeout(killer);
    job.signal.removeEventListener('abort', stop);
  }
}

function parseLine(text: string): TrainerLine | null {
  if (!text.startsWith('{')) return null;
  try {
    return JSON.parse(text) as TrainerLine;
  } catch {
    return null; // not ours: kept in the log
  }
}

const lastSentence = (tail: string): string => tail.trim().split('\n').at(-1) ?? '';
