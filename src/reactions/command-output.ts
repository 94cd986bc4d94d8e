import type { Readable } from 'node:stream';
import type { Clock } from '../base/clock.ts';

/**
 * Pause after every 64 KiB of discarded output. Limits the rate to about 3 MB/s, which is sufficient for typical
 * commands.
 */
const PAUSE_MS = 20;
const PAUSE_AFTER_BYTES = 64 * 1024;
const END_BYTES = 600;

/**
 * Stores the beginning and end of a command's output. The rest is read and discarded, because a command would block on
 * a full pipe. It is read slowly, because reading excessive output at full speed would exhaust the memory.
 */
export class BoundedOutput {
  readonly #maxBytes: number;
  readonly #chunks: Buffer[] = [];
  #end = Buffer.alloc(0);
  #kept = 0;
  #total = 0;
  #pausedAt = 0;

  constructor(stream: Readable, maxBytes: number, clock: Pick<Clock, 'after'>) {
    this.#maxBytes = maxBytes;
    stream.on('data', (chunk: Buffer) => {
      this.#add(chunk);
      if (this.#total <= maxBytes || this.#total - this.#pausedAt < PAUSE_AFTER_BYTES) return;
      this.#pausedAt = this.#total;
      stream.pause();
      clock.after(PAUSE_MS, () => stream.resume());
    });
    stream.on('error', () => {});
  }

  /** Returns the beginning of the output, up to the limit. */
  text(): string {
    const text = Buffer.concat(this.#chunks).toString('utf8').trimEnd();
    return this.#total > this.#kept ? `${text} … (${this.#total - this.#kept} bytes more)` : text;
  }

  endText(): string {
    return this.#end.toString('utf8').trimEnd();
  }

  #add(chunk: Buffer): void {
    this.#total += chunk.length;
    this.#end = Buffer.concat([this.#end, chunk.subarray(-END_BYTES)]).subarray(-END_BYTES);
    const part = chunk.subarray(0, this.#maxBytes - this.#kept);
    if (part.length === 0) return;
    // Copy the bytes, because a slice would retain the whole chunk in memory.
    this.#chunks.push(Buffer.from(part));
    this.#kept += part.length;
  }
}

const MAX_OUTPUTS = 200;

export interface CommandOutput {
  reaction: string;
  /** Returns the end of the output. */
  text: string;
}

/** Stores the outputs of the latest commands for the page, up to about 300 kB. Not persisted. */
export class RecentOutputs {
  readonly #outputs: (CommandOutput & { event: number })[] = [];

  /** `event`: ID of the event in the inbox. */
  add(event: number, reaction: string, text: string): void {
    if (text === '') return;
    this.#outputs.push({ event, reaction, text });
    if (this.#outputs.length > MAX_OUTPUTS) this.#outputs.shift();
  }

  of(event: number): CommandOutput[] {
    return this.#outputs.filter((output) => output.event === event).map(({ reaction, text }) => ({ reaction, text }));
  }
}
