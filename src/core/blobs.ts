import { createHash, randomBytes } from 'node:crypto';
import { type FileHandle, mkdir, open, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { constants, zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import type { BlobRef } from '../records/common.ts';
import { OrchardError } from './errors.ts';

/** Content-addressed bytes of a run, read side. */
export interface BlobReader extends AsyncDisposable {
  /** @throws OrchardError when the blob is missing or its bytes do not hash to its name */
  get(sha256: string): Promise<Buffer>;
}

/** Content-addressed bytes of a run. Opened once per process that writes. */
export interface Blobs extends BlobReader {
  /**
   * Stores bytes once, compressed. Resolves when they are with the kernel and survive a kill of this process.
   * `like` names stored bytes that these mostly repeat, as an agent's request repeats the one before: it is the
   * dictionary of their compression, so that an episode takes space linear in its turns.
   */
  put(bytes: Buffer, like?: { sha256: string; bytes: Buffer }): Promise<BlobRef>;
}

/**
 * A pack is a sequence of records: 32 bytes sha256, u32 stored length, u32 raw length, u8 chain, for chain > 0 the 32
 * bytes sha256 of the dictionary, then the stored bytes, zstd.
 */
const HEAD = 41;
const NAME = 32;
/** Longest way from a record to one that stands alone: reading stays cheap. */
const MAX_CHAIN = 16;

interface Place {
  pack: FileHandle;
  /** Where the stored bytes start. */
  offset: number;
  stored: number;
  raw: number;
  chain: number;
  /** Its dictionary. */
  base: string | null;
}

export async function openBlobsReader(dir: string): Promise<BlobReader> {
  const { places, packs } = await scan(dir);
  return {
    get: (sha256) => read(places, sha256),
    async [Symbol.asyncDispose]() {
      for (const pack of packs) await pack.close();
    },
  };
}

export async function openBlobs(dir: string): Promise<Blobs> {
  await mkdir(dir, { recursive: true });
  const { places, packs } = await scan(dir);
  // A pack of its own for each writer: a torn end belongs to a dead process and is never written behind.
  const own = await open(join(dir, `${Date.now()}-${process.pid}-${randomBytes(3).toString('hex')}.pack`), 'ax+');
  packs.push(own);
  let end = 0;
  let waiting: Buffer[] = [];
  let writing: Promise<void> | null = null;
  let last: Promise<void> = Promise.resolve();
  const pending = new Map<string, Promise<void>>();
  const drain = async (): Promise<void> => {
    await Promise.resolve();
    const chunks = waiting;
    waiting = [];
    writing = null;
    await own.appendFile(Buffer.concat(chunks));
  };
  return {
    async put(bytes, like) {
      const sha256 = createHash('sha256').update(bytes).digest('hex');
      const ref = { sha256, bytes: bytes.length };
      if (places.has(sha256)) {
        await pending.get(sha256);
        return ref;
      }
      const { head, stored, chain, base } = encode(
        sha256,
        bytes,
        like && { ...like, chain: places.get(like.sha256)?.chain },
      );
      places.set(sha256, {
        pack: own,
        offset: end + head.length,
        stored: stored.length,
        raw: bytes.length,
        chain,
        base,
      });
      end += head.length + stored.length;
      waiting.push(head, stored);
      if (writing === null) {
        writing = last.then(drain);
        last = writing;
      }
      pending.set(sha256, writing);
      try {
        await writing;
      } catch (error) {
        places.delete(sha256); // it is not there: who stores it again must not be told that it is
        throw error;
      } finally {
        pending.delete(sha256);
      }
      return ref;
    },
    async get(sha256) {
      await last;
      return read(places, sha256);
    },
    async [Symbol.asyncDispose]() {
      await last.catch(() => {}); // whoever stored was told
      for (const pack of packs) await pack.close();
    },
  };
}

interface Encoded {
  head: Buffer;
  stored: Buffer;
  chain: number;
  base: Place['base'];
}

function encode(
  sha256: string,
  bytes: Buffer,
  like: { sha256: string; bytes: Buffer; chain: number | undefined } | undefined,
): Encoded {
  const base = like?.chain !== undefined && like.chain < MAX_CHAIN ? like : null;
  const chain = base === null ? 0 : like!.chain! + 1;
  const stored = zstdCompressSync(bytes, {
    ...(base ? { dictionary: base.bytes } : {}),
    // The default window reaches back 2 MiB; a longer dictionary would go unseen.
    ...(bytes.length > 2 ** 20 ? { params: { [constants.ZSTD_c_windowLog]: 27 } } : {}),
  });
  const head = Buffer.alloc(base ? HEAD + NAME : HEAD);
  head.write(sha256, 0, 'hex');
  head.writeUInt32LE(stored.length, 32);
  head.writeUInt32LE(bytes.length, 36);
  head.writeUInt8(chain, 40);
  if (base) head.write(base.sha256, HEAD, 'hex');
  return { head, stored, chain, base: base?.sha256 ?? null };
}

/** Where everything is; a record that its writer did not finish ends its pack. */
async function scan(dir: string): Promise<{ places: Map<string, Place>; packs: FileHandle[] }> {
  const places = new Map<string, Place>();
  const packs: FileHandle[] = [];
  const names = await readdir(dir).catch(() => [] as string[]);
  for (const name of names.filter((each) => each.endsWith('.pack')).sort()) {
    const pack = await open(join(dir, name), 'r');
    packs.push(pack);
    const { size } = await pack.stat();
    const head = Buffer.alloc(HEAD + NAME);
    for (let at = 0; at + HEAD <= size; ) {
      await pack.read(head, 0, head.length, at);
      const stored = head.readUInt32LE(32);
      const chain = head.readUInt8(40);
      const offset = at + HEAD + (chain > 0 ? NAME : 0);
      if (offset + stored > size) break;
      const base = chain > 0 ? head.toString('hex', HEAD, HEAD + NAME) : null;
      places.set(head.toString('hex', 0, 32), { pack, offset, stored, raw: head.readUInt32LE(36), chain, base });
      at = offset + stored;
    }
  }
  return { places, packs };
}

async function read(places: Map<string, Place>, sha256: string): Promise<Buffer> {
  const place = places.get(sha256);
  const broken = (cause: string): OrchardError =>
    new OrchardError({
      owner: 'user',
      code: 'blob_broken',
      id: sha256,
      cause,
      wayOut: 'the run folder was changed by something else: restore blobs/ from a copy',
    });
  if (!place) throw broken(`blob ${sha256} is missing`);
  const stored = Buffer.alloc(place.stored);
  await place.pack.read(stored, 0, place.stored, place.offset);
  const dictionary = place.base === null ? undefined : await read(places, place.base);
  let bytes: Buffer;
  try {
    bytes = zstdDecompressSync(stored, {
      maxOutputLength: Math.max(1, place.raw),
      ...(dictionary ? { dictionary } : {}),
    });
  } catch (error) {
    throw broken(`blob ${sha256} cannot be decompressed: ${(error as Error).message}`);
  }
  if (createHash('sha256').update(bytes).digest('hex') !== sha256)
    throw broken(`blob ${sha256} does not hash to its name`);
  return bytes;
}
