/** Progress of long work, as the command line draws it. `note` is the changing text behind the bar. */
export interface Progress {
  start(label: string, total: number, unit: string): ProgressBar;
  /** One line that is not a bar. */
  line(text: string): void;
}

export interface ProgressBar {
  update(done: number, note: string): void;
  /** The last line this bar leaves behind. */
  end(note: string): void;
}

/** For library use and tests: says nothing. */
export const silent: Progress = { start: () => ({ update() {}, end() {} }), line() {} };
