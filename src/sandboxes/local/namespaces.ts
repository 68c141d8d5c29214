import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, lstatSync, readlinkSync } from 'node:fs';
import { chmod, chown, mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import { OrchardError } from '../../core/errors.ts';
import { asOwner, type Launcher, SHOWN, WORKDIR } from './launcher.ts';
import type { Owner } from './workspace.ts';

const DEVICES = ['null', 'zero', 'full', 'random', 'urandom', 'tty'];

/**
 * Namespaces made with unshare(1), one set for the life of a sandbox: user, mount, PID, IPC, UTS and, unless asked for,
 * network. The repository is an overlay over its base, or a copy where overlays are not allowed. Each command enters
 * with nsenter(1), which costs a millisecond.
 */
export async function namespaces(
  scratchDir: string,
  { owner, overlay }: { owner: Owner | null; overlay: boolean },
): Promise<Launcher> {
  const root = join(scratchDir, 'root');
  const mounts = await makeRoot(root);
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
      await writeFile(fstab, `${[...mounts, repository].join('\n')}\n`);
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
      const [command, ...args] = [...asOwner(owner), ...apart, 'bash', '--norc', '-c', INIT, 'init', root, fstab];
      const child = spawn(command!, args, {
        stdio: ['pipe', 'pipe', 'pipe'],
        env: { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' },
        cwd: '/',
      });
      const ended = new AbortController();
      child.once('exit', () => ended.abort());
      await ready(child, id);
      const pid = await onlyChild(child.pid!);
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
        gone: ended.signal,
        async stop() {
          if (ended.signal.aborted) return;
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

/** An empty root folder with the places for all mounts, shared by all sandboxes: each mounts over it in its own namespace. Returns the mounts. */
async function makeRoot(root: string): Promise<string[]> {
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
  await chmod(root, 0o755);
  return mounts;
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
