import type { Call } from '../records/call.ts';

/** Sequences of earlier calls that a prompt is compared with: an agent and its sub-agents rarely have more open. */
const REMEMBERED = 8;

/** Writes the prompts of one session as differences to earlier calls, so that an episode takes space linear in its turns. */
export interface Lineage {
  encode(promptIds: number[]): Call['tokens']['prompt'];
  remember(call: string, promptIds: number[], completionIds: number[]): void;
}

export function openLineage(): Lineage {
  const known: { call: string; ids: number[] }[] = [];
  return {
    encode(promptIds) {
      let base: string | null = null;
      let keep = 0;
      for (const { call, ids } of known) {
        let shared = 0;
        while (shared < ids.length && shared < promptIds.length && ids[shared] === promptIds[shared]) shared++;
        if (shared > keep) {
          base = call;
          keep = shared;
        }
      }
      return { base, keep, tail: promptIds.slice(keep) };
    },
    remember(call, promptIds, completionIds) {
      known.push({ call, ids: [...promptIds, ...completionIds] });
      if (known.length > REMEMBERED) known.shift();
    },
  };
}

/** Prompt ids of every call of a session, in order. @throws RangeError when a difference names a call that is not there */
export function decodePrompts(calls: Call[]): Map<string, number[]> {
  const prompts = new Map<string, number[]>();
  const sequences = new Map<string, number[]>();
  for (const { id, tokens } of calls) {
    const { base, keep, tail } = tokens.prompt;
    const before = base === null ? [] : sequences.get(base);
    if (!before) throw new RangeError(`call ${id} builds on call ${base}, which is not recorded`);
    const prompt = [...before.slice(0, keep), ...tail];
    prompts.set(id, prompt);
    sequences.set(id, [...prompt, ...tokens.completion]);
  }
  return prompts;
}
