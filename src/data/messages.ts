import type { ChatMessage } from '../ports/inference.ts';

/** An engine's reply as it stands in the history of later requests: thoughts included, fields of the engine not. */
export function asHistory({ content = null, reasoning_content, tool_calls }: ChatMessage): ChatMessage {
  return {
    role: 'assistant',
    content,
    ...(reasoning_content ? { reasoning_content } : {}),
    ...(tool_calls?.length ? { tool_calls } : {}),
  };
}
