import type { InferenceKind } from '../ports/inference.ts';
import { openai } from './openai.ts';
import { scripted } from './scripted.ts';
import { torch } from './torch.ts';

export const inferences: Record<string, InferenceKind> = {
  openai: openai as InferenceKind,
  scripted: scripted as InferenceKind,
  torch: torch as InferenceKind,
};
