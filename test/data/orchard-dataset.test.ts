import { existsSync } from 'node:fs';
import { mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type OrchardRow, readOrchardDataset, writeOrchardDataset } from '../../src/data/orchard-dataset.ts';

const row = (number: number): OrchardRow => ({
  messages: [
    { role: 'system', content: 'You work in a shell.' },
    { role: 'user', content: `issue ${number} ä` },
    {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'c', type: 'function', function: { name: 'bash', arguments: '{"command":"ls"}' } }],
    },
    { role: 'tool', content: 'a.txt\n', tool_call_id: 'c' },
  ],
  tools: [{ type: 'function', function: { name: 'bash' } }],
  metadata: { instance_id: `i-${number}`, verify_status: number % 2 === 0 ? 'resolved' : 'unresolved', source: 'x' },
});

async function* rows(count: number): AsyncIterable<OrchardRow> {
  for (let number = 0; number < count; number++) yield row(number);
}

const path = async (name: string): Promise<string> => join(await mkdtemp(join(tmpdir(), 'orchard-dataset-')), name);

test.each(['x.parquet', 'x.jsonl'])(
  '%s holds what was written, and each row has a name by its content',
  async (name) => {
    const file = await path(name);
    await writeOrchardDataset(file, rows(150));
    const read = await Array.fromAsync(readOrchardDataset(file));
    expect(read.map(({ rowSha256: _, ...rest }) => rest)).toEqual(
      Array.from({ length: 150 }, (_, number) => row(number)),
    );
    expect(new Set(read.map(({ rowSha256 }) => rowSha256)).size).toBe(150);
  },
);

test('a row has the same name in both forms', async () => {
  const files = [await path('x.parquet'), await path('x.jsonl')];
  const names = [];
  for (const file of files) {
    await writeOrchardDataset(file, rows(3));
    names.push((await Array.fromAsync(readOrchardDataset(file))).map(({ rowSha256 }) => rowSha256));
  }
  expect(names[0]).toEqual(names[1]);
});

test('Parquet written here has the columns of the published data as text', async () => {
  const file = await path('x.parquet');
  await writeOrchardDataset(file, rows(2));
  // An independent look at the bytes: the footer names the columns, the file begins and ends as Parquet does.
  const bytes = await readFile(file);
  expect(bytes.subarray(0, 4).toString()).toBe('PAR1');
  expect(bytes.subarray(-4).toString()).toBe('PAR1');
  for (const column of ['tools', 'messages', 'metadata']) expect(bytes.includes(column)).toBe(true);
});

test.each([
  ['{"messages": [], "tools": "[]", "metadata": "{}"}', 'messages'],
  ['{"messages": [{"role": "nobody"}], "tools": "[]", "metadata": "{}"}', 'messages.0.role'],
  ['{"messages": [{"role": "user", "content": "x"}], "tools": "[]", "metadata": "{}"}', 'metadata.instance_id'],
  ['{"messages": [{"role": "user", "content": "x"}], "tools": "{", "metadata": "{}"}', 'metadata'],
  ['nonsense', 'row'],
])('row %s is refused by file, row and field', async (line, field) => {
  const file = await path('x.jsonl');
  const good = { messages: row(0).messages, tools: '[]', metadata: JSON.stringify(row(0).metadata) };
  await writeFile(file, `${JSON.stringify(good)}\n${line}\n`);
  await expect(Array.fromAsync(readOrchardDataset(file))).rejects.toMatchObject({
    owner: 'user',
    message: expect.stringMatching(new RegExp(`x\\.jsonl: row 2: ${field.replaceAll('.', '\\.')}`)),
  });
});

test('a torn Parquet file and a missing file are named', async () => {
  const file = await path('x.parquet');
  await writeOrchardDataset(file, rows(5));
  await writeFile(file, (await readFile(file)).subarray(0, 100));
  await expect(Array.fromAsync(readOrchardDataset(file))).rejects.toMatchObject({ owner: 'user', id: file });
  await expect(Array.fromAsync(readOrchardDataset('/no/such.jsonl'))).rejects.toMatchObject({ owner: 'user' });
});

test('another ending is refused and nothing is left behind', async () => {
  const file = await path('x.csv');
  await expect(writeOrchardDataset(file, rows(1))).rejects.toMatchObject({ owner: 'user' });
  expect(existsSync(file)).toBe(false);
});
