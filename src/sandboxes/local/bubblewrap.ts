import { existsSync, lstatSync, readlinkSync } from 'node:fs';
import { chown, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import { asOwner, type Launcher, SHOWN, startedWithout, WORKDIR } from './launcher.ts';
import type { Owner } from './workspace.ts';

/**
 * bubblewrap (bwrap(1)), which some machines allow while they refuse user namespaces to everybody else. Every command
 * gets namespaces of its own around the same copy of the repository, so nothing it starts outlives it.
 */
export const bubblewrap = (owner: Owner | null): Launcher => ({
  isolation: 'namespace',
  owner,
  async start({ dir, base, network }) {
    const [repository, tmp] = [join(dir, 'copy'), join(dir, 'tmp')];
    await mkdir(tmp, { recursive: true });
    if (owner) await chown(tmp, owner.uid, owner.gid);
    await execa('cp', ['-a', '--reflink=auto', base, repository]);
    return startedWithout(WORKDIR, [
      ...asOwner(owner),
      'bwrap',
      '--unshare-all',
      ...(network === 'open' ? ['--share-net'] : []),
      '--die-with-parent',
      ...['--uid', '0', '--gid', '0', '--hostname', 'sandbox'],
      ...SHOWN.flatMap(show),
      ...['--proc', '/proc', '--dev', '/dev', '--tmpfs', '/root', '--dir', '/var/tmp'],
      ...['--bind', tmp, '/tmp', '--bind', repository, WORKDIR],
    ]);
  },
});

function show(name: string): string[] {
  const host = `/${name}`;
  if (!existsSync(host)) return [];
  return lstatSync(host).isSymbolicLink() ? ['--symlink', readlinkSync(host), host] : ['--ro-bind', host, host];
}
