import { join } from 'node:path';
import { z } from 'zod';
import { OrchardError } from '../../core/errors.ts';
import { openJsonl, readJsonl } from '../../core/jsonl.ts';
import { forEachLimited } from '../../core/limit.ts';
import type { Reward, RewardContext } from '../../ports/reward.ts';
import { rewards } from '../../rewards/index.ts';
import { askModel } from '../ask.ts';
import type { StageContext } from '../context.ts';
import { type CallReader, openCalls } from '../conversations.ts';
import type { Outcome } from '../outcomes.ts';
import { trajectoryOf } from '../trajectories.ts';
import { type Config, rewardsOf } from './config.ts';

/** rewards.jsonl: what one chosen episode is worth, and why. Kept, so that a judge is paid once. */
export const Rewarded = z.strictObject({
  episode: z.string(),
  value: z.number(),
  parts: z.record(z.string(), z.number()),
  problem: z.string().nullable(),
});
export type Rewarded = z.infer<typeof Rewarded>;

export interface Rewards extends AsyncDisposable {
  /** Rewards of the outcomes, by episode; those that `dir` has already are not asked for again. */
  score(outcomes: Outcome[], dir: string): Promise<Map<string, Rewarded>>;
}

/** @throws OrchardError owner `user` when the judge a reward needs is not there or answers in another form */
export async function openRewards(
  context: StageContext,
  { settings, dir }: { settings: Config; dir: string },
): Promise<Rewards> {
  await using opening = new AsyncDisposableStack();
  const needsJudge = rewardsOf(settings).some(({ name }) => name !== 'tests');
  const judge = needsJudge && context.openJudge ? opening.use(await context.openJudge(join(dir, 'judge'))) : null;
  let spent = 0;
  const ask: RewardContext['ask'] =
    judge &&
    (async ({ id, messages }) => {
      if (spent >= context.limits.judgeTokens)
        throw new OrchardError({
          owner: 'reward',
          code: 'judge_budget',
          id,
          cause: `the judge has spent its ${context.limits.judgeTokens} tokens`,
          wayOut: 'raise limits.judgeTokens and run again: what was judged is kept',
        });
      const answer = await askModel(judge, { id, messages, temperature: 0.6, maxTokens: 1024, signal: context.signal });
      spent += answer.tokens;
      return answer;
    });
  const [sample] = await context.tasks('train');
  const opened: Reward[] = [];
  for (const { name, settings: own } of rewardsOf(settings))
    opened.push(
      await rewards[name]!.open(own, { ask, scripted: context.benchmark.scripted?.rubric ?? null, sample: sample! }),
    );

  const scoreOne = async (outcome: Outcome, reader: CallReader): Promise<Rewarded> => {
    const { id } = outcome.episode;
    const { judged } = await trajectoryOf(context, { outcome, reader, own: true });
    const scored: Rewarded = { episode: id, value: 0, parts: {}, problem: null };
    for (const reward of opened) {
      const { value, parts, problem } = await reward({ ...judged!, id });
      scored.value += value;
      Object.assign(scored.parts, parts);
      scored.problem ??= problem;
    }
    return scored;
  };
  const kept = opening.move();
  return {
    async score(outcomes, stepDir) {
      const file = join(stepDir, 'rewards.jsonl');
      const known = new Map<string, Rewarded>();
      for await (const line of readJsonl(file, Rewarded)) known.set(line.episode, line);
      await using writer = await openJsonl(file);
      await using reader = await openCalls(stepDir);
      const missing = outcomes.filter(({ episode }) => !known.has(episode.id));
      await forEachLimited(missing, context, async (outcome) => {
        const scored = await scoreOne(outcome, reader);
        await writer.append(scored);
        known.set(scored.episode, scored);
      });
      context.signal.throwIfAborted();
      return known;
    },
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}
