import type { ServerResponse } from 'node:http';
import { MAX_UNREAD_BYTES, StreamReader, writeFrames } from '../../base/inbound/event-stream.ts';

/** A beginning that is long waits for its reader beyond this. */
const PAUSE_BYTES = 256 * 1024;

/** An open page: a response that continues until one side ends it. */
export class Viewer extends StreamReader {
  /** `now`, `tag.12`: what it looks at. */
  readonly subjects: ReadonlySet<string>;
  /** As the ids of the stream name them. */
  readonly subjectsText: string;
  /** Subjects whose beginning was put together: what is new is for it from then on. */
  readonly begun = new Set<string>();
  /** What is new while its beginning is still being written: it comes behind. */
  #held: string[] | undefined = [];
  #heldLength = 0;

  constructor(response: ServerResponse, subjects: ReadonlySet<string>, nowMs: number) {
    super(response, nowMs);
    this.subjects = subjects;
    this.subjectsText = [...subjects].join('+');
  }

  write(frames: string): void {
    if (!this.#held) {
      writeFrames(this.response, frames);
      return;
    }
    this.#held.push(frames);
    this.#heldLength += frames.length;
    if (this.#heldLength > MAX_UNREAD_BYTES) this.response.destroy();
  }

  /** Of its beginning. Resolves when there is room for more. */
  async writeInTurn(frames: string): Promise<void> {
    writeFrames(this.response, frames);
    const { response } = this;
    if (response.writableLength < PAUSE_BYTES || response.destroyed) return;
    await new Promise<void>((resolve) => {
      response.once('drain', resolve);
      response.once('close', resolve);
    });
  }

  /** Its beginning is written, and what was new meanwhile follows. */
  endBeginning(): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    writeFrames(this.response, held.join(''));
  }

  end(): void {
    this.response.end();
  }
}
