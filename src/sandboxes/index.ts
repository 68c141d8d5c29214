import type { SandboxKind } from '../ports/sandbox.ts';
import { local } from './local/index.ts';

export const sandboxes: Record<string, SandboxKind> = { local: local as SandboxKind };
