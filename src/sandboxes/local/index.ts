import { randomBytes } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { OrchardError, userError } from '../../core/errors.ts';
import type { Sandbox, SandboxDriver, SandboxKind, SandboxSpec } from '../../ports/sandbox.ts';
import { type Config, config } from './config.ts';
import { execIn } from './exec.ts';
import { findLauncher } from './launch.ts';
import type { Launcher } from './launcher.ts';
import { type Bases, openBases } from './workspace.ts';

/** Sandboxes of Linux namespaces on this machine, without a daemon and without root. */
export const local: SandboxKind<Config> = {
  name: 'local',
  config,
  async open(settings, { scratchDir }) {
    await mkdir(scratchDir, { recursive: true, mode: 0o755 });
    await collectDead(scratchDir);
    return openWith(await findLauncher(scratchDir), { settings, scratchDir });
  },
};

/** A driver whose sandboxes one launcher starts. */
export function openWith(
  launcher: Launcher,
  { settings, scratchDir }: { settings: Config; scratchDir: string },
): SandboxDriver {
  const bases = openBases(join(scratchDir, `bases-${launcher.owner?.uid ?? 'own'}`), launcher.owner);
  const network = launcher.isolation === 'none' ? 'open' : 'blockable';
  const open = new Set<Sandbox>();
  const driver: SandboxDriver = {
    capabilities: { isolation: launcher.isolation, network },
    async create(spec) {
      if (spec.network === 'none' && network === 'open') {
        throw userError(
          spec.id,
          'this machine allows no namespaces, so the network cannot be blocked',
          'allow user namespaces (see `orchard doctor`), or set sandbox.network to open',
        );
      }
      const sandbox = await create(spec, {
        settings,
        launcher,
        bases,
        scratchDir,
        onClose: (closed) => open.delete(closed),
      });
      open.add(sandbox);
      return sandbox;
    },
    async [Symbol.asyncDispose]() {
      for (const sandbox of [...open]) await sandbox[Symbol.asyncDispose]();
    },
  };
  return driver;
}

const boxName = (): string => `box-${process.pid}-${randomBytes(6).toString('hex')}`;

/** Removes what drivers that were killed have left behind. Their processes ended with them. */
async function collectDead(scratchDir: string): Promise<void> {
  for (const name of readdirSync(scratchDir)) {
    const pid = /^box-(\d+)-/.exec(name)?.[1];
    if (pid !== undefined && !isAlive(Number(pid))) await rm(join(scratchDir, name), { recursive: true, force: true });
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

async function create(
  spec: SandboxSpec,
  {
    settings,
    launcher,
    bases,
    scratchDir,
    onClose,
  }: { settings: Config; launcher: Launcher; bases: Bases; scratchDir: string; onClose: (sandbox: Sandbox) => void },
): Promise<Sandbox> {
  const base = await bases.of(spec.workspace, spec.id);
  const dir = join(scratchDir, boxName());
  const started = await launcher.start({ id: spec.id, dir, base, network: spec.network }).catch(async (error) => {
    await rm(dir, { recursive: true, force: true });
    throw error;
  });
  const limits = { ...settings, memoryMiB: spec.memoryMiB, processes: spec.processes };
  const expiry = setTimeout(() => void started.stop(), spec.lifetimeMs);
  const run = (command: string, stdin?: Buffer) =>
    execIn(started, {
      id: spec.id,
      command,
      limits,
      options: { stdin, timeoutMs: 60_000, maxOutputBytes: 1024 * 1024 * 1024 },
    });
  const sandbox: Sandbox = {
    id: spec.id,
    workdir: started.workdir,
    exec: (command, options) => execIn(started, { id: spec.id, command, options, limits }),
    async read(path) {
      const { exitCode, output } = await run(`cat -- ${quote(path)}`);
      if (exitCode === 0) return output;
      throw new OrchardError({
        owner: 'sandbox',
        code: 'no_such_file',
        id: spec.id,
        cause: `cannot read ${path} in the sandbox of ${spec.id}: ${output.toString().trim()}`,
        wayOut: 'check the path',
      });
    },
    async write(path, bytes) {
      const target = quote(path);
      const { exitCode, output } = await run(
        `mkdir -p -- "$(dirname -- ${target})" && cat >${target}.orchard-partial && mv -f -- ${target}.orchard-partial ${target}`,
        bytes,
      );
      if (exitCode !== 0) {
        throw new OrchardError({
          owner: 'sandbox',
          code: 'write',
          id: spec.id,
          cause: `cannot write ${path} in the sandbox of ${spec.id}: ${output.toString().trim()}`,
          wayOut: 'check the path and the space left',
        });
      }
    },
    async [Symbol.asyncDispose]() {
      clearTimeout(expiry);
      onClose(sandbox);
      await started.stop();
      // Overlays leave folders that only their owner may enter; as root that is no hindrance.
      await rm(dir, { recursive: true, force: true, maxRetries: 3 });
    },
  };
  return sandbox;
}

const quote = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
