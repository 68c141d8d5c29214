import { appendFile, mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { openIndexed, openJsonl, readJsonl } from '../../src/core/jsonl.ts';

const file = async (): Promise<string> => join(await mkdtemp(join(tmpdir(), 'orchard-jsonl-')), 'a.jsonl');

const all = async (path: string, schema?: z.ZodType): Promise<unknown[]> => Array.fromAsync(readJsonl(path, schema));

test('what was appended is read back in order, however many appends overlap', async () => {
  const path = await file();
  {
    await using writer = await openJsonl(path);
    await Promise.all(
      Array.from({ length: 500 }, (_, index) => writer.append({ index, text: 'ä\n"'.repeat(index % 7) })),
    );
  }
  expect((await all(path)).map((each) => (each as { index: number }).index)).toEqual(
    Array.from({ length: 500 }, (_, index) => index),
  );
});

test('a line torn by a kill is passed over when reading and cut off before writing on', async () => {
  const path = await file();
  await writeFile(path, '{"a":1}\n{"a":2}\n{"a":');
  expect(await all(path)).toEqual([{ a: 1 }, { a: 2 }]);
  {
    await using writer = await openJsonl(path);
    await writer.append({ a: 3 });
  }
  expect(await readFile(path, 'utf8')).toBe('{"a":1}\n{"a":2}\n{"a":3}\n');
});

test('a file that is nothing but a torn line starts afresh', async () => {
  const path = await file();
  await writeFile(path, 'x'.repeat(200_000));
  {
    await using writer = await openJsonl(path);
    await writer.append({ a: 1 });
  }
  expect(await all(path)).toEqual([{ a: 1 }]);
});

test('a broken line in the middle is an error that names file and line', async () => {
  const path = await file();
  await writeFile(path, '{"a":1}\nnot json\n{"a":2}\n');
  await expect(all(path)).rejects.toMatchObject({ code: 'broken_line', id: `${path}:2` });
  await writeFile(path, '{"a":1}\n{"a":"x"}\n');
  await expect(all(path, z.object({ a: z.number() }))).rejects.toThrow(/:2: a: /);
});

test('records are found by a field without reading the others', async () => {
  const path = await file();
  {
    await using writer = await openJsonl(path);
    for (let index = 0; index < 100; index++)
      await writer.append({ session: `s${index % 10}`, index, filler: 'ö'.repeat(index * 10) });
  }
  await appendFile(path, '{"session":"s3","torn');
  await using index = await openIndexed(path, { key: 'session', schema: z.looseObject({ index: z.number() }) });
  expect((await index.get('s3')).map((each) => each.index)).toEqual([3, 13, 23, 33, 43, 53, 63, 73, 83, 93]);
  expect(await index.get('nobody')).toEqual([]);
});
