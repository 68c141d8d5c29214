import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { userError } from '../core/errors.ts';
import { markReady, writeJson } from '../core/folder.ts';
import { sha256 } from '../core/hash.ts';
import { type BatchManifest, STREAMS, type StreamName } from '../records/batch.ts';
import type { Sample } from '../records/sample.ts';

/** Tokens of one shard: some tens of MiB, so that memory stays bounded however many rows there are. */
const SHARD_TOKENS = 4_000_000;

export interface BatchOptions {
  kind: BatchManifest['kind'];
  step: number;
  policyVersion: string | null;
  sampling: BatchManifest['sampling'];
  loss: BatchManifest['loss'];
  shardTokens?: number;
}

/**
 * Writes samples as a batch folder: safetensors shards, manifest, and READY last; the folder appears whole or not at
 * all. Samples stream through, one shard in memory at a time.
 * @throws OrchardError owner `user`, code `input`, when there is nothing to train on
 */
export async function writeBatch(
  dir: string,
  samples: AsyncIterable<Sample> | Iterable<Sample>,
  options: BatchOptions,
): Promise<BatchManifest> {
  const partial = `${dir}.partial`;
  await rm(partial, { recursive: true, force: true });
  await mkdir(partial, { recursive: true });
  const manifest: BatchManifest = {
    v: 'orchard.batch/1',
    kind: options.kind,
    step: options.step,
    policy_version: options.policyVersion,
    sampling: options.sampling,
    loss: options.loss,
    streams: ['ids', 'mask', 'weight'],
    rows: 0,
    tokens: { total: 0, trained: 0, weight: 0 },
    shards: [],
  };
  let rows: Sample[] = [];
  let tokens = 0;
  const flush = async (): Promise<void> => {
    if (rows.length === 0) return;
    const name = `shard_${String(manifest.shards.length).padStart(5, '0')}.safetensors`;
    const bytes = encodeShard(rows, tokens);
    await writeFile(join(partial, name), bytes);
    manifest.shards.push({ name, sha256: sha256(bytes), rows: rows.length, tokens });
    manifest.rows += rows.length;
    manifest.tokens.total += tokens;
    rows = [];
    tokens = 0;
  };
  for await (const sample of samples) {
    check(sample);
    rows.push(sample);
    tokens += sample.tokens.length;
    for (const weight of sample.weights) {
      if (weight === 0) continue;
      manifest.tokens.trained++;
      manifest.tokens.weight += weight;
    }
    if (tokens >= (options.shardTokens ?? SHARD_TOKENS)) await flush();
  }
  await flush();
  if (manifest.tokens.trained === 0)
    throw userError(
      dir,
      'there is not one token to train on',
      'see selection.jsonl beside it for why each attempt was left out',
    );
  await writeJson(join(partial, 'manifest.json'), manifest);
  await markReady(partial);
  await rm(dir, { recursive: true, force: true });
  await rename(partial, dir);
  return manifest;
}

/** @throws RangeError when the arrays of a sample do not fit together: better no batch than a wrong one */
function check({ id, tokens, mask, weights }: Sample): void {
  if (mask.length !== tokens.length || weights.length !== tokens.length)
    throw new RangeError(`sample ${id}: ${tokens.length} tokens, ${mask.length} masks, ${weights.length} weights`);
  if (weights.some((weight, index) => weight !== 0 && mask[index] === 0))
    throw new RangeError(`sample ${id}: a weight outside the mask`);
}

const BYTES = { I32: 4, I64: 8, F32: 4, U8: 1 } as const;

/** One safetensors file (github.com/huggingface/safetensors): u64 header length, JSON header, then the tensors. */
function encodeShard(rows: Sample[], tokens: number): Buffer {
  const lengths: [StreamName, number][] = [
    ['row_offsets', rows.length + 1],
    ['ids', tokens],
    ['weight', tokens],
    ['mask', tokens],
  ];
  const header: Record<string, { dtype: string; shape: number[]; data_offsets: [number, number] }> = {};
  let end = 0;
  for (const [name, length] of lengths) {
    const start = end;
    end += length * BYTES[STREAMS[name]];
    header[name] = { dtype: STREAMS[name], shape: [length], data_offsets: [start, end] };
  }
  const json = JSON.stringify(header);
  // Padded so that every tensor starts where its element type may.
  const text = Buffer.from(json.padEnd(Math.ceil(json.length / 8) * 8, ' '));
  const bytes = Buffer.alloc(8 + text.length + end);
  bytes.writeBigUInt64LE(BigInt(text.length), 0);
  text.copy(bytes, 8);
  const view = new DataView(bytes.buffer, bytes.byteOffset + 8 + text.length);
  const at = Object.fromEntries(lengths.map(([name]) => [name, header[name]!.data_offsets[0]])) as Record<
    string,
    number
  >;
  let row = 0;
  let token = 0;
  view.setBigInt64(at.row_offsets!, 0n, true);
  for (const { tokens: ids, mask, weights } of rows) {
    for (let index = 0; index < ids.length; index++, token++) {
      view.setInt32(at.ids! + 4 * token, ids[index]!, true);
      view.setFloat32(at.weight! + 4 * token, weights[index]!, true);
      view.setUint8(at.mask! + token, mask[index]!);
    }
    view.setBigInt64(at.row_offsets! + 8 * ++row, BigInt(token), true);
  }
  return bytes;
}
