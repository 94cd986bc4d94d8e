import type { Writable } from 'node:stream';

/** Writes a chunk. Resolves when the stream has room, has failed or is closed. Leaves no listeners attached. */
export function pacedWrite(stream: Writable, piece: string | Uint8Array): Promise<void> {
  if (stream.write(piece) || stream.destroyed) return Promise.resolve();
  return new Promise((resolve) => {
    const events = ['drain', 'error', 'close'] as const;
    const done = () => {
      for (const event of events) stream.off(event, done);
      resolve();
    };
    for (const event of events) stream.on(event, done);
  });
}
