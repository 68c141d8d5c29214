import type { Command } from 'commander';

export function register(program: Command): void {
  program
    .command('doctor')
    .description('what this machine lets orchard do, and how to mend what it does not')
    .addHelpText('after', '\nExamples:\n  orchard doctor\n  orchard doctor && orchard run tiny')
    .action(async () => {
      const { execa } = await import('execa');
      const { availableParallelism, freemem } = await import('node:os');
      const { statfs } = await import('node:fs/promises');
      const { machine } = await import('../environment.ts');
      const { sandboxes } = await import('../../sandboxes/index.ts');
      let sound = true;
      const say = (ok: boolean, what: string, wayOut: string): void => {
        sound &&= ok;
        console.log(`${ok ? 'ok  ' : 'BAD '} ${what}${ok ? '' : `\n     ${wayOut}`}`);
      };
      say(true, `Node ${process.versions.node}`, '');
      const versions = await execa(
        machine.python,
        [
          '-c',
          'import torch, transformers; print(f"torch {torch.__version__}, transformers {transformers.__version__}, {torch.cuda.device_count()} GPUs")',
        ],
        { reject: false },
      );
      say(
        versions.exitCode === 0,
        `trainer: ${versions.exitCode === 0 ? versions.stdout : `${machine.python} cannot import torch and transformers`}`,
        'run `node scripts/setup.mjs`, or set ORCHARD_PYTHON',
      );
      const git = await execa('git', ['--version'], { reject: false });
      say(git.exitCode === 0, git.exitCode === 0 ? git.stdout : 'git is not there', 'install git');
      await using driver = await sandboxes.local!.open(sandboxes.local!.config.parse({}), machine);
      const { isolation, network } = driver.capabilities;
      say(
        isolation !== 'none',
        `local sandbox: isolation ${isolation}, network ${network}`,
        'unprivileged user namespaces are off: sysctl kernel.unprivileged_userns_clone=1, or run as root',
      );
      const disk = await statfs('.');
      const freeGiB = (disk.bavail * disk.bsize) / 2 ** 30;
      say(freeGiB > 2, `${freeGiB.toFixed(0)} GiB free here`, 'runs of recipes/tiny.yaml want about 1 GiB');
      console.log(`     ${availableParallelism()} cores, ${(freemem() / 2 ** 30).toFixed(0)} GiB of memory free`);
      if (!sound) process.exitCode = 1;
    });
}
