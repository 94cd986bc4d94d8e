import type { IncomingMessage } from 'node:http';

/** What came of reading a body: all of it, too much, no memory for it now, or the sender left. */
export type BodyOutcome = Uint8Array | 'too-large' | 'no-room' | 'aborted';

/** The bytes of a body that a request promises; `undefined` where only its end will tell (chunks). */
export function promisedBytes(request: IncomingMessage): number | undefined {
  if (request.headers['transfer-encoding'] !== undefined) return undefined;
  // Neither header: there is no body (RFC 9112 section 6.3).
  return Number(request.headers['content-length'] ?? 0);
}

/**
 * Reads a body of at most `mostBytes`, counting what it holds by `hold` (negative when it lets go; `false`: there is no room for
 * it). How long it may take is the
 * server's `requestTimeout`, which destroys the socket.
 */
export function readBody(
  request: IncomingMessage,
  mostBytes: number,
  hold: (bytes: number) => boolean,
): Promise<BodyOutcome> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const finish = (outcome: BodyOutcome) => {
      request.off('data', onData).off('end', onEnd).off('close', onClose).off('error', onClose);
      // Whoever still sends after this must not meet an unhandled error.
      request.on('error', () => {});
      hold(-size);
      resolve(outcome);
    };
    const onData = (chunk: Buffer) => {
      size += chunk.length;
      const hasRoom = hold(chunk.length);
      if (size > mostBytes) finish('too-large');
      else if (!hasRoom) finish('no-room');
      else chunks.push(chunk);
    };
    const onEnd = () => finish(new Uint8Array(Buffer.concat(chunks, size)));
    const onClose = () => finish('aborted');
    request.on('data', onData).on('end', onEnd).on('close', onClose).on('error', onClose);
  });
}
