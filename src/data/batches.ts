import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { userError } from '../core/errors.ts';
import { markReady, writeJson } from '../core/folder.ts';
import { sha256 } from '../core/hash.ts';
import { type BatchManifest, STREAMS, type StreamName } from '../records/batch.ts';
import type { Sample } from '../records/sample.ts';

/** Tokens of one shard: some tens of MiB, so that memory stays bounded however many rows there are. */
const SHARD_TOKENS = 4_000_000;

/** A sample with what reinforcement learning or the value model adds to it. */
export interface BatchRow extends Sample {
  /** [T] advantage of each token. */
  advantages?: number[];
  /** [T] log-probabilities of another model, and 1 where it has given one. */
  reference?: { logprobs: number[]; mask: number[] };
  /** Target of the value model. */
  label?: number;
}

export interface BatchOptions {
  kind: BatchManifest['kind'];
  step: number;
  policyVersion: string | null;
  sampling: BatchManifest['sampling'];
  loss: BatchManifest['loss'];
  /** Beside ids, mask and weight; every row has to bring them. */
  streams?: ExtraStream[];
  shardTokens?: number;
}

type ExtraStream = Exclude<StreamName, 'ids' | 'mask' | 'weight' | 'row_offsets'>;

/** Where a row keeps a stream. */
const valuesOf: Record<ExtraStream, (row: BatchRow) => number[] | null | undefined> = {
  advantage: (row) => row.advantages,
  sampler_logprob: (row) => row.logprobs,
  reference_logprob: (row) => row.reference?.logprobs,
  reference_mask: (row) => row.reference?.mask,
  label: (row) => (row.label === undefined ? undefined : [row.label]),
};

/**
 * Writes samples as a batch folder: safetensors shards, manifest, and READY last; the folder appears whole or not at
 * all. Samples stream through, one shard in memory at a time.
 * @throws OrchardError owner `user`, code `input`, when there is nothing to train on
 */
export async function writeBatch(
  dir: string,
  samples: AsyncIterable<BatchRow> | Iterable<BatchRow>,
  options: BatchOptions,
): Promise<BatchManifest> {
  const extra = options.streams ?? [];
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
    streams: ['ids', 'mask', 'weight', ...extra],
    rows: 0,
    tokens: { total: 0, trained: 0, weight: 0 },
    shards: [],
  };
  let rows: BatchRow[] = [];
  let tokens = 0;
  const flush = async (): Promise<void> => {
    if (rows.length === 0) return;
    const name = `shard_${String(manifest.shards.length).padStart(5, '0')}.safetensors`;
    const bytes = encodeShard(rows, { tokens, extra });
    await writeFile(join(partial, name), bytes);
    manifest.shards.push({ name, sha256: sha256(bytes), rows: rows.length, tokens });
    manifest.rows += rows.length;
    manifest.tokens.total += tokens;
    rows = [];
    tokens = 0;
  };
  for await (const sample of samples) {
    check(sample, extra);
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
function check(row: BatchRow, extra: ExtraStream[]): void {
  const { id, tokens, mask, weights } = row;
  if (mask.length !== tokens.length || weights.length !== tokens.length)
    throw new RangeError(`sample ${id}: ${tokens.length} tokens, ${mask.length} masks, ${weights.length} weights`);
  if (weights.some((weight, index) => weight !== 0 && mask[index] === 0))
    throw new RangeError(`sample ${id}: a weight outside the mask`);
  for (const stream of extra) {
    const values = valuesOf[stream](row);
    const expected = stream === 'label' ? 1 : tokens.length;
    if (values?.length !== expected)
      throw new RangeError(`sample ${id}: ${values?.length ?? 'no'} values of ${stream}, expected ${expected}`);
    if (!values.every(Number.isFinite)) throw new RangeError(`sample ${id}: ${stream} is not finite everywhere`);
  }
}

const BYTES = { I32: 4, I64: 8, F32: 4, U8: 1 } as const;

/** One safetensors file (github.com/huggingface/safetensors): u64 header length, JSON header, then the tensors. */
function encodeShard(rows: BatchRow[], { tokens, extra }: { tokens: number; extra: ExtraStream[] }): Buffer {
  // Wide elements first, so that every tensor starts where its element type may.
  const names = (['row_offsets', 'ids', 'weight', 'mask', ...extra] as StreamName[]).sort(
    (a, b) => BYTES[STREAMS[b]] - BYTES[STREAMS[a]],
  );
  const lengthOf = (name: StreamName): number =>
    name === 'row_offsets' ? rows.length + 1 : name === 'label' ? rows.length : tokens;
  const header: Record<string, { dtype: string; shape: number[]; data_offsets: [number, number] }> = {};
  let end = 0;
  for (const name of names) {
    const start = end;
    end += lengthOf(name) * BYTES[STREAMS[name]];
    header[name] = { dtype: STREAMS[name], shape: [lengthOf(name)], data_offsets: [start, end] };
  }
  const json = JSON.stringify(header);
  const text = Buffer.from(json.padEnd(Math.ceil(json.length / 8) * 8, ' '));
  const start = 8 + text.length;
  const bytes = Buffer.from(new ArrayBuffer(start + end));
  bytes.writeBigUInt64LE(BigInt(text.length), 0);
  text.copy(bytes, 8);
  for (const name of names) {
    const [from] = header[name]!.data_offsets;
    const tensor = new ARRAYS[STREAMS[name]](bytes.buffer, start + from, lengthOf(name));
    let at = 0;
    if (tensor instanceof BigInt64Array) {
      for (const row of rows) {
        tensor[at + 1] = tensor[at]! + BigInt(row.tokens.length);
        at++;
      }
      continue;
    }
    for (const row of rows) {
      const values = streamOf(row, name);
      tensor.set(values, at);
      at += values.length;
    }
  }
  return bytes;
}

/** The machines that this runs on are little-endian, as the format is. */
const ARRAYS = { I32: Int32Array, I64: BigInt64Array, F32: Float32Array, U8: Uint8Array };

function streamOf(row: BatchRow, name: StreamName): number[] {
  if (name === 'ids') return row.tokens;
  if (name === 'mask') return row.mask;
  return name === 'weight' ? row.weights : valuesOf[name as ExtraStream](row)!;
}
