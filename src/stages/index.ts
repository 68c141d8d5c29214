import { collect } from './collect.ts';
import type { Stage } from './context.ts';
import { evaluate } from './eval.ts';
import { pretrain } from './pretrain.ts';
import { sft } from './sft.ts';

export const stages: Record<string, Stage> = {
  pretrain: pretrain as Stage,
  collect: collect as Stage,
  sft: sft as Stage,
  eval: evaluate as Stage,
};
