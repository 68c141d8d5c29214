import type { ChatMessage } from '../../ports/inference.ts';

/** Shell commands that a message calls for; calls that cannot be read are left out. */
export function commandsOf({ tool_calls }: ChatMessage): string[] {
  return (tool_calls ?? []).flatMap((call) => {
    try {
      const { command } = JSON.parse(call.function.arguments) as { command?: unknown };
      return typeof command === 'string' ? [command] : [];
    } catch {
      return []; // the harness has told the model already
    }
  });
}
