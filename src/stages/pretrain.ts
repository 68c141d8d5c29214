import { spawn } from 'node:child_process';
import { createWriteStream } from 'node:fs';
import { mkdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { finished } from 'node:stream/promises';
import { z } from 'zod';
import { userError } from '../core/errors.ts';
import { isReady, writeJson } from '../core/folder.ts';
import { type Stage, type StageContext, stageDir } from './context.ts';
import { trainWithBar } from './training.ts';

const config = z.strictObject({
  name: z.string().default('pretrain'),
  documents: z.number().int().positive().describe('conversations of the benchmark corpus'),
  architecture: z.strictObject({
    vocab: z.number().int().positive(),
    hidden: z.number().int().positive(),
    layers: z.number().int().positive(),
    heads: z.number().int().positive(),
    kv_heads: z.number().int().positive(),
    head_dim: z.number().int().positive(),
    intermediate: z.number().int().positive(),
  }),
  epochs: z.number().int().positive().default(1),
  batchRows: z.number().int().positive().default(64),
  learningRate: z.number().positive().default(2e-3),
  minLearningRate: z.number().min(0).default(2e-4),
  warmupSteps: z.number().int().min(0).default(100),
  weightDecay: z.number().min(0).default(0.1),
});
type Config = z.infer<typeof config>;
