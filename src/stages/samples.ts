import { mergeCalls } from '../algo/merge.ts';
import type { Chat } from '../data/chat.ts';
import { decodePrompts } from '../proxy/lineage.ts';
import type { Sample } from '../records/sample.ts';
import type { Trajectory } from './trajectories.ts';

/** A sample whose segments say which assistant turn each holds. */
export interface TurnSample {
  sample: Sample;
  /** Turn of segment i. */
  turns: number[];
}

/**
 * Token ids of an attempt. When the model that spoke was this one (`own`), they are the engine's, merged by exact
 * prefix; otherwise the text is tokenized with the model's own template.
 */
export function samplesOf(trajectory: Trajectory, chat: Chat): TurnSample[] {
  return trajectory.own ? fromEngine(trajectory) : fromText(trajectory, chat);
}

function fromEngine({ id, task, calls }: Trajectory): TurnSample[] {
  const prompts = decodePrompts(calls);
  const turnOf = new Map(calls.map((call, turn) => [call.id, turn]));
  return mergeCalls(
    calls.map((call) => ({ call, promptIds: prompts.get(call.id)! })),
    { episode: id, task },
  ).map((sample) => ({ sample, turns: sample.segments.map(({ call }) => turnOf.get(call)!) }));
}

function fromText({ id, task, messages, tools }: Trajectory, chat: Chat): TurnSample[] {
  const rows = chat.encodeConversation(messages, tools);
  const total = rows.reduce((sum, row) => sum + trained(row.mask), 0);
  return rows.map((row, index) => ({
    turns: row.turns.map(({ turn }) => turn),
    sample: {
      v: 'orchard.sample/1',
      id: `${id}#${index}`,
      episode: id,
      task,
      tokens: row.tokens,
      mask: row.mask,
      weights: [...row.mask],
      logprobs: null,
      segments: row.turns.map(({ turn, prompt, from, to }) => ({
        call: `turn ${turn}`,
        from: prompt,
        promptEnd: from,
        to,
        trained: true,
      })),
      rootReason: index === 0 ? 'start' : 'rewrite',
      episodeShare: total === 0 ? 0 : trained(row.mask) / total,
      source: 'retokenized',
    },
  }));
}

const trained = (mask: number[]): number => mask.reduce((sum, one) => sum + one, 0);

/** Weight 1 on the tokens of the chosen turns and 0 on all others: what came before stays as context. */
export function weighTurns({ sample, turns }: TurnSample, chosen: ReadonlySet<number>): Sample {
  const weights = sample.mask.map(() => 0);
  for (const [index, { promptEnd, to, trained: isTrained }] of sample.segments.entries()) {
    if (!isTrained || !chosen.has(turns[index]!)) continue;
    for (let at = promptEnd; at < to; at++) weights[at] = sample.mask[at]!;
  }
  return { ...sample, weights };
}
