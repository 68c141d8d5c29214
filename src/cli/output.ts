import cliProgress from 'cli-progress';
import { OrchardError } from '../core/errors.ts';
import type { Progress, ProgressBar } from '../core/progress.ts';
import type { Report } from '../records/report.ts';

/** Off a terminal a line now and then is enough. */
const LINE_EVERY_MS = 10_000;

/** Bars on a terminal, lines elsewhere; always on standard error, so that standard output stays data. */
export function openProgress(): Progress {
  return process.stderr.isTTY ? bars() : lines();
}

function bars(): Progress {
  // A run that fails leaves its bar standing, with the cursor hidden.
  process.once('exit', () => process.stderr.write('\u001b[?25h'));
  return {
    line: (text) => console.error(`  ${text}`),
    start(label, total): ProgressBar {
      const started = Date.now();
      const bar = new cliProgress.SingleBar({
        format: `  ${label.padEnd(22)} {bar} {count}{note}  {duration_formatted}`,
        barCompleteChar: '█',
        barIncompleteChar: '░',
        barsize: 20,
        hideCursor: true,
        clearOnComplete: true,
        stream: process.stderr,
      });
      const count = (done: number): string => (total > 1 ? `${done}/${total} · ` : '');
      bar.start(total, 0, { note: '', count: count(0) });
      return {
        update: (done, note) => bar.update(done, { note, count: count(done) }),
        end(note) {
          bar.stop();
          console.error(
            `  ${label.padEnd(22)} ${'█'.repeat(20)} ${count(total)}${note}  ${clock(Date.now() - started)}`,
          );
        },
      };
    },
  };
}

function lines(): Progress {
  return {
    line: (text) => console.error(text),
    start(label, total, unit): ProgressBar {
      const started = Date.now();
      let last = 0;
      return {
        update(done, note) {
          if (Date.now() - last < LINE_EVERY_MS) return;
          last = Date.now();
          console.error(
            `${label}: ${total > 1 ? `${done}/${total} ${unit}` : `${(100 * done).toFixed(0)} %`}${note ? ` · ${note}` : ''}`,
          );
        },
        end: (note) =>
          console.error(`${label}: ${total > 1 ? `${total} ${unit} · ` : ''}${note} · ${clock(Date.now() - started)}`),
      };
    },
  };
}

export const clock = (ms: number): string => {
  const seconds = Math.round(ms / 1000);
  return seconds < 60 ? `${seconds}s` : `${Math.floor(seconds / 60)}m${String(seconds % 60).padStart(2, '0')}`;
};

/** Columns padded to their widest cell: the first one to the left, the others, numbers mostly, to the right unless told. */
export function table(header: string[], rows: string[][], { left = false } = {}): string {
  const widths = header.map((title, column) =>
    Math.max(title.length, ...rows.map((row) => (row[column] ?? '').length)),
  );
  const line = (cells: string[]): string =>
    cells
      .map((cell, column) => (column === 0 || left ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!)))
      .join('   ')
      .trimEnd();
  return [line(header), ...rows.map(line)].join('\n');
}

const WIDE = 100;

/** A long text cut for a line on a terminal. */
export const shorten = (text: string): string => (text.length <= WIDE ? text : `${text.slice(0, WIDE - 1)}…`);

const percent = (share: number): string => (100 * share).toFixed(1);

const thousands = (count: number): string => (count >= 10_000 ? `${Math.round(count / 1000)}k` : String(count));

const chance = (p: number): string => `p = ${p < 1e-4 ? p.toExponential(0) : p.toFixed(4)}`;

export function reportTable(report: Report): string {
  const rows = report.rows.map((row) => {
    const scored = row.classes.graded + row.classes.empty_patch;
    return [
      row.name,
      `${row.resolved}/${row.total}`,
      scored > 0 ? `${percent(row.resolved / scored)} %` : '-',
      scored > 0 ? `${percent(row.interval[0])} – ${percent(row.interval[1])}` : '-',
      row.versus ? `+${row.versus.gained} −${row.versus.lost}` : '',
      row.versus ? chance(row.versus.p) : '',
      String(row.classes.empty_patch),
      String(row.infrastructure),
      row.trainedTokens === null ? '' : thousands(row.trainedTokens),
      thousands(row.tokens.prompt + row.tokens.completion),
      clock(row.seconds * 1000),
    ];
  });
  const lines = table(
    [
      '',
      'resolved',
      'rate',
      '95 % interval',
      'against above',
      'McNemar',
      'empty',
      'infra',
      'trained on',
      'tokens used',
      'time',
    ],
    rows,
  );
  const notes = report.rows.flatMap(({ name, resolved, total, candidates }) =>
    candidates
      ? `${name}: ${percent(resolved / total)} % chosen of ${candidates.k} candidates; one at random ${percent(candidates.mean)} % (${chance(candidates.p)}), the shortest patch ${percent(candidates.shortest)} %, the best possible ${percent(candidates.pass)} %`
      : [],
  );
  return notes.length > 0 ? `${lines}\n\n${notes.join('\n')}` : lines;
}

/** One failure as a sentence with its way out. A defect of orchard itself keeps its stack. */
export function printError(error: unknown): void {
  if (error instanceof OrchardError) {
    for (const line of error.message.split('\n')) console.error(`orchard: ${line}`);
    console.error(`         ${error.wayOut}`);
    return;
  }
  const code = (error as NodeJS.ErrnoException).code;
  const path = (error as NodeJS.ErrnoException).path;
  if (code === 'ENOSPC' || code === 'EDQUOT') {
    console.error(`orchard: the disk is full${path ? ` (${path})` : ''}`);
    console.error('         free some space and run the same command again: it continues where it stopped');
  } else if (code === 'EACCES' || code === 'EROFS') {
    console.error(`orchard: may not write ${path ?? 'a file'}`);
    console.error('         choose another folder with --runs');
  } else console.error(error instanceof Error ? (error.stack ?? error.message) : String(error));
}
