import type { Readable } from 'node:stream';
import type { Clock } from '../base/clock.ts';

/** What is thrown away is read at some 3 MB a second, which slows no command that has anything to do. */
const REST_MS = 20;
const REST_AFTER_BYTES = 64 * 1024;
const END_BYTES = 600;

/**
 * The beginning of what a command writes, for the log. The rest is read and thrown away, since a command that writes into a full
 * pipe would hang, but slowly: a flood read as fast as it comes fills the memory with what nobody wants.
 */
export class BoundedOutput {
  readonly #maxBytes: number;
  readonly #chunks: Buffer[] = [];
  /** The last of it. */
  #end = Buffer.alloc(0);
  #kept = 0;
  #total = 0;
  #restedAt = 0;

  constructor(stream: Readable, maxBytes: number, clock: Pick<Clock, 'after'>) {
    this.#maxBytes = maxBytes;
    stream.on('data', (chunk: Buffer) => {
      this.#take(chunk);
      if (this.#total <= maxBytes || this.#total - this.#restedAt < REST_AFTER_BYTES) return;
      this.#restedAt = this.#total;
      stream.pause();
      clock.after(REST_MS, () => stream.resume());
    });
    stream.on('error', () => {});
  }

  /** Valid text, cut where the bound was. */
  text(): string {
    const text = Buffer.concat(this.#chunks).toString('utf8').trimEnd();
    return this.#total > this.#kept ? `${text} … (${this.#total - this.#kept} bytes more)` : text;
  }

  /** How it ended. */
  endText(): string {
    return this.#end.toString('utf8').trimEnd();
  }

  #take(chunk: Buffer): void {
    this.#total += chunk.length;
    this.#end = Buffer.concat([this.#end, chunk.subarray(-END_BYTES)]).subarray(-END_BYTES);
    const part = chunk.subarray(0, this.#maxBytes - this.#kept);
    if (part.length === 0) return;
    // A copy: the slice would hold the whole chunk in memory.
    this.#chunks.push(Buffer.from(part));
    this.#kept += part.length;
  }
}
