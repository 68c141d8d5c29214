import type { HarnessKind } from '../ports/harness.ts';
import { miniSwe } from './mini-swe/index.ts';

export const harnesses: Record<string, HarnessKind> = { 'mini-swe': miniSwe as HarnessKind };
