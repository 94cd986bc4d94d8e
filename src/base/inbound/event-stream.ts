import type { ServerResponse } from 'node:http';

/** Maximum unread data per viewer, in bytes. A slower viewer is disconnected, then reconnects and resumes. */
export const MAX_UNREAD_BYTES = 4 * 1024 * 1024;

/** Formats one server-sent event. JSON contains no line feeds. */
export function eventFrame(name: string, data: unknown): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** Tracks the reading progress of one open stream. */
export class StreamReader {
  readonly response: ServerResponse;
  /** Monotonic time of the latest `noteProgress` call at which bytes had been read or no data was unread. */
  lastReadMs: number;
  #readBytes = 0;

  constructor(response: ServerResponse, nowMs: number) {
    this.response = response;
    this.lastReadMs = nowMs;
  }

  /** Updates `lastReadMs`. The precision is limited, because the kernel buffers the first unread bytes. */
  noteProgress(nowMs: number): void {
    const { socket, writableLength } = this.response;
    const readBytes = (socket?.bytesWritten ?? 0) - writableLength;
    if (writableLength === 0 || readBytes > this.#readBytes) this.lastReadMs = nowMs;
    this.#readBytes = readBytes;
  }

  /** Closes the connection without sending pending data. */
  evict(): void {
    this.response.destroy();
  }
}

/** Returns the reader that has been idle longest, or the oldest one if none is idle. */
export function idlestOf<Reader extends StreamReader>(readers: Iterable<Reader>, nowMs: number): Reader | undefined {
  let idlest: Reader | undefined;
  for (const reader of readers) {
    reader.noteProgress(nowMs);
    if (!idlest || reader.lastReadMs < idlest.lastReadMs) idlest = reader;
  }
  return idlest;
}

/** Writes events, and closes the connection if too much data is unread. */
export function writeFrames(response: ServerResponse, frames: string): void {
  if (response.writableEnded || response.destroyed || frames === '') return;
  response.write(frames);
  if (response.writableLength > MAX_UNREAD_BYTES) response.destroy();
}
