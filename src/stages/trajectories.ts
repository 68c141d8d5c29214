import { join } from 'node:path';
import { readJson } from '../core/folder.ts';
import { readOrchardDataset } from '../data/orchard-dataset.ts';
import type { JudgedEpisode } from '../ports/benchmark.ts';
import type { ChatMessage } from '../ports/inference.ts';
import type { Call } from '../records/call.ts';
import { finishedStage, type StageContext } from './context.ts';
import { type CallReader, conversationsOf, openCalls } from './conversations.ts';
import { type Outcome, readOutcomes } from './outcomes.ts';

/** One attempt as supervised fine-tuning sees it, from a stage of this run or from published data. */
export interface Trajectory {
  id: string;
  task: string;
  resolved: boolean;
  /** Why it cannot be used at all, e.g. an infrastructure failure; null when it can. */
  unusable: string | null;
  oddities: { unknownTools: number; unparsable: number };
  messages: ChatMessage[];
  tools: unknown[];
  /** The recipe's own model spoke, so that the engine's token ids are the ones to train on. */
  own: boolean;
  /** Recorded calls; none for published data. */
  calls: Call[];
  /** How it ended, in words for a judge. */
  outcome: string;
  /** What a scripted judge needs; null when the task is not at hand. */
  judged: JudgedEpisode | null;
}

const NOTHING = {
  unusable: null,
  oddities: { unknownTools: 0, unparsable: 0 },
  messages: [],
  tools: [],
  own: false,
  calls: [],
  outcome: '',
  judged: null,
};

/** Attempts of a finished stage, by id, so that a resumed run sees the same order. */
export async function* trajectoriesOfStage(context: StageContext, name: string): AsyncIterable<Trajectory> {
  const dir = finishedStage(context, name);
  const { policy } = (await readJson(join(dir, 'summary.json'))) as { policy: string };
  const own = policy !== 'teacher';
  const outcomes = await readOutcomes(dir, await context.tasks('train'));
  await using reader = await openCalls(dir);
  for (const [, outcome] of [...outcomes].sort(([a], [b]) => (a < b ? -1 : 1)))
    yield await trajectoryOf(context, { outcome, reader, own });
}

/** One attempt with its recorded calls. `own`: the model that spoke is the one to be trained. */
export async function trajectoryOf(
  context: StageContext,
  { outcome, reader, own }: { outcome: Outcome; reader: CallReader; own: boolean },
): Promise<Trajectory> {
  const { task, episode, verdict } = outcome;
  const base = { ...NOTHING, id: episode.id, task: task.id, resolved: verdict.resolved, oddities: episode.oddities };
  if (verdict.class === 'infrastructure' || verdict.class === 'unknown') return { ...base, unusable: verdict.class };
  const calls = await reader.callsOf(episode);
  const conversation = (await conversationsOf(calls, context.blobs)).at(-1);
  if (!conversation) return { ...base, unusable: 'no_calls' };
  const patch = episode.patch ? await context.blobs.get(episode.patch.sha256) : null;
  const tests = Object.entries(verdict.tests).map(([test, status]) => `${status} ${test}`);
  const ended =
    verdict.class === 'empty_patch'
      ? 'it left no change'
      : `${verdict.resolved ? 'resolved' : 'not resolved'}; tests: ${tests.join(', ')}`;
  return {
    ...base,
    ...conversation,
    // Without the engine's ids its text is as good as a teacher's.
    own: own && calls.every(({ tokens }) => tokens.source === 'engine'),
    calls,
    outcome: ended,
    judged: { task, messages: conversation.messages, patch, verdict },
  };
}

/** Rows of a published data set in the schema of microsoft/Orchard, by row hash. */
export async function* trajectoriesOfDataset(file: string): AsyncIterable<Trajectory> {
  for await (const { rowSha256, metadata, messages, tools } of readOrchardDataset(file)) {
    const resolved = metadata.verify_status === 'resolved';
    yield {
      ...NOTHING,
      id: rowSha256,
      task: metadata.instance_id,
      resolved,
      messages,
      tools,
      outcome: resolved ? 'resolved' : 'not resolved',
    };
  }
}
