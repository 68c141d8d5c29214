import { z } from 'zod';

export const config = z.strictObject({
  network: z.enum(['none', 'open']).default('none'),
  memoryMiB: z.number().int().positive().default(512).describe('address space of each process'),
  processes: z.number().int().positive().default(128).describe('processes and threads of the whole sandbox'),
});
export type Config = z.infer<typeof config>;
