import type { Harness, HarnessEnd, HarnessKind, Launch } from '../../ports/harness.ts';
import type { ChatMessage, ToolCall } from '../../ports/inference.ts';
import { type Config, config, SENTINEL } from './config.ts';
import { askModel } from './model.ts';

const BASH = {
  type: 'function',
  function: {
    name: 'bash',
    description: 'Run a command in a shell.',
    parameters: {
      type: 'object',
      properties: { command: { type: 'string', description: 'the command' } },
      required: ['command'],
    },
  },
};

/** mini-swe-agent's loop: one tool, linear history, submission by a sentinel. */
export const miniSwe: HarnessKind<Config> = {
  name: 'mini-swe',
  config,
  open: (settings): Harness => ({
    name: 'mini-swe',
    version: '1',
    tools: [BASH],
    run: (launch) => run(settings, launch),
  }),
};

const ENDS = { calls: 'call_limit', tokens: 'token_limit', wall: 'time_limit' } as const;

async function run(settings: Config, launch: Launch): Promise<HarnessEnd> {
  const oddities = { unknownTools: 0, unparsable: 0 };
  const end = (kind: HarnessEnd['kind'], detail = ''): HarnessEnd => ({ kind, detail, oddities });
  const messages: ChatMessage[] = [
    { role: 'system', content: settings.system },
    { role: 'user', content: fill(settings.instance, { statement: launch.statement }) },
  ];
  let unusable = 0;
  for (let turn = 0; turn < settings.turns; turn++) {
    const answer = await askModel(launch, messages, [BASH]);
    if (answer.kind === 'limit')
      return end(ENDS[answer.limit], `limits.${answer.limit === 'wall' ? 'wallS' : answer.limit}`);
    if (answer.kind === 'context') return end('context_limit');
    const { message } = answer;
    messages.push(message);
    const calls = message.tool_calls ?? [];
    if (calls.length === 0) {
      if (++unusable >= settings.formatErrors) return end('format_limit', 'no tool call');
      messages.push({ role: 'user', content: fill(settings.formatError, { problem: 'it has no tool call' }) });
      continue;
    }
    let usable = false;
    for (const call of calls) {
      const read = readCall(call);
      if ('problem' in read) {
        oddities[read.unknown ? 'unknownTools' : 'unparsable']++;
        messages.push({
          role: 'tool',
          tool_call_id: call.id,
          content: fill(settings.formatError, { problem: read.problem }),
        });
        continue;
      }
      usable = true;
      const { output, returncode, submitted } = await execute(settings, launch, read.command);
      if (submitted) return end('submitted');
      const template = returncode === '0' ? settings.observation : (settings.observationFailed ?? settings.observation);
      messages.push({ role: 'tool', tool_call_id: call.id, content: fill(template, { returncode, output }) });
    }
    unusable = usable ? 0 : unusable + 1;
    if (unusable >= settings.formatErrors) return end('format_limit', 'no usable tool call');
  }
  return end('call_limit', 'harness.turns');
}

function readCall(call: ToolCall): { command: string } | { problem: string; unknown: boolean } {
  if (call.function.name !== 'bash') return { problem: `there is no tool ${call.function.name}`, unknown: true };
  try {
    const { command } = JSON.parse(call.function.arguments) as { command?: unknown };
    if (typeof command === 'string') return { command };
  } catch {
    // said below
  }
  return { problem: 'the arguments are no JSON object with a text named command', unknown: false };
}

async function execute(
  { commandTimeoutMs, outputCharacters }: Config,
  { sandbox, signal }: Launch,
  command: string,
): Promise<{ output: string; returncode: string; submitted: boolean }> {
  const result = await sandbox.exec(command, {
    timeoutMs: commandTimeoutMs,
    maxOutputBytes: 4 * outputCharacters,
    signal,
  });
  const output = result.output.toString();
  if (result.timedOut)
    return {
      output: `${shorten(output, outputCharacters)}\nThe command was stopped after ${commandTimeoutMs / 1000} s.\n`,
      returncode: '124',
      submitted: false,
    };
  const submitted = result.exitCode === 0 && output.trimStart().split('\n', 1)[0]!.trim() === SENTINEL;
  return { output: shorten(output, outputCharacters), returncode: String(result.exitCode ?? result.signal), submitted };
}

function shorten(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const half = Math.floor(limit / 2);
  return `${text.slice(0, half)}\n… ${text.length - 2 * half} characters left out …\n${text.slice(-half)}`;
}

/** Replaces {{names}}; what is put in is never read as a template again. */
const fill = (template: string, values: Record<string, string>): string =>
  template.replaceAll(/\{\{(\w+)\}\}/g, (whole, name: string) => values[name] ?? whole);
