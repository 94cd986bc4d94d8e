/**
 * Processes a stream of lines from a connection or program. Lines are counted and committed as they arrive, with a
 * limited number of concurrent commits. Committed values remain stored even if the stream ends with a broken
 * connection, a store error or a shutdown.
 *
 * Memory use: one incomplete line and the values of pending commits. Both count towards the reservation. Chunks are not
 * referenced by objects that live as long as the stream.
 */

import { BodyError } from '../../base/inbound/body.ts';
import { CollectedBytes } from '../../base/inbound/collected-bytes.ts';
import type { Reservation } from '../../base/inbound/memory-budget.ts';
import { releaseMemory } from '../../base/release-memory.ts';
import type { Draft } from '../intake/draft.ts';
import { ProblemList } from '../intake/problem-list.ts';

/** docs/interface.md, "Pushing values in". */
const MAX_LINE_BYTES = 1024 * 1024;
const MAX_PENDING_COMMITS = 64;
const BYTES_OF_VALUE = 21;
const FEED = 10;

/** Reads whole lines or a whole body into a draft. Throws `UnreadableValues`. */
export type ReadBody = (bytes: Buffer, draft: Draft) => void;

/** Result of a partial request. */
export interface PartialOutcome {
  accepted: number;
  refused: number;
  problems: ProblemList['listed'];
}

export interface ValueStreamOptions {
  /** Returns an empty partial draft. `textBytes`: size of the lines to be read into it. */
  draft(textBytes: number): Draft;
  read: ReadBody;
  /** Resolves with the number of values in the draft once they are on disk. */
  submit(draft: Draft): Promise<number>;
  memory: Reservation;
  /** Aborted at shutdown to stop reading. */
  signal: AbortSignal;
}

export class ValueStream {
  readonly #options: ValueStreamOptions;
  readonly #problems = new ProblemList();
  readonly #pendingCommits = new Set<Promise<void>>();
  #failure: { error: unknown } | undefined;
  #accepted = 0;
  /** Number of values received so far. The indexes of problems are relative to the start of the stream. */
  #seen = 0;
  /** First part of an incomplete line. */
  readonly #incompleteLine = new CollectedBytes();
  /** Total size of the values in pending commits, in bytes. */
  #valueBytes = 0;
  /** Whether the rest of an oversized line is being skipped. */
  #skipsLine = false;

  constructor(options: ValueStreamOptions) {
    this.#options = options;
  }

  /** Result so far. */
  get outcome(): PartialOutcome {
    return { accepted: this.#accepted, refused: this.#problems.count, problems: this.#problems.listed };
  }

  /** Resolves at the end of the stream or at shutdown. Rejects if the store rejects values or the stream breaks. */
  async read(chunks: AsyncIterator<Buffer>): Promise<void> {
    const { signal } = this.#options;
    let stopWaiting = () => {};
    const onAbort = () => stopWaiting();
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      while (!signal.aborted) {
        // A race against one long-lived shutdown promise would retain every chunk until that promise settles.
        const next = await new Promise<IteratorResult<Buffer> | undefined>((resolve, reject) => {
          stopWaiting = () => resolve(undefined);
          chunks.next().then(resolve, reject);
        });
        if (next === undefined) break;
        if (next.done) {
          await this.#submit(this.#incompleteLine.takeAll());
          break;
        }
        await this.#accept(next.value);
        releaseMemory(next.value);
      }
    } finally {
      signal.removeEventListener('abort', onAbort);
      chunks.return?.().catch(() => {});
      await Promise.all(this.#pendingCommits);
      this.#incompleteLine.release();
      this.#setMemory();
    }
    if (this.#failure) throw this.#failure.error;
  }

  async #accept(chunk: Buffer): Promise<void> {
    const end = chunk.lastIndexOf(FEED) + 1;
    if (end > 0) {
      const complete = chunk.subarray(this.#skipsLine ? chunk.indexOf(FEED) + 1 : 0, end);
      this.#skipsLine = false;
      await this.#submit(
        this.#incompleteLine.length === 0 ? complete : Buffer.concat([this.#incompleteLine.takeAll(), complete]),
      );
    }
    if (this.#skipsLine || end === chunk.length) return;
    if (this.#incompleteLine.length + chunk.length - end > MAX_LINE_BYTES) {
      this.#incompleteLine.release();
      this.#skipsLine = true;
      const draft = this.#options.draft(0);
      draft.reject('', `the line is longer than ${MAX_LINE_BYTES} bytes`);
      await this.#commit(draft);
      return;
    }
    // Copy the line, because a slice would retain the whole chunk in memory.
    const incompleteLine = Buffer.from(chunk.subarray(end));
    await this.#reserve(incompleteLine.length);
    this.#incompleteLine.add(incompleteLine);
  }

  async #submit(lines: Buffer): Promise<void> {
    if (lines.length === 0) return;
    const draft = this.#options.draft(lines.length);
    this.#options.read(lines, draft);
    await this.#commit(draft);
  }

  async #commit(draft: Draft): Promise<void> {
    const bytes = draft.accepted * BYTES_OF_VALUE;
    await this.#reserve(bytes);
    this.#valueBytes += bytes;
    const done: Promise<void> = this.#options
      .submit(draft)
      .then(
        (accepted) => {
          this.#accepted += accepted;
        },
        (error: unknown) => {
          this.#failure ??= { error };
        },
      )
      .then(() => {
        this.#pendingCommits.delete(done);
        this.#valueBytes -= bytes;
        this.#setMemory();
      });
    // After submission, the list of problems is complete and includes series that could not be opened.
    for (const { index, field, problem } of draft.problems.listed)
      this.#problems.add(this.#seen + index, field, problem);
    this.#problems.count += draft.problems.count - draft.problems.listed.length;
    this.#seen += draft.count;
    this.#pendingCommits.add(done);
  }

  /** Waits for a free commit slot and for memory. Throws if the store rejected values or no memory is available. */
  async #reserve(bytes: number): Promise<void> {
    const { memory } = this.#options;
    for (;;) {
      if (this.#failure) throw this.#failure.error;
      if (this.#pendingCommits.size < MAX_PENDING_COMMITS && memory.grow(bytes)) return;
      // Commits settle in order.
      const [oldest] = this.#pendingCommits;
      if (!oldest) throw new BodyError('no-room');
      await oldest;
    }
  }

  #setMemory(): void {
    this.#options.memory.set(this.#valueBytes + this.#incompleteLine.length);
  }
}
