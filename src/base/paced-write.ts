import type { Writable } from 'node:stream';

/** Writes a piece. Resolves once the stream has room for more, failed or closed; no listener stays behind. */
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
