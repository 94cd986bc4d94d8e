import type { Readable } from 'node:stream';

/**
 * The beginning of what a command writes, for the log. The rest is read and thrown away: a command that writes into a full
 * pipe would hang.
 */
export class BoundedOutput {
  readonly #mostBytes: number;
  readonly #chunks: Buffer[] = [];
  #kept = 0;
  #total = 0;

  constructor(stream: Readable, mostBytes: number) {
    this.#mostBytes = mostBytes;
    stream.on('data', (chunk: Buffer) => this.#take(chunk));
    stream.on('error', () => {});
  }

  /** Valid text, cut where the bound was. */
  text(): string {
    const text = Buffer.concat(this.#chunks).toString('utf8').trimEnd();
    return this.#total > this.#kept ? `${text} … (${this.#total - this.#kept} bytes more)` : text;
  }

  #take(chunk: Buffer): void {
    this.#total += chunk.length;
    const part = chunk.subarray(0, this.#mostBytes - this.#kept);
    if (part.length === 0) return;
    // A copy: the slice would hold the whole chunk in memory.
    this.#chunks.push(Buffer.from(part));
    this.#kept += part.length;
  }
}
