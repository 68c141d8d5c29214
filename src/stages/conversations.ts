import { join } from 'node:path';
import type { BlobReader } from '../core/blobs.ts';
import { openIndexed } from '../core/jsonl.ts';
import { asHistory } from '../data/messages.ts';
import type { ChatMessage } from '../ports/inference.ts';
import { Call } from '../records/call.ts';
import type { Episode } from '../records/episode.ts';

/** A recorded conversation: the messages of one line of calls, the last reply included. */
export interface Conversation {
  messages: ChatMessage[];
  tools: unknown[];
}

/** The calls of an episode as they were recorded, by sequence. Those of executions that were killed are left out. */
export interface CallReader extends AsyncDisposable {
  callsOf(episode: Episode): Promise<Call[]>;
}

/** Reads calls.jsonl by session, holding only where each one lies: a folder of a cluster's run fits as well. */
export async function openCalls(dir: string): Promise<CallReader> {
  const index = await openIndexed(join(dir, 'calls.jsonl'), { key: 'session', schema: Call });
  return {
    callsOf: async (episode) => (await index.get(episode.session)).sort((a, b) => a.seq - b.seq),
    [Symbol.asyncDispose]: () => index[Symbol.asyncDispose](),
  };
}

/**
 * The conversations of an episode, longest lines only: one that a later call continues is part of that one.
 * A harness that never rewrites its history has exactly one.
 */
export async function conversationsOf(calls: Call[], blobs: BlobReader): Promise<Conversation[]> {
  const whole: Conversation[] = [];
  for (const call of calls) {
    if (
      call.delivered !== 'full' ||
      call.response === null ||
      call.status !== 200 ||
      call.kind === 'title' ||
      call.kind === 'count'
    )
      continue;
    const request = JSON.parse((await blobs.get(call.request.sha256)).toString()) as {
      messages: ChatMessage[];
      tools?: unknown[];
    };
    const response = JSON.parse((await blobs.get(call.response.sha256)).toString()) as {
      choices: { message: ChatMessage }[];
    };
    const reply = response.choices[0]?.message;
    if (!reply) continue;
    whole.push({ messages: [...request.messages, asHistory(reply)], tools: request.tools ?? [] });
  }
  const keys = whole.map(({ messages }) => messages.map(keyOf));
  return whole.filter((_, index) => !keys.some((other, later) => later > index && isPrefix(keys[index]!, other)));
}

/** What makes two messages the same, whatever order or extra fields a harness sends them with. */
function keyOf({ role, content, tool_calls, tool_call_id }: ChatMessage): string {
  return JSON.stringify([
    role,
    content ?? '',
    (tool_calls ?? []).map((call) => [call.function.name, call.function.arguments]),
    tool_call_id ?? '',
  ]);
}

const isPrefix = (short: string[], long: string[]): boolean =>
  short.length <= long.length && short.every((key, index) => key === long[index]);
