import { createReadStream, existsSync } from 'node:fs';
import { type FileHandle, mkdir, open } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { z } from 'zod';
import { OrchardError } from './errors.ts';

/** A JSON Lines file that is only appended to. */
export interface JsonlWriter extends AsyncDisposable {
  /** Resolves once the line is with the kernel: it survives a kill of this process. */
  append(record: unknown): Promise<void>;
}

/** Opens for appending. A last line that a kill has torn is cut off first, so that the next one stands alone. */
export async function openJsonl(path: string): Promise<JsonlWriter> {
  await mkdir(dirname(path), { recursive: true });
  const file = await open(path, 'a+');
  await cutTornLine(file);
  let waiting: string[] = [];
  let writing: Promise<void> | null = null;
  // All that gathers while one write is under way goes out with the next.
  const drain = async (): Promise<void> => {
    await Promise.resolve();
    const text = waiting.join('');
    waiting = [];
    writing = null;
    await file.appendFile(text);
  };
  // A write that failed may have left half a line: nothing may follow it, so the chain stays rejected.
  let last: Promise<void> = Promise.resolve();
  return {
    append(record) {
      waiting.push(`${JSON.stringify(record)}\n`);
      if (writing === null) {
        writing = last.then(drain);
        last = writing;
      }
      return writing;
    },
    async [Symbol.asyncDispose]() {
      await last.catch(() => {}); // whoever appended was told
      await file.close();
    },
  };
}

const NEWLINE = 10;

async function cutTornLine(file: FileHandle): Promise<void> {
  const { size } = await file.stat();
  const chunk = Buffer.alloc(64 * 1024);
  for (let end = size; end > 0; ) {
    const start = Math.max(0, end - chunk.length);
    await file.read(chunk, 0, end - start, start);
    const newline = chunk.subarray(0, end - start).lastIndexOf(NEWLINE);
    if (newline >= 0) {
      if (start + newline + 1 < size) await file.truncate(start + newline + 1);
      return;
    }
    end = start;
  }
  if (size > 0) await file.truncate(0);
}

interface Line {
  text: Buffer;
  number: number;
  offset: number;
}

/** Lines of a file with where they start. A last one without its newline is torn, and left out unless `open`. */
async function* wholeLines(path: string, { open = false } = {}): AsyncIterable<Line> {
  let rest: Buffer[] = [];
  let offset = 0;
  let number = 0;
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 }) as AsyncIterable<Buffer>) {
    let from = 0;
    for (let newline = chunk.indexOf(NEWLINE); newline >= 0; newline = chunk.indexOf(NEWLINE, from)) {
      const text =
        rest.length === 0 ? chunk.subarray(from, newline) : Buffer.concat([...rest, chunk.subarray(from, newline)]);
      rest = [];
      yield { text, number: ++number, offset };
      offset += text.length + 1;
      from = newline + 1;
    }
    if (from < chunk.length) rest.push(chunk.subarray(from));
  }
  if (open && rest.length > 0) yield { text: Buffer.concat(rest), number: number + 1, offset };
}

/**
 * Records of a JSON Lines file, none when it does not exist.
 * @throws OrchardError naming file and line when a whole line is not JSON or does not fit the schema
 */
export async function* readJsonl<T = unknown>(path: string, schema?: z.ZodType<T>): AsyncIterable<T> {
  if (!existsSync(path)) return;
  for await (const { text, number } of wholeLines(path)) yield parse(text.toString(), { path, number, schema });
}

/**
 * Records of a JSON Lines file that others wrote: its last line need not end, and blank lines are passed over.
 * @throws OrchardError naming file and line when a line is not JSON
 */
export async function* readForeignJsonl(path: string): AsyncIterable<unknown> {
  for await (const { text, number } of wholeLines(path, { open: true })) {
    const line = text.toString();
    if (line.trim() !== '') yield parse(line, { path, number });
  }
}

function parse<T>(text: string, { path, number, schema }: { path: string; number: number; schema?: z.ZodType<T> }): T {
  const broken = (cause: string): OrchardError =>
    new OrchardError({
      owner: 'user',
      code: 'broken_line',
      id: `${path}:${number}`,
      cause: `${path}:${number}: ${cause}`,
      wayOut: 'the file was changed by something else; restore it, or remove the line',
    });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw broken((error as Error).message);
  }
  if (!schema) return value as T;
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw broken(`${issue?.path.join('.')}: ${issue?.message}`);
}

/** Looks records up by one of their fields without holding them. */
export interface JsonlIndex<T> extends AsyncDisposable {
  /** All records whose field has this value, in file order. */
  get(key: string): Promise<T[]>;
}

/** The key stands near the front of a line: long records need not be read to find it. */
const KEY_WITHIN_BYTES = 1024;

/** Scans a file once for the place of each record by the string field `key`; the file may be far larger than memory. */
export async function openIndexed<T>(
  path: string,
  { key, schema }: { key: string; schema: z.ZodType<T> },
): Promise<JsonlIndex<T>> {
  const places = new Map<string, { offset: number; length: number; number: number }[]>();
  if (existsSync(path)) {
    const pattern = new RegExp(`"${key}":"([^"\\\\]*)"`);
    for await (const { text, number, offset } of wholeLines(path)) {
      const value = pattern.exec(text.subarray(0, KEY_WITHIN_BYTES).toString('latin1'))?.[1];
      if (value === undefined) continue;
      const known = places.get(value);
      const place = { offset, length: text.length, number };
      if (known) known.push(place);
      else places.set(value, [place]);
    }
  }
  const file = existsSync(path) ? await open(path, 'r') : null;
  return {
    async get(value) {
      const records: T[] = [];
      for (const { offset, length, number } of places.get(value) ?? []) {
        const text = Buffer.alloc(length);
        await file!.read(text, 0, length, offset);
        records.push(parse(text.toString(), { path, number, schema }));
      }
      return records;
    },
    [Symbol.asyncDispose]: async () => file?.close(),
  };
}
