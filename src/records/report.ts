import { z } from 'zod';

/** One model evaluated on the held-out tasks. */
export const ReportRow = z.object({
  name: z.string(),
  resolved: z.number().int(),
  total: z.number().int(),
  /** Wilson 95 % interval of the resolve rate. */
  interval: z.tuple([z.number(), z.number()]),
  /** The four classes; they add up to `total`. */
  classes: z.object({
    graded: z.number().int(),
    empty_patch: z.number().int(),
    infrastructure: z.number().int(),
    unknown: z.number().int(),
  }),
  infrastructure: z.number().int(),
  /** Exact McNemar test against an earlier row on the same tasks. */
  versus: z
    .object({
      name: z.string(),
      gained: z.number().int(),
      lost: z.number().int(),
      p: z.number(),
      gainedIds: z.array(z.string()),
      lostIds: z.array(z.string()),
    })
    .nullable(),
  /** Of a row that chose among candidates: what others would have come to, as shares of the tasks. */
  candidates: z
    .object({
      k: z.number().int(),
      /** One at random, the shortest patch, and the best of all. */
      mean: z.number(),
      shortest: z.number(),
      pass: z.number(),
      /** Chance of doing as well by choosing at random (exact, one-sided). */
      p: z.number(),
    })
    .optional(),
  tokens: z.object({ prompt: z.number().int(), completion: z.number().int() }),
  trainedTokens: z.number().int().nullable(),
  seconds: z.number(),
});
export type ReportRow = z.infer<typeof ReportRow>;

export const Report = z.object({
  v: z.literal('orchard.report/1'),
  run: z.string(),
  rows: z.array(ReportRow),
  seconds: z.number(),
});
export type Report = z.infer<typeof Report>;
