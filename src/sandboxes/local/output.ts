/** Gathers output of any length in bounded memory: the first half of the limit and the last half. */
export interface Capped {
  add(chunk: Buffer): void;
  /** What is kept, with a line in between that says how much is missing. */
  end(): { output: Buffer; droppedBytes: number };
}

export function capped(maxBytes: number): Capped {
  const headLimit = Math.ceil(maxBytes / 2);
  const tailLimit = maxBytes - headLimit;
  const head: Buffer[] = [];
  let headBytes = 0;
  let tail: Buffer[] = [];
  let tailBytes = 0;
  let total = 0;
  return {
    add(chunk) {
      total += chunk.length;
      const room = headLimit - headBytes;
      if (room > 0) {
        head.push(chunk.subarray(0, room));
        headBytes += Math.min(room, chunk.length);
      }
      if (chunk.length <= room) return;
      tail.push(chunk.subarray(Math.max(0, room)));
      tailBytes += chunk.length - Math.max(0, room);
      // Trimmed now and then, not for each chunk.
      if (tailBytes > 2 * tailLimit + 65_536) {
        tail = [lastBytes(Buffer.concat(tail), tailLimit)];
        tailBytes = tail[0]!.length;
      }
    },
    end() {
      const last = lastBytes(Buffer.concat(tail), tailLimit);
      const droppedBytes = total - headBytes - last.length;
      const notice = droppedBytes > 0 ? [Buffer.from(`\n… ${droppedBytes} bytes left out …\n`)] : [];
      return { output: Buffer.concat([...head, ...notice, last]), droppedBytes };
    },
  };
}

/** A copy, so that what it was cut from can be freed. */
const lastBytes = (bytes: Buffer, count: number): Buffer =>
  Buffer.from(count === 0 ? Buffer.alloc(0) : bytes.subarray(-count));
