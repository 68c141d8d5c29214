import type { z } from 'zod';
import type { Workspace } from '../records/task.ts';

export interface SandboxCapabilities {
  isolation: 'none' | 'namespace' | 'container';
  /** `blockable`: `network: none` is enforced. `open`: it cannot be, and asking for it is refused. */
  network: 'blockable' | 'open';
}

export interface SandboxSpec {
  /** Names the sandbox in errors and logs: the episode's or verdict's id. */
  id: string;
  workspace: Workspace;
  network: 'none' | 'open';
  memoryMiB: number;
  processes: number;
  /** Wall-clock life of the whole sandbox. */
  lifetimeMs: number;
}

export interface ExecOptions {
  stdin?: Buffer;
  env?: Record<string, string>;
  /** Absolute, or relative to the workspace, which is the default. A missing one is an error. */
  cwd?: string;
  timeoutMs: number;
  /** Output beyond this is cut in the middle. Default 1 MiB. */
  maxOutputBytes?: number;
  signal?: AbortSignal;
}

export interface ExecResult {
  /** null when the command was ended by a signal. */
  exitCode: number | null;
  signal: string | null;
  /** stdout and stderr in the order they were written. */
  output: Buffer;
  /** Bytes cut out of the middle of `output`. */
  droppedBytes: number;
  timedOut: boolean;
  ms: number;
}

/** A started sandbox. Disposing it ends every process in it and removes its files. */
export interface Sandbox extends AsyncDisposable {
  readonly id: string;
  /** Absolute path of the repository inside the sandbox. */
  readonly workdir: string;
  /**
   * Runs `bash -c command` (`sh` where there is no bash) at most once. On a timeout only this command's processes
   * end, their output so far is returned with `timedOut`, and the sandbox stays usable.
   * @throws OrchardError owner `sandbox` when the sandbox itself is gone or cannot start the command
   */
  exec(command: string, options: ExecOptions): Promise<ExecResult>;
  /** @throws OrchardError owner `sandbox`, code `no_such_file` */
  read(path: string): Promise<Buffer>;
  /** Writes atomically (rename), creating parent folders. */
  write(path: string, bytes: Buffer): Promise<void>;
}

/** Starts sandboxes of one kind. */
export interface SandboxDriver extends AsyncDisposable {
  readonly capabilities: SandboxCapabilities;
  /**
   * @throws OrchardError owner `user` when the spec asks for what this driver cannot enforce,
   * owner `sandbox` when it could not be started
   */
  create(spec: SandboxSpec): Promise<Sandbox>;
}

export interface SandboxKind<C = unknown> {
  name: string;
  config: z.ZodType<C>;
  /** `scratchDir` holds what outlives a run, shared by all drivers of this machine. */
  open(config: C, context: { scratchDir: string }): Promise<SandboxDriver>;
}
