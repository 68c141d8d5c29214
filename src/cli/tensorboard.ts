import { join } from 'node:path';
import { writeWhole } from '../core/folder.ts';
import type { RlStep } from '../records/step.ts';

/**
 * Writes every number of the steps as scalars in TensorBoard's own format (TFRecord frames of Event messages). Always
 * the same file, replaced whole: a curve is never there twice.
 */
export async function writeTensorboard(dir: string, steps: RlStep[]): Promise<string> {
  const file = join(dir, 'events.out.tfevents.0.orchard');
  const begun = (steps[0]?.endedAt ?? 0) / 1000;
  const events = [
    message([double(1, begun), bytes(3, Buffer.from('brain.Event:2'))]),
    ...steps.map((step) =>
      message([double(1, step.endedAt / 1000), varint(2, step.step), bytes(5, summary(numbersOf(step)))]),
    ),
  ];
  await writeWhole(file, Buffer.concat(events.map(frame)));
  return file;
}

/** Every number in a step by its path. */
function numbersOf(value: unknown, path = 'rl'): [string, number][] {
  if (typeof value === 'number') return path === 'rl/endedAt' || path === 'rl/step' ? [] : [[path, value]];
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, below]) => numbersOf(below, `${path}/${key}`));
}

const summary = (scalars: [string, number][]): Buffer =>
  message(scalars.map(([tag, value]) => bytes(1, message([bytes(1, Buffer.from(tag)), float(2, value)]))));

/** Protocol buffers: field number and wire type, then the value. */
const message = (fields: Buffer[]): Buffer => Buffer.concat(fields);

const key = (field: number, wire: number): Buffer => encodeVarint((field << 3) | wire);

function encodeVarint(value: number): Buffer {
  const parts: number[] = [];
  let rest = value;
  do {
    parts.push((rest % 128) + (rest >= 128 ? 128 : 0));
    rest = Math.floor(rest / 128);
  } while (rest > 0);
  return Buffer.from(parts);
}

const varint = (field: number, value: number): Buffer => Buffer.concat([key(field, 0), encodeVarint(value)]);

function double(field: number, value: number): Buffer {
  const out = Buffer.alloc(8);
  out.writeDoubleLE(value);
  return Buffer.concat([key(field, 1), out]);
}

function float(field: number, value: number): Buffer {
  const out = Buffer.alloc(4);
  out.writeFloatLE(value);
  return Buffer.concat([key(field, 5), out]);
}

const bytes = (field: number, value: Buffer): Buffer =>
  Buffer.concat([key(field, 2), encodeVarint(value.length), value]);

/** Length, its checksum, data, its checksum. */
function frame(data: Buffer): Buffer {
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(data.length));
  return Buffer.concat([length, checksum(length), data, checksum(data)]);
}

/** CRC-32C (Castagnoli), by its reversed polynomial. */
const TABLE = Uint32Array.from({ length: 256 }, (_, index) => {
  let value = index;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0x82f63b78 : value >>> 1;
  return value;
});

/** Masked as TFRecord wants it, so that checksums of checksums stay sound. */
function checksum(data: Buffer): Buffer {
  let crc = 0xffffffff;
  for (const byte of data) crc = TABLE[(crc ^ byte) & 0xff]! ^ (crc >>> 8);
  crc = (crc ^ 0xffffffff) >>> 0;
  const out = Buffer.alloc(4);
  out.writeUInt32LE((((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0);
  return out;
}
