import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { type Instance, readInstance } from '../../src/benchmarks/swe-bench/sources.ts';
import { local } from '../../src/sandboxes/local/index.ts';
import { filesIn } from '../../src/scoring/layout.ts';
import { patchFiles } from '../../src/scoring/patch.ts';
import { type RunOptions, runTests } from '../../src/scoring/runner.ts';

const dir = mkdtempSync(join(tmpdir(), 'orchard-runner-'));
chmodSync(dir, 0o755); // the sandbox's user goes through it
const sandboxes = await local.open(local.config.parse({}), { scratchDir: join(dir, 'scratch') });
afterAll(async () => {
  await sandboxes[Symbol.asyncDispose]();
  rmSync(dir, { recursive: true, force: true });
});
const network = sandboxes.capabilities.network === 'blockable' ? 'none' : 'open';

const BASE: Record<string, string> = {
  'a.txt': 'one\ntwo\nthree\n',
  'crlf.txt': 'one\r\ntwo\r\n',
  'tox.ini': '[tox]\n',
};

const instance = readInstance(
  {
    instance_id: 'box__box-1',
    repo: 'box/box',
    version: '1',
    base_commit: 'HEAD',
    problem_statement: 's',
    patch: 'p',
    test_patch: '',
    FAIL_TO_PASS: ['t'],
    PASS_TO_PASS: [],
    files: BASE,
    eval_script: 'true',
    log_parser: 'parse_log_pytest',
  },
  { index: 0 },
) as Instance;

async function run(patch: Buffer | string | null, options: Partial<RunOptions> & { script?: string } = {}) {
  const files = filesIn(mkdtempSync(join(dir, 'run-')));
  const ran = await runTests(instance, {
    profile: '5.0',
    patch: patch === null ? null : Buffer.from(patch),
    script: 'cat a.txt crlf.txt',
    timeoutMs: 60_000,
    network,
    memoryMiB: 512,
    processes: 64,
    sandboxes,
    files,
    signal: new AbortController().signal,
    ...options,
  });
  return { ...ran, files, log: existsSync(files.log) ? readFileSync(files.log) : null };
}

/** What git itself makes of a change to the base files. */
function diffOf(change: (repo: string) => void): Buffer {
  const repo = mkdtempSync(join(dir, 'repo-'));
  const git = (...args: string[]): Buffer =>
    execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@t', '-c', 'core.autocrlf=false', ...args], {
      cwd: repo,
      stdio: ['ignore', 'pipe', 'ignore'],
      maxBuffer: 1 << 28,
    });
  for (const [name, text] of Object.entries(BASE)) writeFileSync(join(repo, name), text);
  git('init', '-q');
  git('add', '-A');
  git('commit', '-qm', 'base');
  change(repo);
  git('add', '-A');
  return git('diff', '--cached', '--binary', 'HEAD');
}

const edit = (line: string): string =>
  `diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+${line}\n three\n`;

test('a plain patch is applied by the first command, and what tests print is kept byte for byte', async () => {
  const { applied, log, files, exitCode, timedOut } = await run(edit('deux'), {
    script: "cat a.txt; printf 'a\\0\\377\\r\\n' >&2; SWEBENCH_TEST_EXIT_CODE=3",
  });
  expect({ applied, exitCode, timedOut }).toEqual({ applied: 'git apply --verbose', exitCode: 3, timedOut: false });
  expect(log).toEqual(Buffer.from('one\ndeux\nthree\na\0\xff\r\n', 'latin1'));
  expect(readFileSync(files.patch, 'utf8')).toBe(edit('deux'));
  expect(readFileSync(files.runLog, 'utf8')).toContain('>>>>> Applied Patch');
});

test('P10: the status of the tests is the variable of the script, not the status of its last line', async () => {
  const { exitCode } = await run(null, { script: 'SWEBENCH_TEST_EXIT_CODE=0\ngit checkout no-such-file' });
  expect(exitCode).toBe(0);
  expect((await run(null, { script: 'false' })).exitCode).toBeNull();
});

test('P11: a patch without its last newline is refused by git in both profiles', async () => {
  const short = edit('deux').slice(0, -1);
  // GNU patch, the last rung, completes the line: the official runner then counts it as applied.
  expect((await run(short)).applied).toBe('patch --batch --forward --fuzz=5 -p1 -i');
  expect((await run(short, { profile: '4.1' })).applied).toBe('patch --batch --fuzz=5 -p1 -i');
});

test('P12: what a failed try leaves behind is cleaned in 5.0 and stays in 4.1', async () => {
  // The first hunk fits, the second does not: --reject applies half of it.
  const half = `${edit('deux')}diff --git a/tox.ini b/tox.ini\n--- a/tox.ini\n+++ b/tox.ini\n@@ -1 +1 @@\n-[nothing like it]\n+[x]\n`;
  const four = await run(half, { profile: '4.1' });
  const five = await run(half);
  expect(readFileSync(four.files.runLog, 'utf8')).toMatch(/Reversed \(or previously applied\) patch detected/);
  expect(readFileSync(five.files.runLog, 'utf8')).not.toMatch(/Reversed/);
  expect({ four: four.applied, five: five.applied }).toEqual({ four: null, five: null });
  expect(readFileSync(five.files.runLog, 'utf8')).toContain('>>>>> Patch Apply Failed');
  expect(five.log).toBeNull();
});

test('P12: a change that the repository has already counts as applied in 5.0 only', async () => {
  const done = `diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-zwei\n+two\n three\n`;
  expect((await run(done)).applied).toMatch(/reverse/);
  expect((await run(done, { profile: '4.1' })).applied).not.toBe('git apply --verbose');
});

test('P13: CRLF inside a patch survives, and where it was lost the patch does not fit the CRLF file', async () => {
  const crlf = diffOf((repo) => writeFileSync(join(repo, 'crlf.txt'), 'one\r\nzwei\r\n'));
  const kept = await run(crlf);
  expect(kept.applied).toBe('git apply --verbose');
  expect(kept.log!.toString()).toContain('one\r\nzwei\r\n');
  const lost = await run(crlf.toString().replaceAll('\r\n', '\n'));
  expect(lost.applied).not.toBe('git apply --verbose');
});

test('P8, P9: the script works on the patched tree, with what the patch deletes gone', async () => {
  const { log } = await run(
    diffOf((repo) => rmSync(join(repo, 'tox.ini'))),
    { script: 'ls tox.ini 2>/dev/null || echo gone' },
  );
  expect(log!.toString()).toBe('gone\n');
});

test('P21: time up ends every process of the tests and keeps what they printed', async () => {
  const { timedOut, log, exitCode } = await run(null, {
    script: 'echo before; (sleep 600 & echo $! >/dev/null; setsid sleep 600 &) ; sleep 600',
    timeoutMs: 1500,
  });
  expect({ timedOut, exitCode }).toEqual({ timedOut: true, exitCode: null });
  expect(log!.toString()).toBe('before\n\n\nTimeout error: 1.5 seconds exceeded.');
});

test('symlinks, new modes, binary files and odd names come through as git wrote them', async () => {
  const patch = diffOf((repo) => {
    symlinkSync('/etc/passwd', join(repo, 'link'));
    writeFileSync(join(repo, 'blob.bin'), Buffer.from([0, 1, 2, 255, 254]));
    mkdirSync(join(repo, 'dir with space'));
    writeFileSync(join(repo, 'dir with space', 'ünï "q"\t.txt'), 'x\n');
    chmodSync(join(repo, 'a.txt'), 0o755);
  });
  const { applied, log } = await run(patch, { script: 'readlink link; od -An -tu1 blob.bin; ls -1 dir*; ls -l a.txt' });
  expect(applied).toBe('git apply --verbose');
  expect(log!.toString()).toMatch(/^\/etc\/passwd\n\s+0\s+1\s+2 255 254\n/);
  expect(patchFiles(patch).map(({ path, change, mode }) => [path, change, mode])).toEqual([
    ['a.txt', 'modified', '100755'],
    ['blob.bin', 'new', '100644'],
    ['dir with space/ünï "q"\t.txt', 'new', '100644'],
    ['link', 'new', '120000'],
  ]);
});

test.each([
  ['an absolute path', '--- /etc/hostname\n+++ /etc/hostname\n@@ -1 +1 @@\n-x\n+y\n'],
  [
    'a path that leads out',
    'diff --git a/../../out.txt b/../../out.txt\nnew file mode 100644\n--- /dev/null\n+++ b/../../out.txt\n@@ -0,0 +1 @@\n+x\n',
  ],
  ['no patch at all', 'I could not find the defect.\n'],
  ['random bytes', Buffer.from(Array.from({ length: 4096 }, (_, index) => (index * 197) % 256))],
])('a patch with %s does not apply, in both profiles, and nothing is written outside', async (_, patch) => {
  for (const profile of ['4.1', '5.0'] as const) {
    const { applied, log } = await run(patch, { profile, script: 'cat /out.txt ../out.txt ../../out.txt' });
    expect({ applied, log }).toEqual({ applied: null, log: null });
  }
});

test('binary hunks without data are refused by git, and become an empty file by the last command of each profile', async () => {
  const patch =
    'diff --git a/x.bin b/x.bin\nnew file mode 100644\nindex 0000000..1111111\nBinary files /dev/null and b/x.bin differ\n';
  for (const profile of ['4.1', '5.0'] as const) {
    const { applied, log } = await run(patch, { profile, script: 'wc -c <x.bin' });
    expect(applied).toMatch(/^patch --batch/);
    expect(log!.toString()).toBe('0\n');
  }
});

test('a submodule cannot be carried by a patch: it applies as an empty entry, and the stricter verdict names it', async () => {
  const patch =
    'diff --git a/sub b/sub\nnew file mode 160000\nindex 0000000..1111111111111111111111111111111111111111\n--- /dev/null\n+++ b/sub\n@@ -0,0 +1 @@\n+Subproject commit 1111111111111111111111111111111111111111\n';
  expect(patchFiles(Buffer.from(patch))).toMatchObject([{ path: 'sub', mode: '160000' }]);
  const { log } = await run(patch, { script: 'ls -A sub | wc -l' });
  expect(log!.toString()).toBe('0\n');
});

test('a patch of 50 MB goes through', async () => {
  const lines = '0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\n'.repeat(820_000);
  const patch = diffOf((repo) => writeFileSync(join(repo, 'big.txt'), lines));
  expect(patch.length).toBeGreaterThan(50e6);
  const { applied, log } = await run(patch, { script: 'wc -c <big.txt' });
  expect(applied).toBe('git apply --verbose');
  expect(log!.toString().trim()).toBe(String(lines.length));
});

test('an ended sandbox is no verdict: tests that are killed from outside raise', async () => {
  await expect(run(null, { script: 'kill -9 $PPID $$' })).rejects.toThrow(/ended by SIGKILL|from outside/);
});
