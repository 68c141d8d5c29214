import { collect } from './collect.ts';
import type { Stage } from './context.ts';
import { evaluate } from './eval.ts';
import { pretrain } from './pretrain.ts';
import { rerank } from './rerank.ts';
import { rl } from './rl/index.ts';
import { select } from './select.ts';
import { sft } from './sft.ts';
import { value } from './value/index.ts';

export const stages: Record<string, Stage> = {
  pretrain: pretrain as Stage,
  collect: collect as Stage,
  sft: sft as Stage,
  select: select as Stage,
  rl: rl as Stage,
  value: value as Stage,
  eval: evaluate as Stage,
  rerank: rerank as Stage,
};
