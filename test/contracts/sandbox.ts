import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ExecResult, Sandbox, SandboxDriver, SandboxSpec } from '../../src/ports/sandbox.ts';

const FILES = { 'a.txt': 'one\ntwo\n', 'sub/b.py': 'print("b")\n' };

const spec = (id: string, more: Partial<SandboxSpec> = {}): SandboxSpec => ({
  id,
  workspace: { kind: 'files', files: FILES },
  network: 'none',
  memoryMiB: 256,
  processes: 48,
  lifetimeMs: 120_000,
  ...more,
});

/** What every sandbox promises. A driver that cannot keep one of these lists its name with the reason in `skip`. */
export function sandboxContract(open: () => Promise<SandboxDriver>, skip: Record<string, string> = {}): void {
  const promise = (name: string, run: () => Promise<void>): void => {
    if (skip[name]) test.skip(`${name} (${skip[name]})`, run);
    else test(name, run, 30_000);
  };

  describe('the sandbox contract', () => {
    let driver: SandboxDriver;
    let box: Sandbox;
    const run = (command: string, options: Partial<Parameters<Sandbox['exec']>[1]> = {}): Promise<ExecResult> =>
      box.exec(command, { timeoutMs: 10_000, ...options });
    const text = async (command: string): Promise<string> => (await run(command)).output.toString();

    beforeAll(async () => {
      driver = await open();
      box = await driver.create(spec('contract'));
    });
    afterAll(async () => {
      await box[Symbol.asyncDispose]();
      await driver[Symbol.asyncDispose]();
    });

    promise('commands start in the repository, which is a clean git checkout of the files', async () => {
      expect(await text('cat a.txt sub/b.py')).toBe('one\ntwo\nprint("b")\n');
      expect(await text('git status --short && git log --oneline | wc -l')).toBe('1\n');
      expect((await text('pwd')).trim()).toBe(box.workdir);
    });

    promise('exit codes, both outputs in their order, and standard input', async () => {
      const result = await run('echo out; echo err >&2; cat; exit 3', { stdin: Buffer.from('in\n') });
      expect([result.exitCode, result.output.toString(), result.timedOut]).toEqual([3, 'out\nerr\nin\n', false]);
    });

    promise('bytes come back as they are', async () => {
      const bytes = Buffer.from([0, 255, 10, 13, 128]);
      await box.write('/tmp/deep/er/x', bytes);
      expect(await box.read('/tmp/deep/er/x')).toEqual(bytes);
      expect((await run('cat /tmp/deep/er/x')).output).toEqual(bytes);
    });

    promise('a file that is not there is an error that names it', async () => {
      await expect(box.read('/tmp/nothing')).rejects.toMatchObject({
        owner: 'sandbox',
        code: 'no_such_file',
        message: expect.stringContaining('/tmp/nothing'),
      });
    });

    promise('a missing working directory is an error, and nothing runs elsewhere', async () => {
      await expect(run('touch /tmp/ran', { cwd: 'no/such' })).rejects.toMatchObject({ code: 'no_such_directory' });
      expect((await run('test -e /tmp/ran')).exitCode).toBe(1);
    });

    promise('the environment is the same everywhere and holds nothing of the driver', async () => {
      process.env.ORCHARD_SECRET_OF_TEST = 'secret';
      const environment = await text('env');
      delete process.env.ORCHARD_SECRET_OF_TEST;
      expect(environment).not.toContain('secret');
      expect(environment).not.toMatch(/proxy/i);
      expect(await text('date +%Z')).toBe('UTC\n');
      expect((await run('echo $EXTRA', { env: { EXTRA: 'given' } })).output.toString()).toBe('given\n');
    });

    promise('an endless loop ends at its timeout with its output so far, and the next command works', async () => {
      const result = await run('echo begun; while :; do :; done', { timeoutMs: 500 });
      expect([result.timedOut, result.exitCode, result.output.toString()]).toEqual([true, null, 'begun\n']);
      expect(result.ms).toBeLessThan(5000);
      expect(await text('echo next')).toBe('next\n');
    });

    promise('a command that ignores SIGTERM ends all the same', async () => {
      const result = await run("trap '' TERM; echo deaf; while :; do sleep 0.1; done", { timeoutMs: 300 });
      expect([result.timedOut, result.output.toString()]).toEqual([true, 'deaf\n']);
      expect(result.ms).toBeLessThan(5000);
    });

    promise('a timeout ends processes that left the session too, but not those of other commands', async () => {
      await run('setsid sleep 321 >/dev/null 2>&1 & echo server');
      await run('setsid sleep 654 >/dev/null 2>&1 & sleep 30', { timeoutMs: 300 });
      const list = await text('for each in /proc/[0-9]*; do tr "\\0" " " <$each/cmdline; echo; done');
      expect(list).toContain('sleep 321');
      expect(list).not.toContain('sleep 654');
    });

    promise('a fork bomb stays within its limit and ends', async () => {
      // In one of its own: while what is left of it is reaped, bash may still complain that it cannot fork at once.
      await using other = await driver.create(spec('bomb'));
      const result = await other.exec('bomb() { bomb | bomb & }; bomb; sleep 20', { timeoutMs: 700 });
      expect(result.timedOut).toBe(true);
      expect(result.ms).toBeLessThan(8000);
      expect((await other.exec('echo alive', { timeoutMs: 10_000 })).output.toString()).toBe('alive\n');
    });

    promise('a gigabyte of output is cut in the middle, counted, and not kept', async () => {
      const before = process.memoryUsage().rss;
      const result = await run('echo first; head -c 1000000000 /dev/zero; echo; echo last', {
        maxOutputBytes: 10_000,
        timeoutMs: 25_000,
      });
      expect(result.output.subarray(0, 6).toString()).toBe('first\n');
      expect(result.output.subarray(-5).toString()).toBe('last\n');
      expect(result.output.toString()).toContain(`${result.droppedBytes} bytes left out`);
      expect(result.droppedBytes).toBe(1_000_000_012 - 10_000);
      // Garbage may lie about; the gigabyte itself must not.
      expect(process.memoryUsage().rss - before).toBeLessThan(700 * 2 ** 20);
    });

    promise('a server left in the background does not hold the command up, and lives on', async () => {
      const result = await run('sleep 45 & echo started');
      expect([result.exitCode, result.output.toString()]).toEqual([0, 'started\n']);
      expect(result.ms).toBeLessThan(3000);
    });

    promise('commands and input far over 128 KiB go through', async () => {
      expect(await text(`echo ${'x'.repeat(300_000)} | wc -c`)).toBe('300001\n');
      expect((await run('wc -c', { stdin: Buffer.alloc(3_000_000, 97) })).output.toString().trim()).toBe('3000000');
    });

    promise('memory beyond the limit is refused to the process that asks', async () => {
      const result = await run('python3 -c "bytearray(600 * 2**20)"');
      expect(result.exitCode).not.toBe(0);
      expect(await text('echo alive')).toBe('alive\n');
    });

    promise('an abort ends the command and is thrown', async () => {
      const controller = new AbortController();
      const running = run('echo go; sleep 30', { signal: controller.signal });
      setTimeout(() => controller.abort(new Error('called off')), 200);
      await expect(running).rejects.toThrow('called off');
      expect(await text('echo alive')).toBe('alive\n');
    });

    promise('several commands run at once', async () => {
      const started = Date.now();
      const results = await Promise.all(['a', 'b', 'c'].map((word) => run(`sleep 0.5; echo ${word}`)));
      expect(results.map((result) => result.output.toString())).toEqual(['a\n', 'b\n', 'c\n']);
      expect(Date.now() - started).toBeLessThan(1400);
    });

    promise('nothing outside the repository and scratch folders can be changed', async () => {
      expect((await run('touch /usr/x')).exitCode).not.toBe(0);
      expect((await run('touch /etc/x')).exitCode).not.toBe(0);
      expect((await run('mount -o remount,rw /usr 2>/dev/null; touch /usr/x')).exitCode).not.toBe(0);
    });

    promise('there is no way to the network, only loopback', async () => {
      const result = await run('python3 -c "import socket; socket.create_connection((\'192.0.2.1\', 80), 3)"');
      expect(result.output.toString()).toContain('Network is unreachable');
      expect(
        (
          await run(
            'python3 -c "import socket; s = socket.create_server((\'127.0.0.1\', 0)); socket.create_connection(s.getsockname())"',
          )
        ).exitCode,
      ).toBe(0);
    });

    promise('what one sandbox does to its repository no other one sees', async () => {
      await run('echo changed >a.txt; rm -rf sub .git');
      await using other = await driver.create(spec('other'));
      expect((await other.exec('cat a.txt; ls -d .git sub', { timeoutMs: 5000 })).output.toString()).toBe(
        'one\ntwo\n.git\nsub\n',
      );
    });

    promise('a disposed sandbox runs nothing more', async () => {
      const other = await driver.create(spec('short'));
      await other[Symbol.asyncDispose]();
      await expect(other.exec('true', { timeoutMs: 1000 })).rejects.toMatchObject({
        owner: 'sandbox',
        code: 'sandbox_gone',
      });
    });

    promise('a sandbox ends with its lifetime', async () => {
      await using other = await driver.create(spec('brief', { lifetimeMs: 300 }));
      await expect(other.exec('sleep 10', { timeoutMs: 20_000 })).rejects.toMatchObject({ owner: 'sandbox' });
    });

    promise('a workspace it cannot provide is refused', async () => {
      await expect(
        driver.create(spec('image', { workspace: { kind: 'image', image: 'x', workdir: '/testbed' } })),
      ).rejects.toMatchObject({ owner: 'user' });
    });
  });
}
