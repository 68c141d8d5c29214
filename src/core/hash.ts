import { createHash } from 'node:crypto';

export const sha256 = (bytes: string | Buffer): string => createHash('sha256').update(bytes).digest('hex');

/** A number in [0, 1) that depends on the words alone: seeds what must come out the same after a resume. */
export function unitHash(...words: (string | number)[]): number {
  return createHash('sha256').update(words.join('\0')).digest().readUInt32BE(0) / 2 ** 32;
}
