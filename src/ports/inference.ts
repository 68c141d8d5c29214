import type { z } from 'zod';
import type { Task } from '../records/task.ts';
import type { Weights } from '../records/weights.ts';

/** A running model behind an OpenAI-compatible address. */
export interface Inference extends AsyncDisposable {
  /** Ends in `/v1`. */
  readonly baseUrl: string;
  readonly model: string;
  readonly apiKey: string | null;
  /** Without token ids an episode is good for SFT only. */
  readonly capabilities: { tokenIds: boolean; logprobs: boolean };
  /** The version it answers with now. */
  version(): string;
  /** Resolves when it can be asked: a server that is being started again is waited for. */
  ready?(): Promise<void>;
  /**
   * Switches to published weights; every reply that starts afterwards comes from them.
   * @throws OrchardError owner `provider` when the engine cannot load or reports another version
   */
  load(weights: Weights): Promise<void>;
}

/** What a scripted model is asked: the chat so far, and whose episode it is. */
export interface ScriptedRequest {
  task: Task;
  /** Episode id: the seed of whatever the script decides. */
  episode: string;
  messages: ChatMessage[];
}

export interface ChatMessage {
  role: 'system' | 'user' | 'assistant' | 'tool';
  content: string | null;
  /** Thoughts, where an engine keeps them apart from what is said. */
  reasoning_content?: string | null;
  tool_calls?: ToolCall[];
  tool_call_id?: string;
}

export interface ToolCall {
  id: string;
  type: 'function';
  /** `arguments` is JSON text, as on the wire. */
  function: { name: string; arguments: string };
}

/** A model written by hand: what it says next. Pure, so that a resumed run says the same again. */
export type Script = (request: ScriptedRequest) => { content: string | null; commands: string[] };

export interface InferenceContext {
  /** Folder for the engine's log. */
  dir: string;
  /** The weights to start with; null for models that have none of ours. */
  weights: Weights | null;
  /** For scripted models. */
  script?: { play: Script; tasks: Map<string, Task> };
  /** Interpreter of the trainer's environment. */
  python: string;
  /** Value of an environment variable that the recipe names. */
  secret(name: string): string | undefined;
  signal: AbortSignal;
}

export interface InferenceKind<C = unknown> {
  name: string;
  config: z.ZodType<C>;
  open(config: C, context: InferenceContext): Promise<Inference>;
}
