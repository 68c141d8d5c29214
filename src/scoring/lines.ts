import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';

/** A longer line is cut here: what matters in a log stands at the start of its line. */
const LINE_BYTES = 8192;
const TAIL_BYTES = 2000;
const NEWLINE = 10;

export interface FileFacts {
  bytes: number;
  sha256: string;
  /** The end of the file as text, for people. */
  tail: string;
}

/** Reads a file of any size, with lines of any length, in constant memory. `onLine` sees each line up to 8 KiB. */
export async function scanLines(path: string, onLine: (line: string) => void): Promise<FileFacts> {
  const hash = createHash('sha256');
  let bytes = 0;
  let tail = Buffer.alloc(0);
  let rest: Buffer[] = [];
  let kept = 0;
  const keep = (part: Buffer): void => {
    if (kept < LINE_BYTES) rest.push(part.subarray(0, LINE_BYTES - kept));
    kept += part.length;
  };
  const finish = (): void => {
    onLine((rest.length === 1 ? rest[0]! : Buffer.concat(rest)).toString('utf8').replace(/\r$/, ''));
    rest = [];
    kept = 0;
  };
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 }) as AsyncIterable<Buffer>) {
    hash.update(chunk);
    bytes += chunk.length;
    tail = Buffer.concat([tail, chunk.subarray(-TAIL_BYTES)]).subarray(-TAIL_BYTES);
    let from = 0;
    for (let newline = chunk.indexOf(NEWLINE); newline >= 0; newline = chunk.indexOf(NEWLINE, from)) {
      keep(chunk.subarray(from, newline));
      finish();
      from = newline + 1;
    }
    keep(chunk.subarray(from));
  }
  if (kept > 0) finish();
  return { bytes, sha256: hash.digest('hex'), tail: tail.toString('utf8').replace(/^\uFFFD+/, '') };
}
