import { createReadStream } from 'node:fs';
import { open, rename } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects } from 'hyparquet';
import { parquetWriteFile } from 'hyparquet-writer';
import { z } from 'zod';
import { userError } from '../core/errors.ts';
import { sha256 } from '../core/hash.ts';
import type { ChatMessage } from '../ports/inference.ts';

const ToolCall = z.object({
  id: z.string().nullish(),
  type: z.string().nullish(),
  function: z.object({ name: z.string(), arguments: z.string() }),
});
const Message = z.object({
  role: z.enum(['system', 'user', 'assistant', 'tool']),
  content: z.string().nullish(),
  reasoning_content: z.string().nullish(),
  tool_call_id: z.string().nullish(),
  tool_calls: z.array(ToolCall).nullish(),
});
const Metadata = z.looseObject({
  instance_id: z.string(),
  verify_status: z.enum(['resolved', 'unresolved']),
  source: z.string().optional(),
});

/** A trajectory in the schema of the public data set microsoft/Orchard (its `swe` part). */
export interface OrchardRow {
  messages: ChatMessage[];
  tools: unknown[];
  metadata: z.infer<typeof Metadata>;
}

/** Rows are told apart by their content: (instance_id, sample_idx) is not unique in the published data. */
export type ReadRow = OrchardRow & { rowSha256: string };

/** Read in pieces: one file of the data set holds thousands of trajectories of 20,000 tokens. */
const ROWS_AT_A_TIME = 64;

/**
 * Rows of a Parquet or JSONL file, in order, a few in memory at a time.
 * @throws OrchardError owner `user`, naming file and row, for the first one that does not fit
 */
export async function* readOrchardDataset(file: string): AsyncIterable<ReadRow> {
  let number = 0;
  for await (const raw of file.endsWith('.parquet') ? parquetRows(file) : jsonlRows(file))
    yield parseRow(raw, `${file}: row ${++number}`);
}

async function* parquetRows(file: string): AsyncIterable<unknown> {
  try {
    const buffer = await asyncBufferFromFile(file);
    const metadata = await parquetMetadataAsync(buffer);
    const rows = Number(metadata.num_rows);
    for (let rowStart = 0; rowStart < rows; rowStart += ROWS_AT_A_TIME) {
      yield* await parquetReadObjects({
        file: buffer,
        metadata,
        rowStart,
        rowEnd: Math.min(rows, rowStart + ROWS_AT_A_TIME),
      });
    }
  } catch (error) {
    throw userError(file, `cannot read ${file}: ${(error as Error).message}`, 'give a whole Parquet file');
  }
}

async function* jsonlRows(file: string): AsyncIterable<unknown> {
  const stream = createReadStream(file);
  try {
    for await (const line of createInterface({ input: stream })) if (line.trim() !== '') yield line;
  } catch (error) {
    throw userError(file, `cannot read ${file}: ${(error as Error).message}`, 'check the path');
  }
}

function parseRow(raw: unknown, where: string): ReadRow {
  const refuse = (cause: string): never => {
    throw userError(where, `${where}: ${cause}`, 'mend the row or take it out');
  };
  const json = (value: unknown, field: string): unknown => {
    if (typeof value !== 'string') return value;
    try {
      return JSON.parse(value);
    } catch (error) {
      return refuse(`${field}: ${(error as Error).message}`);
    }
  };
  const row = json(raw, 'row') as Record<string, unknown>;
  if (typeof row !== 'object' || row === null) return refuse('expected an object');
  const messages = z.array(Message).min(1).safeParse(json(row.messages, 'messages'));
  if (!messages.success)
    return refuse(`messages.${messages.error.issues[0]?.path.join('.')}: ${messages.error.issues[0]?.message}`);
  const metadata = Metadata.safeParse(json(row.metadata, 'metadata'));
  if (!metadata.success)
    return refuse(`metadata.${metadata.error.issues[0]?.path.join('.')}: ${metadata.error.issues[0]?.message}`);
  const tools = json(row.tools ?? [], 'tools');
  if (!Array.isArray(tools)) return refuse('tools: expected a list');
  const clean = messages.data.map(
    ({ role, content, reasoning_content: thoughts, tool_call_id: callId, tool_calls: calls }): ChatMessage => ({
      role,
      content: content ?? null,
      ...(thoughts ? { reasoning_content: thoughts } : {}),
      ...(callId ? { tool_call_id: callId } : {}),
      ...(calls?.length
        ? {
            tool_calls: calls.map((call) => ({
              id: call.id ?? '',
              type: 'function' as const,
              function: call.function,
            })),
          }
        : {}),
    }),
  );
  return {
    messages: clean,
    tools,
    metadata: metadata.data,
    rowSha256: sha256(JSON.stringify([clean, tools, metadata.data])),
  };
}

/** Writes rows as JSONL, or as Parquet with messages, tools and metadata as JSON text; the file appears whole. */
export async function writeOrchardDataset(file: string, rows: AsyncIterable<OrchardRow>): Promise<void> {
  const partial = `${file}.partial`;
  const texts = ({ messages, tools, metadata }: OrchardRow) => ({
    tools: JSON.stringify(tools),
    messages: JSON.stringify(messages),
    metadata: JSON.stringify(metadata),
  });
  if (file.endsWith('.parquet')) {
    const columns: Record<'tools' | 'messages' | 'metadata', string[]> = { tools: [], messages: [], metadata: [] };
    for await (const row of rows)
      for (const [name, value] of Object.entries(texts(row))) columns[name as keyof typeof columns].push(value);
    await parquetWriteFile({
      filename: partial,
      rowGroupSize: 1000,
      columnData: Object.entries(columns).map(([name, data]) => ({ name, data, type: 'STRING' as const })),
    });
  } else if (file.endsWith('.jsonl')) {
    await using handle = await open(partial, 'w');
    for await (const row of rows) {
      const { tools, metadata } = texts(row);
      await handle.write(`${JSON.stringify({ tools, messages: row.messages, metadata })}\n`);
    }
  } else throw userError(file, `${file}: expected a name that ends in .parquet or .jsonl`, 'name the file so');
  await rename(partial, file);
}
