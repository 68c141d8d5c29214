import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { OrchardError } from '../../core/errors.ts';
import type { ExecOptions, ExecResult } from '../../ports/sandbox.ts';
import type { Config } from './config.ts';
import { COOKIE, killMarked } from './kill.ts';
import type { Started } from './launcher.ts';
import { capped } from './output.ts';

const DEFAULT_OUTPUT_BYTES = 1024 * 1024;
/** After the shell has ended, its output may still be in the pipe; a server it left behind may hold that for ever. */
const DRAIN_MS = 200;
/** One argument of a process may hold 128 KiB on Linux; longer commands go in through a pipe. */
const MAX_ARGUMENT_BYTES = 100_000;

/** The same on every machine, and nothing of the driver's own. */
const ENVIRONMENT = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  HOME: '/root',
  LANG: 'C.UTF-8',
  TZ: 'UTC',
  TERM: 'dumb',
  PAGER: 'cat',
  PYTHONDONTWRITEBYTECODE: '1',
};

/** Exit codes of the wrapper that no shell gives by itself for these reasons. */
const NO_CWD = 251;

/** `$1` directory, `$2` the command or nothing when it comes through descriptor 3. */
const wrapper = ({ memoryMiB, processes }: Config): string =>
  `exec 2>&1; cd -- "$1" 2>/dev/null || exit ${NO_CWD}; ulimit -u ${processes} -v ${memoryMiB * 1024} -c 0; if [ $# -gt 1 ]; then set -- "$2"; eval "$1"; else eval "$(cat <&3)"; fi`;

/** Runs one command in a started sandbox; see the sandbox port for what it promises. */
export async function execIn(
  started: Started,
  { id, command, options, limits }: { id: string; command: string; options: ExecOptions; limits: Config },
): Promise<ExecResult> {
  options.signal?.throwIfAborted();
  if (started.gone.aborted) {
    throw new OrchardError({
      owner: 'sandbox',
      code: 'sandbox_gone',
      id,
      cause: `the sandbox of ${id} is gone`,
      wayOut: 'the episode is repeated in a new one',
    });
  }
  const cookie = randomBytes(12).toString('hex');
  const directory =
    options.cwd === undefined
      ? started.workdir
      : options.cwd.startsWith('/')
        ? options.cwd
        : `${started.workdir}/${options.cwd}`;
  const long = Buffer.byteLength(command) > MAX_ARGUMENT_BYTES;
  const [program, ...args] = [
    ...started.enter,
    'bash',
    '--norc',
    '-c',
    wrapper(limits),
    'bash',
    directory,
    ...(long ? [] : [command]),
  ];
  const startedAt = performance.now();
  const child = spawn(program!, args, {
    cwd: '/',
    detached: true,
    env: { ...ENVIRONMENT, ...options.env, [COOKIE]: cookie },
    stdio: ['pipe', 'pipe', 'ignore', ...(long ? (['pipe'] as const) : [])],
  });
  const output = capped(options.maxOutputBytes ?? DEFAULT_OUTPUT_BYTES);
  child.stdout!.on('data', (chunk: Buffer) => output.add(chunk));
  feed(child.stdin!, options.stdin);
  if (long) feed(child.stdio[3] as NodeJS.WritableStream, Buffer.from(command));

  let timedOut = false;
  let ending: Promise<void> | null = null;
  const end = (): void => {
    ending ??= killMarked(cookie);
  };
  const timer = setTimeout(() => {
    timedOut = true;
    end();
  }, options.timeoutMs);
  const stops = [started.gone, ...(options.signal ? [options.signal] : [])];
  for (const stop of stops) stop.addEventListener('abort', end, { once: true });
  try {
    const { code, signal } = await new Promise<{ code: number | null; signal: NodeJS.Signals | null }>(
      (resolve, reject) => {
        child.once('error', (error) =>
          reject(
            new OrchardError(
              {
                owner: 'sandbox',
                code: 'exec',
                id,
                cause: `cannot start a command in the sandbox of ${id}: ${error.message}`,
                wayOut: 'run `orchard doctor`',
              },
              { cause: error },
            ),
          ),
        );
        child.once('exit', (exitCode, exitSignal) => {
          const finish = (): void => resolve({ code: exitCode, signal: exitSignal });
          const drained = setTimeout(() => {
            child.stdout!.destroy();
            finish();
          }, DRAIN_MS);
          child.once('close', () => {
            clearTimeout(drained);
            finish();
          });
        });
      },
    );
    await ending;
    options.signal?.throwIfAborted();
    if (code === NO_CWD && options.cwd !== undefined) {
      throw new OrchardError({
        owner: 'sandbox',
        code: 'no_such_directory',
        id,
        cause: `there is no directory ${directory} in the sandbox of ${id}`,
        wayOut: 'create it first, or leave cwd out',
      });
    }
    if (started.gone.aborted) {
      throw new OrchardError({
        owner: 'sandbox',
        code: 'sandbox_gone',
        id,
        cause: `the sandbox of ${id} ended while a command ran`,
        wayOut: 'the episode is repeated in a new one',
      });
    }
    return {
      exitCode: timedOut ? null : code,
      signal: timedOut ? 'SIGKILL' : signal,
      ...output.end(),
      timedOut,
      ms: performance.now() - startedAt,
    };
  } finally {
    clearTimeout(timer);
    for (const stop of stops) stop.removeEventListener('abort', end);
  }
}

/** Writes and closes; a command that does not read its input is no error. */
function feed(stream: NodeJS.WritableStream, bytes: Buffer | undefined): void {
  stream.on('error', () => {}); // EPIPE: it ended without reading
  stream.end(bytes ?? Buffer.alloc(0));
}
