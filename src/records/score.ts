import { z } from 'zod';
import { Failure } from './common.ts';

/** Version of the official grader. Verdicts differ between them, so it is part of every score. */
export const Profile = z.enum(['4.1', '5.0']);
export type Profile = z.infer<typeof Profile>;

/** Exactly one for each instance. Only the first six say something about the patch. */
export const ScoreClass = z.enum([
  'resolved',
  /** A test of FAIL_TO_PASS does not pass. */
  'f2p_unmet',
  /** All of FAIL_TO_PASS pass, one of PASS_TO_PASS no longer does. */
  'p2p_broken',
  /** The log has no results that the official code can use. */
  'tests_missing',
  'not_applied',
  'timeout',
  /** The agent finished and changed nothing. */
  'empty_patch',
  /** No patch, because the agent ended by an error of its own. */
  'agent_died',
  'no_prediction',
  /** The sandbox or the grader failed: no verdict. */
  'infrastructure',
  /** The row itself cannot be graded: no verdict. */
  'refused',
]);
export type ScoreClass = z.infer<typeof ScoreClass>;

/** What an agent's run cost, where its output tells. */
export const Attempt = z.object({
  /** The agent's own word for how it ended. */
  exit: z.string().nullable().default(null),
  /** `submitted`, `limit` or `died`. */
  end: z.enum(['submitted', 'limit', 'died']).default('submitted'),
  turns: z.number().nullable().default(null),
  promptTokens: z.number().nullable().default(null),
  completionTokens: z.number().nullable().default(null),
  /** US dollars. */
  cost: z.number().nullable().default(null),
  seconds: z.number().nullable().default(null),
});
export type Attempt = z.infer<typeof Attempt>;

export const Suspicion = z.object({ code: z.string(), detail: z.string() });
export type Suspicion = z.infer<typeof Suspicion>;

const Split = z.object({ success: z.array(z.string()), failure: z.array(z.string()) });

/** The verdict on one instance, with what it rests on. */
export const Score = z.object({
  v: z.literal('orchard.score/1'),
  instance: z.string(),
  model: z.string(),
  profile: Profile,
  /** What the verdict depends on: the same key is graded once. `image` is the digest where the sandbox knows it. */
  key: z.object({ row: z.string(), patch: z.string(), profile: Profile, image: z.string().nullable() }),
  class: ScoreClass,
  resolved: z.boolean(),
  /** The official `tests_status`; null when there is none. */
  tests: z.object({ FAIL_TO_PASS: Split, PASS_TO_PASS: Split }).nullable(),
  /** What was done to a log before the official code could read it. */
  prepared: z.array(z.string()),
  /** The official code's guess at trouble of the environment; advisory. */
  reason: z.string().nullable(),
  hardened: z
    .object({ verdict: z.enum(['resolved', 'unresolved', 'doubtful']), suspicious: z.array(Suspicion) })
    .nullable(),
  /** The command that applied the patch. */
  applied: z.string().nullable(),
  /** Exit status of the test command, read outside of the log. */
  exitCode: z.number().nullable(),
  log: z.object({ bytes: z.number(), sha256: z.string(), tail: z.string() }).nullable(),
  failure: Failure.nullable(),
  seconds: z.number(),
  /** Limit of the tests' time in this run; null when a log was graded. */
  timeoutS: z.number().nullable(),
  attempt: Attempt.nullable(),
  /** The verifier's score of this prediction, for best@k. */
  value: z.number().nullable(),
  /** For the tables. */
  repo: z.string(),
  year: z.string().nullable(),
  difficulty: z.string().nullable(),
  language: z.string().nullable(),
});
export type Score = z.infer<typeof Score>;
