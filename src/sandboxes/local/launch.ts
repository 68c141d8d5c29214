import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, lstatSync, readlinkSync } from 'node:fs';
import { chmod, chown, mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import { OrchardError } from '../../core/errors.ts';
import type { Owner } from './workspace.ts';

/** Where the repository is inside every isolated sandbox. */
export const WORKDIR = '/testbed';

/** How commands come into a started sandbox. */
export interface Started {
  workdir: string;
  /** Words in front of a command that put it into the sandbox. */
  enter: string[];
  alive(): boolean;
  /** Ends every process in it. */
  stop(): Promise<void>;
}

export interface LaunchSpec {
  id: string;
  /** The sandbox's own folder, made by this launcher's `prepare`. */
  dir: string;
  base: string;
  network: 'none' | 'open';
}

export interface Launcher {
  isolation: 'none' | 'namespace';
  /** null: the driver's own user. */
  owner: Owner | null;
  start(spec: LaunchSpec): Promise<Started>;
}

/** The user that a driver running as root hands its sandboxes to: nobody. */
const NOBODY: Owner = { uid: 65534, gid: 65534 };

const DEVICES = ['null', 'zero', 'full', 'random', 'urandom', 'tty'];
const SHOWN = ['usr', 'bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32', 'etc', 'opt'];

/**
 * The strongest launcher that works here: user, mount, PID, network, IPC and UTS namespaces made with unshare, with an
 * overlay or a copy of the repository; or none at all.
 */
export async function findLauncher(scratchDir: string): Promise<Launcher> {
  for (const owner of process.getuid?.() === 0 ? [NOBODY, null] : [null]) {
    for (const overlay of [true, false]) {
      const launcher = await namespaces(scratchDir, { owner, overlay });
      if (await works(launcher, scratchDir)) return launcher;
    }
  }
  return bare;
}

async function works(launcher: Launcher, scratchDir: string): Promise<boolean> {
  const base = join(scratchDir, `probe-${process.pid}`);
  const inner = join(base, 'folder');
  await mkdir(inner, { recursive: true });
  try {
    if (launcher.owner) for (const each of [base, inner]) await chown(each, launcher.owner.uid, launcher.owner.gid);
    const started = await launcher.start({
      id: 'probe',
      dir: join(scratchDir, `probe-${process.pid}.box`),
      base,
      network: 'none',
    });
    const [command, ...args] = started.enter;
    // Replacing a folder is what an overlay cannot do on a file system without extended attributes.
    const probe = `cd ${started.workdir} && rmdir folder && mkdir folder && ! touch /usr/inside 2>/dev/null`;
    const run = await execa(command!, [...args, 'sh', '-c', probe], { reject: false, cwd: '/' });
    await started.stop();
    return run.exitCode === 0;
  } catch {
    return false; // what was tried is not allowed here: the next weaker way is
  } finally {
    await execa('rm', ['-rf', base, `${base}.box`]);
  }
}

/** Commands run as they are, in a copy of the repository. Nothing is kept apart. */
const bare: Launcher = {
  isolation: 'none',
  owner: null,
  async start({ dir, base }) {
    await execa('cp', ['-a', '--reflink=auto', base, dir]);
    return { workdir: dir, enter: [], alive: () => true, stop: async () => {} };
  },
};

async function namespaces(
  scratchDir: string,
  { owner, overlay }: { owner: Owner | null; overlay: boolean },
): Promise<Launcher> {
  const root = await makeRoot(join(scratchDir, 'root'));
  return {
    isolation: 'namespace',
    owner,
    async start(spec) {
      const { dir, base, id, network } = spec;
      for (const folder of overlay ? [dir, join(dir, 'upper'), join(dir, 'work')] : [dir]) {
        await mkdir(folder, { recursive: true });
        if (owner) await chown(folder, owner.uid, owner.gid);
      }
      if (!overlay) await execa('cp', ['-a', '--reflink=auto', base, join(dir, 'copy')]);
      const repository = overlay
        ? `overlay ${root}${WORKDIR} overlay lowerdir=${base},upperdir=${dir}/upper,workdir=${dir}/work,userxattr 0 0`
        : `${dir}/copy ${root}${WORKDIR} none bind 0 0`;
      const fstab = join(dir, 'fstab');
      await writeFile(fstab, `${(await readFile(`${root}.fstab`, 'utf8')).trimEnd()}\n${repository}\n`);
      const asNobody = owner ? ['setpriv', `--reuid=${owner.uid}`, `--regid=${owner.gid}`, '--clear-groups'] : [];
      const apart = [
        'unshare',
        '--user',
        '--map-root-user',
        '--mount',
        '--pid',
        '--ipc',
        '--uts',
        '--fork',
        '--kill-child',
        ...(network === 'none' ? ['--net'] : []),
      ];
      const [command, ...args] = [...asNobody, ...apart, 'bash', '--norc', '-c', INIT, 'init', root, fstab];
      const child = spawn(command!, args, {
        stdio: ['pipe', 'pipe', 'pipe'],
        env: { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' },
        cwd: '/',
      });
      await ready(child, id);
      const pid = await onlyChild(child.pid!);
      const alive = (): boolean => child.exitCode === null && child.signalCode === null;
      return {
        workdir: WORKDIR,
        enter: [
          'nsenter',
          '-t',
          String(pid),
          '-U',
          '-m',
          '-p',
          '-i',
          '-u',
          '-r',
          ...(network === 'none' ? ['-n'] : []),
        ],
        alive,
        async stop() {
          if (!alive()) return;
          const gone = new Promise((resolve) => child.once('close', resolve));
          child.kill('SIGKILL'); // unshare takes its child, the first process, with it, and that one all others
          await gone;
        },
      };
    },
  };
}

/**
 * First process of a sandbox. Makes its file system out of one list of mounts, then waits for the driver: when that is
 * gone, its standard input ends, so does this process, and with it every other one of the sandbox. It is a bash, which
 * reaps orphans while it waits: unreaped they would count against the limit of processes.
 */
const INIT = `
set -e
mount -a -T "$2" 2>&1
cd "$1"
pivot_root . old
umount -l /old
hostname sandbox
ip link set lo up 2>/dev/null || true
echo ready
trap '' TERM INT HUP
while read -r _; do :; done
`;

/** An empty root folder with the places for all mounts, shared by all sandboxes: each mounts over it in its own namespace. */
async function makeRoot(root: string): Promise<string> {
  const mounts = [`${root} ${root} none bind,ro 0 0`];
  for (const folder of ['proc', 'dev/shm', 'tmp', 'root', 'home', 'old', 'run', 'var/tmp', WORKDIR])
    await mkdir(join(root, folder), { recursive: true });
  for (const name of SHOWN) {
    const host = `/${name}`;
    if (!existsSync(host)) continue;
    if (lstatSync(host).isSymbolicLink()) {
      if (!existsSync(join(root, name))) await symlink(readlinkSync(host), join(root, name)).catch(ignoreExisting);
    } else {
      await mkdir(join(root, name), { recursive: true });
      mounts.push(`${host} ${root}/${name} none rbind,ro 0 0`);
    }
  }
  for (const device of DEVICES) {
    await writeFile(join(root, 'dev', device), '');
    mounts.push(`/dev/${device} ${root}/dev/${device} none bind 0 0`);
  }
  for (const [name, target] of [
    ['fd', '/proc/self/fd'],
    ['stdin', '/proc/self/fd/0'],
    ['stdout', '/proc/self/fd/1'],
    ['stderr', '/proc/self/fd/2'],
  ] as const) {
    await symlink(target, join(root, 'dev', name)).catch(ignoreExisting);
  }
  mounts.push(
    `tmpfs ${root}/tmp tmpfs size=64m,mode=1777 0 0`,
    `tmpfs ${root}/var/tmp tmpfs size=16m,mode=1777 0 0`,
    `tmpfs ${root}/root tmpfs size=16m,mode=700 0 0`,
    `tmpfs ${root}/dev/shm tmpfs size=16m,mode=1777 0 0`,
    `proc ${root}/proc proc defaults 0 0`,
  );
  await writeFile(`${root}.fstab`, `${mounts.join('\n')}\n`);
  await chmod(root, 0o755);
  return root;
}

function ignoreExisting(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EEXIST') throw error;
}

/** Resolves when the first process says that all is in place. */
async function ready(child: ChildProcess, id: string): Promise<void> {
  let said = '';
  await new Promise<void>((resolve, reject) => {
    const fail = (cause: string): void =>
      reject(
        new OrchardError({
          owner: 'sandbox',
          code: 'sandbox_start',
          id,
          cause: `the sandbox of ${id} could not start: ${cause}`,
          wayOut: 'run `orchard doctor`',
        }),
      );
    const hear = (chunk: Buffer): void => {
      said += chunk.toString();
      if (said.endsWith('ready\n')) resolve();
    };
    child.stdout!.on('data', hear);
    child.stderr!.on('data', hear);
    child.once('error', (error) => fail(error.message));
    child.once('close', (code) => fail(said.trim() || `ended with ${code}`));
  });
}

/** The process that unshare has forked: first of the new PID namespace. */
async function onlyChild(pid: number): Promise<number> {
  return Number((await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8')).trim().split(' ')[0]);
}
