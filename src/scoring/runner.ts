import { randomBytes } from 'node:crypto';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import type { Instance } from '../benchmarks/swe-bench/sources.ts';
import { OrchardError, userError } from '../core/errors.ts';
import { sha256 } from '../core/hash.ts';
import type { Sandbox, SandboxDriver } from '../ports/sandbox.ts';
import type { Profile } from '../records/score.ts';
import type { InstanceFiles } from './layout.ts';
import { timeoutNote } from './verdict.ts';

/** The official ladder of each version, from strict to lenient. */
const LADDER: Record<Profile, string[]> = {
  '4.1': ['git apply --verbose', 'git apply --verbose --reject', 'patch --batch --fuzz=5 -p1 -i'],
  '5.0': [
    'git apply --verbose',
    'git apply --verbose --3way',
    'git apply --verbose --reject',
    'patch --batch --forward --fuzz=5 -p1 -i',
  ],
};
/** 5.x starts each further try from a clean tree: a failed --reject leaves half of the patch behind. */
const CLEAN = 'git checkout -- . ; git clean -fd';

const STEP_MS = 300_000;
/** A log beyond this is not fetched: something in the box writes without end. */
const LOG_BYTES = 1024 * 1024 * 1024;

/**
 * Stops before anything is started when a sandbox cannot run some of the instances.
 * @throws OrchardError owner `user`, naming the first
 */
export function checkRunnable(instances: Instance[], { sandbox }: { sandbox: string }): void {
  const refuse = (holds: (instance: Instance) => boolean, cause: string, wayOut: string): void => {
    const found = instances.filter(holds);
    if (found.length > 0)
      throw userError(found[0]!.id, `${found.length} instances ${cause}, first ${found[0]!.id}`, wayOut);
  };
  refuse(({ workspace }) => workspace === null, 'have neither files nor an image', 'use rows that name their image');
  if (sandbox === 'local')
    refuse(
      ({ workspace }) => workspace?.kind === 'image',
      'need container images, which local sandboxes do not run',
      'run the tests elsewhere and grade their logs: orchard eval swebench grade --logs DIR --dataset FILE',
    );
  refuse(
    ({ row }) =>
      row.image_assets !== undefined &&
      row.image_assets !== null &&
      row.image_assets !== '{}' &&
      row.image_assets !== '',
    'have binary assets (image_assets), which are not put in place here',
    'leave them out with --ids, or grade logs of the official runner',
  );
}

export interface RunOptions {
  profile: Profile;
  /** null runs the tests on the untouched repository. */
  patch: Buffer | null;
  script: string;
  timeoutMs: number;
  network: 'none' | 'open';
  memoryMiB: number;
  processes: number;
  sandboxes: SandboxDriver;
  files: InstanceFiles;
  signal: AbortSignal;
}

export interface Ran {
  /** The command that applied the patch; null when none did, so that no test ran. */
  applied: string | null;
  /** Exit status of the test command, where the script keeps it. */
  exitCode: number | null;
  timedOut: boolean;
}

/**
 * Applies a patch and runs the tests in a fresh sandbox, as the official runner does, and leaves patch.diff, eval.sh,
 * run_instance.log and, when tests ran, test_output.txt.
 * @throws OrchardError owner `sandbox` when the sandbox failed: then there is no verdict
 */
export async function runTests(instance: Instance, options: RunOptions): Promise<Ran> {
  const { files, patch, script, timeoutMs, signal } = options;
  await rm(files.dir, { recursive: true, force: true }); // nothing of another patch may be taken for this one's
  await mkdir(files.dir, { recursive: true });
  await writeFile(files.script, script);
  await writeFile(files.patch, patch ?? '');
  const said: string[] = [];
  try {
    await using box = await options.sandboxes.create({
      id: instance.id,
      workspace: instance.workspace!,
      network: options.network,
      memoryMiB: options.memoryMiB,
      processes: options.processes,
      lifetimeMs: timeoutMs + 8 * STEP_MS,
    });
    // A folder of its own: sandboxes without namespaces share /tmp.
    const place = `/tmp/orchard-${randomBytes(6).toString('hex')}`;
    const applied = patch === null ? 'nothing to apply' : await applyPatch(box, { ...options, patch, place, said });
    if (applied === null) {
      said.push('>>>>> Patch Apply Failed');
      return { applied, exitCode: null, timedOut: false };
    }
    said.push(`>>>>> Applied Patch (${applied})`);
    const diff = await step(box, 'git -c core.fileMode=false diff', signal);
    said.push('Git diff before:', diff.output.toString());
    await box.write(`${place}/eval.sh`, Buffer.from(script));
    await box.write(`${place}/env.sh`, Buffer.from(keepExit(`${place}/exit`)));
    const run = await box.exec(`BASH_ENV=${place}/env.sh bash ${place}/eval.sh >${place}/test_output.txt 2>&1`, {
      timeoutMs,
      signal,
    });
    const log = await fetchLog(box, { path: `${place}/test_output.txt`, signal });
    await writeFile(files.log, run.timedOut ? Buffer.concat([log, Buffer.from(timeoutNote(timeoutMs / 1000))]) : log);
    if (!run.timedOut && run.exitCode === null)
      throw broken(instance.id, `the tests were ended by ${run.signal ?? 'a signal'} from outside`);
    const exit = (await step(box, `cat ${place}/exit 2>/dev/null`, signal)).output.toString().trim();
    said.push(run.timedOut ? `Timed out after ${timeoutMs / 1000} s` : `Tests ran in ${(run.ms / 1000).toFixed(1)} s`);
    return { applied, exitCode: /^\d+$/.test(exit) ? Number(exit) : null, timedOut: run.timedOut };
  } finally {
    await writeFile(files.runLog, `${said.join('\n')}\n`);
  }
}

async function applyPatch(
  box: Sandbox,
  { profile, patch, place, said, signal }: RunOptions & { patch: Buffer; place: string; said: string[] },
): Promise<string | null> {
  const file = `${place}/patch.diff`;
  await box.write(file, patch);
  for (const [attempt, command] of LADDER[profile].entries()) {
    if (attempt > 0 && profile === '5.0') await step(box, CLEAN, signal);
    const { exitCode, output } = await step(box, `${command} ${file}`, signal);
    said.push(`$ ${command} patch.diff`, output.toString());
    if (exitCode === 0) return command;
  }
  if (profile === '4.1') return null;
  await step(box, CLEAN, signal);
  const reverse = 'git apply --check --reverse';
  return (await step(box, `${reverse} ${file}`, signal)).exitCode === 0 ? reverse : null;
}

async function step(box: Sandbox, command: string, signal: AbortSignal) {
  const result = await box.exec(command, { timeoutMs: STEP_MS, signal });
  if (result.exitCode === null) throw broken(box.id, `\`${command}\` did not come to its end`);
  return result;
}

/**
 * The script's own exit status is that of its last line, which resets files; the test command's is in a variable. It
 * is kept in a file on the way out, silently, so that the log stays what the official runner would see.
 */
const keepExit = (file: string): string =>
  `unset BASH_ENV\ntrap '{ set +x; } 2>/dev/null; printf %s "\${SWEBENCH_TEST_EXIT_CODE-}" >${file}' EXIT\n`;

/** Size and hash are taken inside the box, so that what arrives is what was written. */
async function fetchLog(box: Sandbox, { path, signal }: { path: string; signal: AbortSignal }): Promise<Buffer> {
  const told = (await step(box, `wc -c <${path} && sha256sum <${path}`, signal)).output.toString();
  const [bytes, hash] = told.split(/\s+/);
  if (!/^\d+$/.test(bytes ?? '')) throw broken(box.id, `the tests' output cannot be read: ${told.trim()}`);
  if (Number(bytes) > LOG_BYTES) throw broken(box.id, `the tests wrote ${bytes} bytes, more than ${LOG_BYTES}`);
  const log = await box.read(path);
  if (sha256(log) !== hash) throw broken(box.id, "the tests' output did not arrive as it was written");
  return log;
}

const broken = (id: string, cause: string): OrchardError =>
  new OrchardError({
    owner: 'sandbox',
    code: 'scoring',
    id,
    cause,
    wayOut: 'run the same command again: what is done stays, and this one is repeated',
  });
