import type { z } from 'zod';
import type { EndKind } from '../records/episode.ts';
import type { Sandbox } from './sandbox.ts';

/** Everything a harness needs for one episode. */
export interface Launch {
  episode: string;
  statement: string;
  /** The proxy's address and key for this episode alone. */
  endpoint: { baseUrl: string; apiKey: string; model: string };
  sandbox: Sandbox;
  sampling: { temperature: number; topP: number; maxTokensPerCall: number };
  signal: AbortSignal;
}

export interface HarnessEnd {
  kind: EndKind;
  detail: string;
  oddities: { unknownTools: number; unparsable: number };
}

export interface Harness {
  readonly name: string;
  readonly version: string;
  /** Function schemas it offers the model, as it sends them. */
  readonly tools: unknown[];
  /**
   * Runs one episode to its end. Ends that belong to the model or to a cap are returned.
   * @throws OrchardError for failures of the sandbox, the provider or the harness itself
   */
  run(launch: Launch): Promise<HarnessEnd>;
}

export interface HarnessKind<C = unknown> {
  name: string;
  config: z.ZodType<C>;
  open(config: C): Harness;
}
