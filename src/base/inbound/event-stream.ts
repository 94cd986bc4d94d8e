import type { ServerResponse } from 'node:http';

/** Who does not read so much meanwhile is ended, and comes again where it stopped. */
export const MAX_UNREAD_BYTES = 4 * 1024 * 1024;

/** One server-sent event as it goes over the wire. JSON has no line feeds of its own. */
export function eventFrame(name: string, data: unknown): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** One open stream, and how far its reader is. */
export class StreamReader {
  readonly response: ServerResponse;
  /** Monotonic time at which bytes were last read or nothing was unread, as of the last `noteProgress`. */
  lastReadMs: number;
  #readBytes = 0;

  constructor(response: ServerResponse, nowMs: number) {
    this.response = response;
    this.lastReadMs = nowMs;
  }

  /** Updates `lastReadMs`, as far as the socket shows: the kernel buffers the first bytes that nobody reads. */
  noteProgress(nowMs: number): void {
    const { socket, writableLength } = this.response;
    const readBytes = (socket?.bytesWritten ?? 0) - writableLength;
    if (writableLength === 0 || readBytes > this.#readBytes) this.lastReadMs = nowMs;
    this.#readBytes = readBytes;
  }

  /** Closes the connection without waiting for a reader. */
  evict(): void {
    this.response.destroy();
  }
}

/** Returns the reader that has read nothing for longest; the oldest one if all of them read. */
export function idlestOf<Reader extends StreamReader>(readers: Iterable<Reader>, nowMs: number): Reader | undefined {
  let idlest: Reader | undefined;
  for (const reader of readers) {
    reader.noteProgress(nowMs);
    if (!idlest || reader.lastReadMs < idlest.lastReadMs) idlest = reader;
  }
  return idlest;
}

/** Writes events to one who reads them; ends the connection of one who does not. */
export function writeFrames(response: ServerResponse, frames: string): void {
  if (response.writableEnded || response.destroyed || frames === '') return;
  response.write(frames);
  if (response.writableLength > MAX_UNREAD_BYTES) response.destroy();
}
