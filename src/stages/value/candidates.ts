import { encodeCandidate } from '../../data/candidate.ts';
import type { Chat } from '../../data/chat.ts';
import type { Task } from '../../records/task.ts';
import type { StageContext } from '../context.ts';
import { conversationsOf, openCalls } from '../conversations.ts';
import { type Outcome, readOutcomes } from '../outcomes.ts';

/** One attempt as the value model gets it, and what became of it. */
export interface Encoded {
  outcome: Outcome;
  ids: number[];
}

/** The scored attempts of a folder, in the order of their ids. Attempts without a recorded reply are left out. */
export async function* encodeFolder(
  context: StageContext,
  { folder, tasks, chat, maxTokens }: { folder: string; tasks: Task[]; chat: Chat; maxTokens: number },
): AsyncIterable<Encoded> {
  await using reader = await openCalls(folder);
  const outcomes = [...(await readOutcomes(folder, tasks))].sort(([a], [b]) => (a < b ? -1 : 1));
  for (const [, outcome] of outcomes) {
    context.signal.throwIfAborted();
    const { episode, verdict } = outcome;
    if (verdict.class !== 'graded' && verdict.class !== 'empty_patch') continue;
    const conversation = (await conversationsOf(await reader.callsOf(episode), context.blobs)).at(-1);
    if (!conversation) continue;
    const patch = episode.patch ? await context.blobs.get(episode.patch.sha256) : null;
    yield { outcome, ids: encodeCandidate(chat, { messages: conversation.messages, patch }, { maxTokens }) };
  }
}
