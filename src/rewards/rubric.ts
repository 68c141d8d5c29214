import { z } from 'zod';
import { parseRubric, rubricMessages, rubricValue } from '../algo/rubric.ts';
import { OrchardError, userError } from '../core/errors.ts';
import type { JudgedEpisode } from '../ports/benchmark.ts';
import type { RewardContext, RewardKind } from '../ports/reward.ts';
import type { RubricScores } from '../records/rubric.ts';

const config = z.strictObject({
  weight: z.number().positive().default(0.5).describe('of the judge beside the tests'),
});

/** How an episode worked, whatever its tests said: seven items by one question to a judge. No answer counts 0. */
export const rubric: RewardKind<z.infer<typeof config>> = {
  name: 'rubric',
  config,
  async open({ weight }, context) {
    const judge = await judgeOf(context);
    return async (episode) => {
      const { scores, problem } = await judge(episode);
      if (scores === null) return { value: 0, parts: { rubric: 0 }, problem };
      const parts = Object.fromEntries(Object.entries(scores).map(([item, score]) => [`rubric.${item}`, score]));
      const value = weight * rubricValue(scores);
      return { value, parts: { rubric: value, ...parts }, problem: null };
    };
  },
};

type Judge = (
  episode: JudgedEpisode & { id: string },
) => Promise<{ scores: RubricScores | null; problem: string | null }>;

async function judgeOf({ ask, scripted, sample }: RewardContext): Promise<Judge> {
  if (ask === null) {
    if (scripted === null)
      throw userError(
        'rewards.rubric',
        'the rubric needs a judge, and this benchmark has no scripted one',
        'add for example judge: { kind: openai, baseUrl: …, model: … }',
      );
    return async (episode) => ({ scores: scripted(episode), problem: null });
  }
  const judge: Judge = async ({ id, ...episode }) => {
    const { text, problem } = await ask({ id, messages: rubricMessages(episode) });
    if (problem !== null) return { scores: null, problem };
    try {
      return { scores: parseRubric(text), problem: null };
    } catch (error) {
      return { scores: null, problem: (error as Error).message };
    }
  };
  // One attempt that did nothing: a judge that answers in another form is found before episodes are paid for.
  const tried = await judge({
    id: 'a first question',
    task: sample,
    messages: [],
    patch: null,
    verdict: {
      v: 'orchard.verdict/1',
      episode: '',
      task: sample.id,
      class: 'empty_patch',
      resolved: false,
      tests: {},
      log: null,
      ms: 0,
    },
  });
  if (tried.problem !== null)
    throw new OrchardError({
      owner: 'user',
      code: 'judge_schema',
      id: 'judge',
      cause: `the judge does not answer as the rubric needs: ${tried.problem}`,
      wayOut: 'use a judge that follows instructions for JSON, or take rubric out of rewards',
    });
  return judge;
}
