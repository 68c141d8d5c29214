import { join } from 'node:path';
import { openBlobsReader } from '../core/blobs.ts';
import { userError } from '../core/errors.ts';
import { readJsonl } from '../core/jsonl.ts';
import { type OrchardRow, writeOrchardDataset } from '../data/orchard-dataset.ts';
import { Episode } from '../records/episode.ts';
import { Verdict } from '../records/verdict.ts';
import { conversationsOf, openCalls } from '../stages/conversations.ts';
import type { RunView } from './look.ts';

/** Writes the graded episodes of a stage; returns how many. @throws OrchardError owner `user` */
export async function exportStage(view: RunView, { stage, file }: { stage: string; file: string }): Promise<number> {
  const planned = view.stages.find(({ name }) => name === stage);
  if (planned?.kind !== 'collect') {
    throw userError(
      stage,
      `${stage} is no collect stage of run ${view.name}`,
      `its stages: ${view.stages.map(({ name, kind }) => `${name} (${kind})`).join(', ')}`,
    );
  }
  const dir = join(view.dir, stage);
  const verdicts = new Map<string, Verdict>();
  for await (const verdict of readJsonl(join(dir, 'verdicts.jsonl'), Verdict)) verdicts.set(verdict.episode, verdict);
  const episodes = new Map<string, Episode>();
  for await (const episode of readJsonl(join(dir, 'episodes.jsonl'), Episode)) episodes.set(episode.id, episode);
  await using blobs = await openBlobsReader(join(view.dir, 'blobs'));
  await using reader = await openCalls(dir);
  let count = 0;
  async function* rows(): AsyncIterable<OrchardRow> {
    for (const episode of episodes.values()) {
      const verdict = verdicts.get(episode.id);
      if (!verdict || verdict.class === 'infrastructure' || verdict.class === 'unknown') continue;
      for (const { messages, tools } of await conversationsOf(await reader.callsOf(episode), blobs)) {
        count++;
        yield {
          messages,
          tools,
          metadata: {
            instance_id: episode.task,
            sample_idx: episode.attempt,
            source: `orchard-${view.name}`,
            model: episode.model.name,
            verify_status: verdict.resolved ? 'resolved' : 'unresolved',
          },
        };
      }
    }
  }
  await writeOrchardDataset(file, rows());
  return count;
}
