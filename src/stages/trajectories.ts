import { readFile } from 'node:fs/promises';
import { readOrchardDataset } from '../data/orchard-dataset.ts';
import type { JudgedEpisode } from '../ports/benchmark.ts';
import type { ChatMessage } from '../ports/inference.ts';
import type { Call } from '../records/call.ts';
import { finishedStage, type StageContext } from './context.ts';
import { conversationsOf, openCalls } from './conversations.ts';
import { readOutcomes } from './rollouts.ts';

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
  /** Recorded calls, for ids straight from the engine; empty for published data. */
  calls: Call[];
  /** What a judge needs; null when the task is not at hand. */
  judged: JudgedEpisode | null;
}

const NONE = { unknownTools: 0, unparsable: 0 };

/** Attempts of finished stages, by id, so that a resumed run sees the same order. */
export async function* trajectoriesOfStage(context: StageContext, name: string): AsyncIterable<Trajectory> {
  const dir = finishedStage(context, name);
  const outcomes = await readOutcomes(dir, await context.tasks('train'));
  await using reader = await openCalls(dir);
  for (const [id, { task, episode, verdict }] of [...outcomes].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const base = { id, task: task.id, resolved: verdict.resolved, oddities: episode.oddities };
    if (verdict.class === 'infrastructure' || verdict.class === 'unknown') {
      yield { ...base, unusable: verdict.class, messages: [], tools: [], calls: [], judged: null };
      continue;
    }
    const calls = await reader.callsOf(episode);
    const conversations = await conversationsOf(calls, context.blobs);
    const last = conversations.at(-1);
    if (!last) {
      yield { ...base, unusable: 'no_calls', messages: [], tools: [], calls: [], judged: null };
      continue;
    }
    const patch = episode.patch ? await context.blobs.get(episode.patch.sha256) : null;
    yield { ...base, unusable: null, ...last, calls, judged: { task, messages: last.messages, patch, verdict } };
  }
}

/** Rows of a published data set in the schema of microsoft/Orchard. The judge knows only whether they resolved. */
export async function* trajectoriesOfDataset(file: string): AsyncIterable<Trajectory> {
  for await (const row of readOrchardDataset(file)) {
    yield {
      id: row.rowSha256,
      task: row.metadata.instance_id,
      resolved: row.metadata.verify_status === 'resolved',
      unusable: null,
      oddities: NONE,
      messages: row.messages,
      tools: row.tools,
      calls: [],
      judged: null,
    };
  }
}
