import type { BlobRef } from '../records/common.ts';

/** Content-addressed bytes of a run. Opened once per process that writes. */
export interface Blobs extends AsyncDisposable {
  /** Stores bytes once, compressed. Resolves when they would survive a kill of this process. */
  put(bytes: Buffer): Promise<BlobRef>;
  /** @throws OrchardError when the blob is missing or its bytes do not hash to its name */
  get(sha256: string): Promise<Buffer>;
}
