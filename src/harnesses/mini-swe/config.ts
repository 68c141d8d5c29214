import { z } from 'zod';

/** First output line of the command that ends an attempt, as in mini-swe-agent. */
export const SENTINEL = 'COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT';

const SYSTEM = `You are an engineer who works on a repository through a shell. Each of your turns calls the tool bash; its output is what you see next. Every command starts in the repository's root in a new shell: a change of directory or a variable does not last.`;

const INSTANCE = `Please resolve this issue by changing the code of the repository in the current directory. Do not change its tests.

<issue>
{{statement}}
</issue>

Work in small steps: find the code that matters, reproduce the problem, change the code, check that it is mended and that nothing else broke. When you are done, hand in your work with this command and nothing else:

echo ${SENTINEL}

After that you can do nothing more.`;

export const config = z.strictObject({
  system: z.string().default(SYSTEM),
  instance: z.string().default(INSTANCE).describe('first user message; {{statement}} is replaced'),
  observation: z
    .string()
    .default('<returncode>{{returncode}}</returncode>\n<output>\n{{output}}</output>')
    .describe('{{returncode}} and {{output}} are replaced'),
  observationFailed: z.string().optional().describe('for exit codes other than 0; as observation when left out'),
  formatError: z
    .string()
    .default(
      `Your last turn could not be used: {{problem}}. Call the tool bash with one argument, command. To hand in your work, run: echo ${SENTINEL}`,
    )
    .describe('{{problem}} is replaced'),
  turns: z.number().int().positive().default(100),
  formatErrors: z.number().int().positive().default(3).describe('unusable turns in a row that end an attempt'),
  commandTimeoutMs: z.number().int().positive().default(90_000),
  outputCharacters: z.number().int().positive().default(10_000).describe('longer output is cut in the middle'),
});
export type Config = z.infer<typeof config>;
