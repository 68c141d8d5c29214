import { Command } from 'commander';
import { register as data } from './commands/data.ts';
import { register as doctor } from './commands/doctor.ts';
import { register as list } from './commands/list.ts';
import { register as logs } from './commands/logs.ts';
import { register as plan } from './commands/plan.ts';
import { register as plot } from './commands/plot.ts';
import { register as run } from './commands/run.ts';
import { register as schema } from './commands/schema.ts';
import { register as show } from './commands/show.ts';
import { register as status } from './commands/status.ts';
import { register as swebench } from './commands/swebench.ts';
import { register as tasks } from './commands/tasks.ts';

// Commands import what they do only when they run, so that --help answers at once.
const program = new Command('orchard')
  .description('Trains a language model to be a coding agent, in the harness it will be deployed in.')
  .version('0.1.0')
  .showSuggestionAfterError()
  .enablePositionalOptions()
  .configureHelp({ showGlobalOptions: true })
  .addHelpText('after', '\nExamples:\n  orchard run tiny\n  orchard plan tiny --set harness.turns=8');
program.exitOverride((problem) => process.exit(problem.exitCode === 0 ? 0 : 2));
for (const register of [run, swebench, plan, status, plot, logs, show, list, tasks, data, schema, doctor])
  register(program);

try {
  await program.parseAsync();
} catch (thrown) {
  // Closing what was open may fail in its turn; what came first is the cause.
  let error: unknown = thrown;
  while (error instanceof SuppressedError) error = error.suppressed;
  if ((error as Error).name === 'Interrupted') {
    console.error('interrupted; the same command goes on from here');
    process.exit(130);
  }
  const { printError } = await import('./output.ts');
  printError(error);
  process.exit((error as { owner?: string }).owner === 'user' ? 2 : 1);
}
