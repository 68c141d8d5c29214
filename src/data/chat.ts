import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Template } from '@huggingface/jinja';
import { Tokenizer } from '@huggingface/tokenizers';
import { OrchardError, userError } from '../core/errors.ts';
import type { ChatMessage } from '../ports/inference.ts';

/** Token ids of a conversation, and which of them are the assistant's. */
export interface EncodedRow {
  /** [T] ids. */
  tokens: number[];
  /** [T] 1 where the assistant wrote, its end token included. */
  mask: number[];
  /** Assistant turn (counted over the conversation), where its prompt began in this row, and [from, to) of what it wrote. */
  turns: { turn: number; prompt: number; from: number; to: number }[];
}

/** Tokenizer and chat template of a model folder. */
export interface Chat {
  /**
   * A conversation as the model would have seen it turn by turn: what comes before a turn and the turn itself are
   * tokenized apart, as at inference. A turn has the form in which later prompts show it (Qwen3 adds an empty thought
   * to the last turn only), unless that leaves out something it said: where a template drops old thoughts, what
   * follows is a row of its own, and each turn is trained once, where it was said.
   * @throws OrchardError owner `user` when the template cannot take the conversation
   */
  encodeConversation(messages: ChatMessage[], tools: unknown[]): EncodedRow[];
  encode(text: string): number[];
  /** The whole conversation as text. */
  render(messages: ChatMessage[], tools: unknown[]): string;
}

/** @throws OrchardError owner `user` when the folder has no tokenizer or template */
export async function loadChat(dir: string): Promise<Chat> {
  const read = async (name: string): Promise<string> =>
    readFile(join(dir, name), 'utf8').catch(() => {
      throw userError(dir, `${dir} has no ${name}`, 'use a model folder in Hugging Face layout');
    });
  const readObject = async (name: string): Promise<object> => {
    try {
      return JSON.parse(await read(name)) as object;
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      throw userError(dir, `${join(dir, name)} is not JSON: ${error.message}`, 'fetch the model folder anew');
    }
  };
  const tokenizerConfig = (await readObject('tokenizer_config.json')) as {
    chat_template?: string;
    eos_token?: string | { content: string };
  };
  const tokenizer = new Tokenizer(await readObject('tokenizer.json'), tokenizerConfig);
  const source = existsSync(join(dir, 'chat_template.jinja'))
    ? await read('chat_template.jinja')
    : tokenizerConfig.chat_template;
  if (!source) throw userError(dir, `${dir} has no chat template`, 'put chat_template.jinja into the model folder');
  const { eos_token: eos } = tokenizerConfig;
  return makeChat({
    tokenizer,
    source,
    endToken: typeof eos === 'string' ? eos : (eos?.content ?? '<|im_end|>'),
    name: dir,
  });
}

/** Renders conversations with a chat template. @throws OrchardError owner `user` when it cannot take one */
export function renderer(
  source: string,
  name: string,
): (messages: ChatMessage[], options: { tools: unknown[]; generate: boolean }) => string {
  const template = new Template(source);
  return (messages, { tools, generate }) => {
    try {
      return template.render({
        messages: messages.map(forTemplate),
        ...(tools.length > 0 ? { tools } : {}),
        add_generation_prompt: generate,
      });
    } catch (error) {
      throw userError(
        name,
        `the chat template of ${name} cannot take the conversation: ${(error as Error).message}`,
        'use a template that knows the roles and tools of the harness',
      );
    }
  };
}

export function makeChat({
  tokenizer,
  source,
  endToken,
  name,
}: {
  tokenizer: Tokenizer;
  source: string;
  endToken: string;
  name: string;
}): Chat {
  const encode = (text: string): number[] => tokenizer.encode(text, { add_special_tokens: false }).ids;
  const render = renderer(source, name);

  /** Text of assistant message `index` with its end token, behind its prompt. */
  const replyTo = (
    prompt: string,
    { messages, index, tools }: { messages: ChatMessage[]; index: number; tools: unknown[] },
  ): string => {
    const message = messages[index]!;
    const next = messages[index + 1] ?? afterwards(message);
    const later = render([...messages.slice(0, index + 1), next], { tools, generate: false });
    if (later.startsWith(prompt)) {
      const shown = later.slice(prompt.length, later.indexOf(endToken, prompt.length) + endToken.length);
      if (!(message.content ?? '').includes(endToken) && saysAll(shown, message)) return shown;
    }
    const whole = render(messages.slice(0, index + 1), { tools, generate: false });
    const end = whole.lastIndexOf(endToken) + endToken.length;
    if (whole.startsWith(prompt) && end > prompt.length) return whole.slice(prompt.length, end);
    throw new OrchardError({
      owner: 'user',
      code: 'template',
      id: name,
      cause: `the chat template of ${name} changes its generation prompt once the reply is there`,
      wayOut: 'use a template whose reply follows the generation prompt',
    });
  };

  return {
    encode,
    render: (messages, tools) => render(messages, { tools, generate: false }),
    encodeConversation(messages, tools) {
      const rows: { text: string; row: EncodedRow }[] = [];
      let turn = 0;
      for (const [index, message] of messages.entries()) {
        if (message.role !== 'assistant') continue;
        const prompt = render(messages.slice(0, index), { tools, generate: true });
        const reply = replyTo(prompt, { messages, index, tools });
        // The row that this prompt goes on with; the longest, should several fit.
        let open = rows.filter(({ text }) => prompt.startsWith(text)).sort((a, b) => b.text.length - a.text.length)[0];
        if (!open) {
          open = { text: '', row: { tokens: [], mask: [], turns: [] } };
          rows.push(open);
        }
        const { row } = open;
        const start = row.tokens.length;
        append(row, encode(prompt.slice(open.text.length)), 0);
        const from = row.tokens.length;
        append(row, encode(reply), 1);
        row.turns.push({ turn: turn++, prompt: start, from, to: row.tokens.length });
        open.text = prompt + reply;
      }
      return rows.map(({ row }) => row);
    },
  };
}

/** What may follow a message, to see it as a later prompt shows it. */
const afterwards = ({ tool_calls: calls }: ChatMessage): ChatMessage =>
  calls?.length ? { role: 'tool', content: '', tool_call_id: calls[0]!.id } : { role: 'user', content: '' };

/** Whether a rendered turn holds all that the message says. Thoughts are in the text, or in a field of their own. */
function saysAll(shown: string, message: ChatMessage): boolean {
  const has = (text: string | null | undefined): boolean => shown.includes((text ?? '').trim());
  return has(message.content) && has(message.reasoning_content);
}

function append(row: EncodedRow, ids: number[], mask: 0 | 1): void {
  for (const id of ids) {
    row.tokens.push(id);
    row.mask.push(mask);
  }
}

/** Templates take arguments as an object; on the wire they are text. Text that is no JSON object stays as it is. */
function forTemplate(message: ChatMessage): Record<string, unknown> {
  if (!message.tool_calls?.length) return { ...message, content: message.content ?? '' };
  return {
    ...message,
    content: message.content ?? '',
    tool_calls: message.tool_calls.map((call) => ({
      ...call,
      function: { ...call.function, arguments: parsed(call.function.arguments) },
    })),
  };
}

function parsed(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : { arguments: text };
  } catch {
    return { arguments: text };
  }
}
