import { chown, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import { bubblewrap } from './bubblewrap.ts';
import { type Launcher, startedWithout } from './launcher.ts';
import { namespaces } from './namespaces.ts';
import type { Owner } from './workspace.ts';

/** The user that a driver running as root hands its sandboxes to: nobody. */
export const NOBODY: Owner = { uid: 65534, gid: 65534 };

/**
 * The best launcher that works here: namespaces of our own, with an overlay or a copy of the repository; bubblewrap,
 * which may be allowed where those are not; or none at all.
 */
export async function findLauncher(scratchDir: string): Promise<Launcher> {
  for (const owner of process.getuid?.() === 0 ? [NOBODY, null] : [null]) {
    for (const launcher of [
      await namespaces(scratchDir, { owner, overlay: true }),
      await namespaces(scratchDir, { owner, overlay: false }),
      bubblewrap(owner),
    ]) {
      if (await works(launcher, scratchDir)) return launcher;
    }
  }
  return bare;
}

/**
 * Whether a launcher does here what it promises: a repository that can be changed, nothing else that can, and a limit
 * of processes that holds, which the kernel does not keep for the machine's own root.
 */
export async function works(launcher: Launcher, scratchDir: string): Promise<boolean> {
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
    const run = async (script: string): Promise<string> => {
      const [command, ...args] = [...started.enter, 'sh', '-c', script];
      const { stdout } = await execa(command!, args, { reject: false, cwd: '/', timeout: 5000 });
      return stdout ?? '';
    };
    // Replacing a folder is what an overlay cannot do on a file system without extended attributes.
    const changes = await run(
      `cd ${started.workdir} && rmdir folder && mkdir folder && ! touch /usr/inside 2>/dev/null && echo yes`,
    );
    const forks = await run("prlimit --nproc=1 sh -c '/bin/true && echo yes'");
    await started.stop();
    return changes === 'yes' && forks !== 'yes';
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
    return startedWithout(dir, []);
  },
};
