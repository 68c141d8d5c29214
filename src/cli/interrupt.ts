/** Thrown through everything that listens to the signal when the user interrupts. */
export class Interrupted extends Error {
  constructor() {
    super('interrupted');
    this.name = 'Interrupted';
  }
}

/** Aborts on the first Ctrl-C or SIGTERM; the second ends the process at once. */
export function interruptSignal(): AbortSignal {
  const controller = new AbortController();
  const stop = (): void => {
    if (controller.signal.aborted) process.exit(130);
    console.error('\nstopping cleanly; once more stops at once');
    controller.abort(new Interrupted());
  };
  process.on('SIGINT', stop);
  process.on('SIGTERM', stop);
  return controller.signal;
}
