import type { TrainerKind } from '../ports/trainer.ts';
import { local } from './local.ts';

export const trainers: Record<string, TrainerKind> = { local: local as TrainerKind };
