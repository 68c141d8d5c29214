import type { ChatMessage } from '../ports/inference.ts';
import type { Chat } from './chat.ts';

/** All that a value model sees of an attempt: never a verdict, and no name of a test that it did not print itself. */
export interface Candidate {
  messages: ChatMessage[];
  patch: Buffer | null;
}

/**
 * Token ids of an attempt for the value model: the conversation and the patch it left, in the chat template of the
 * model. Of one that is too long the head and the tail stay, half each: the issue and how it ended say most.
 * @returns at most `maxTokens` ids, at least 2
 */
export function encodeCandidate(
  chat: Chat,
  { messages, patch }: Candidate,
  { maxTokens }: { maxTokens: number },
): number[] {
  const change = patch === null ? 'It changed nothing.' : `It changed:\n${patch.toString()}`;
  const ids = chat.encode(chat.render([...messages, { role: 'user', content: change }], []));
  if (ids.length <= maxTokens) return ids;
  const head = Math.floor(maxTokens / 2);
  return [...ids.slice(0, head), ...ids.slice(ids.length - (maxTokens - head))];
}
