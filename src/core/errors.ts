import type { Failure, Owner } from '../records/common.ts';

/** An error that knows whose it is, what it happened to, and what to do about it. */
export class OrchardError extends Error {
  readonly owner: Owner;
  readonly code: string;
  readonly id: string;
  readonly wayOut: string;

  constructor(failure: Failure, options?: { cause?: unknown }) {
    super(failure.cause, options);
    this.name = 'OrchardError';
    this.owner = failure.owner;
    this.code = failure.code;
    this.id = failure.id;
    this.wayOut = failure.wayOut;
  }
}

/** Wrong input by the user: the command stops before anything is started, with exit code 2. */
export function userError(id: string, cause: string, wayOut: string): OrchardError {
  return new OrchardError({ owner: 'user', code: 'input', id, cause, wayOut });
}

/** The boundary: turns whatever was thrown into a failure record, keeping an owner that is known already. */
export function failureOf(
  error: unknown,
  fallback: { owner: Owner; code: string; id: string; wayOut: string },
): Failure {
  // Closing what was open may fail in its turn; what came first is the cause.
  if (error instanceof SuppressedError) return failureOf(error.suppressed, fallback);
  if (error instanceof OrchardError) {
    return { owner: error.owner, code: error.code, id: error.id, cause: error.message, wayOut: error.wayOut };
  }
  const cause = error instanceof Error ? error.message : String(error);
  return { ...fallback, cause };
}
