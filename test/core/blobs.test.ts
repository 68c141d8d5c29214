import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { openBlobs, openBlobsReader } from '../../src/core/blobs.ts';

const folder = (): Promise<string> => mkdtemp(join(tmpdir(), 'orchard-blobs-'));

const packOf = async (dir: string): Promise<string> =>
  join(
    dir,
    (await readdir(dir))
      .filter((name) => name.endsWith('.pack'))
      .sort()
      .at(-1)!,
  );

test('bytes come back as they were, in this process and in a later one', async () => {
  const dir = await folder();
  const values = [Buffer.alloc(0), Buffer.from('ä\r\n\0'), randomBytes(300_000)];
  const refs = [];
  {
    await using blobs = await openBlobs(dir);
    for (const value of values) refs.push(await blobs.put(value));
    for (const [index, { sha256 }] of refs.entries()) expect(await blobs.get(sha256)).toEqual(values[index]);
  }
  await using reader = await openBlobsReader(dir);
  for (const [index, { sha256 }] of refs.entries()) expect(await reader.get(sha256)).toEqual(values[index]);
});

test('the same bytes are stored once, also by a later process', async () => {
  const dir = await folder();
  const value = randomBytes(50_000);
  {
    await using blobs = await openBlobs(dir);
    await Promise.all([blobs.put(value), blobs.put(value), blobs.put(value)]);
  }
  {
    await using blobs = await openBlobs(dir);
    await blobs.put(value);
  }
  const sizes = await Promise.all((await readdir(dir)).map(async (name) => (await stat(join(dir, name))).size));
  expect(sizes.reduce((sum, size) => sum + size)).toBeLessThan(51_000);
});

test('requests that repeat their predecessor take space linear in the turns', async () => {
  const dir = await folder();
  let history = Buffer.from('{"messages":[');
  let like: { sha256: string; bytes: Buffer } | undefined;
  const stored: { sha256: string; bytes: Buffer }[] = [];
  {
    await using blobs = await openBlobs(dir);
    for (let turn = 0; turn < 100; turn++) {
      history = Buffer.concat([history, Buffer.from(`{"content":"${randomBytes(1500).toString('base64')}"},`)]);
      const bytes = Buffer.concat([history, Buffer.from(`],"tools":["${'tool '.repeat(500)}"]}`)]);
      like = { ...(await blobs.put(bytes, like)), bytes };
      stored.push(like);
    }
  }
  const { size } = await stat(await packOf(dir));
  const whole = stored.at(-1)!.bytes.length;
  expect(size).toBeLessThan(6 * whole); // one whole request in seventeen; storing each would take 50 times as much
  await using reader = await openBlobsReader(dir);
  for (const { sha256, bytes } of stored) expect((await reader.get(sha256)).equals(bytes)).toBe(true);
});

test('a record torn by a kill ends its pack and harms nothing before it', async () => {
  const dir = await folder();
  const [first, second] = [randomBytes(1000), randomBytes(1000)];
  let kept = '';
  let torn = '';
  {
    await using blobs = await openBlobs(dir);
    kept = (await blobs.put(first)).sha256;
    torn = (await blobs.put(second)).sha256;
  }
  const pack = await packOf(dir);
  await truncate(pack, (await stat(pack)).size - 10);
  await using blobs = await openBlobs(dir);
  expect(await blobs.get(kept)).toEqual(first);
  await expect(blobs.get(torn)).rejects.toMatchObject({ code: 'blob_broken' });
  await blobs.put(second);
  expect(await blobs.get(torn)).toEqual(second);
});

test('bytes that were changed on disk are noticed', async () => {
  const dir = await folder();
  let sha256 = '';
  {
    await using blobs = await openBlobs(dir);
    sha256 = (await blobs.put(randomBytes(1000))).sha256;
  }
  const pack = await packOf(dir);
  const bytes = await readFile(pack);
  bytes[500] = bytes[500]! ^ 1;
  await writeFile(pack, bytes);
  await using reader = await openBlobsReader(dir);
  await expect(reader.get(sha256)).rejects.toMatchObject({ code: 'blob_broken' });
});
