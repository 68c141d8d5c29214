// Installs what orchard needs into the checkout: npm packages (with a current Node among them), the official
// graders and the trainer's Python environment. Plain JavaScript for the Node a machine happens to have; does nothing when all is there.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = dirname(dirname(fileURLToPath(import.meta.url)));
export const node = join(root, 'node_modules', 'node', 'bin', 'node');
export const python = join(root, 'trainer', '.venv', 'bin', 'python');

function run(command, args, options = {}) {
  const result = spawnSync(command, args, { cwd: root, stdio: ['ignore', 2, 2], ...options });
  if (result.error) throw new Error(`cannot start ${command}: ${result.error.message}`);
  if (result.status !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${result.status ?? result.signal}`);
}

const works = (command, args) => spawnSync(command, args, { stdio: 'ignore' }).status === 0;
const hashOf = (...files) => {
  const hash = createHash('sha256');
  for (const file of files) hash.update(readFileSync(join(root, file)));
  return hash.digest('hex');
};

/** Runs `install` unless the stamp in `stampFile` says that it was done for the same inputs. */
function once(stampFile, stamp, install) {
  const path = join(root, stampFile);
  if (existsSync(path) && readFileSync(path, 'utf8') === stamp) return;
  install();
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, stamp);
}

/** uv from the PATH, or our own copy in `.uv`, installed with whatever this Python offers. */
function findUv() {
  if (works('uv', ['--version'])) return 'uv';
  const own = join(root, '.uv', 'bin', 'uv');
  if (works(own, ['--version'])) return own;
  rmSync(join(root, '.uv'), { recursive: true, force: true });
  if (works('python3', ['-m', 'venv', join(root, '.uv')])) {
    run(join(root, '.uv', 'bin', 'python'), ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', 'uv']);
  } else {
    rmSync(join(root, '.uv'), { recursive: true, force: true });
    if (!works('python3', ['-m', 'pip', '--version'])) {
      throw new Error(
        'Python has neither venv nor pip: install them first, on Debian and Ubuntu with `apt-get install python3-venv`',
      );
    }
    run('python3', [
      '-m',
      'pip',
      'install',
      '--quiet',
      '--disable-pip-version-check',
      '--target',
      join(root, '.uv'),
      'uv',
    ]);
  }
  return own;
}

export function setup({ tests = false } = {}) {
  if (Number(process.versions.node.split('.')[0]) < 20)
    throw new Error(`Node ${process.versions.node} is too old: orchard needs 20 or newer`);
  once('node_modules/.orchard', hashOf('package-lock.json'), () => {
    console.error('installing npm packages…');
    // onnxruntime-node's install script fetches CUDA libraries that scoring on the CPU has no use for.
    const env = { ...process.env, ONNXRUNTIME_NODE_INSTALL: 'skip' };
    run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], { env });
    if (!existsSync(node)) {
      // npm may be told not to run install scripts; the current Node comes with one.
      run('npm', ['rebuild', 'node', '--ignore-scripts=false', '--loglevel=error']);
      if (!existsSync(node))
        run(process.execPath, ['installArchSpecificPackage.js'], { cwd: join(root, 'node_modules', 'node') });
    }
  });
  for (const version of ['4.1', '5.0']) {
    const folder = join('grader', version);
    once(join(folder, '.venv', '.orchard'), hashOf(join(folder, 'uv.lock'), join(folder, 'pyproject.toml')), () => {
      console.error(`installing the official grader ${version}…`);
      run(findUv(), ['sync', '--locked'], { cwd: join(root, folder) });
    });
  }
  const groups = tests ? ['--group', 'test'] : [];
  const stamp = `${hashOf('trainer/uv.lock', 'trainer/pyproject.toml')} ${groups.join(' ')}`;
  const path = join(root, 'trainer', '.venv', '.orchard');
  // An environment that also has the test packages serves for everything.
  if (existsSync(path) && readFileSync(path, 'utf8').startsWith(stamp)) return;
  console.error('installing the trainer (torch and transformers, some gigabytes)…');
  run(findUv(), ['sync', '--locked', '--no-default-groups', ...groups], { cwd: join(root, 'trainer') });
  writeFileSync(path, stamp);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    setup({ tests: process.argv.includes('--tests') });
  } catch (error) {
    console.error(`orchard: ${error.message}`);
    process.exit(1);
  }
}
