/**
 * An endless stream of lines, from a connection or a program. Lines are committed as they arrive, a few commits at a time, and counted.
 * Committed values stay, however the stream ends: by its sender, a broken connection, a store that rejects values or a shutdown.
 *
 * Memory: one line that is not complete yet, and the values of the commits under way. Both count towards the reservation, and nothing
 * that lasts as long as the stream refers to a chunk.
 */
import { giveBack } from '../../base/give-back.ts';
import { CollectedBytes } from '../../base/inbound/collected-bytes.ts';
import type { Reservation } from '../../base/inbound/memory-budget.ts';
import type { Draft } from '../draft.ts';
import { ProblemList } from '../problem-list.ts';
import type { ReadBody } from './push-endpoints.ts';
import { noRoom } from './push-refusal.ts';

/** docs/interface.md, "Pushing values in". */
const MAX_LINE_BYTES = 1024 * 1024;
const MAX_COMMITS_UNDER_WAY = 16;
const BYTES_OF_VALUE = 21;
const FEED = 10;

/** Result of a partial request. */
export interface PartialOutcome {
  accepted: number;
  refused: number;
  problems: ProblemList['listed'];
}

export interface ValueStreamOptions {
  /** An empty draft that takes what is right. */
  draft(): Draft;
  /** Reads whole lines into a draft. */
  read: ReadBody;
  /** Resolves with the number of the draft's values when they are on disk. */
  submit(draft: Draft): Promise<number>;
  memory: Reservation;
  /** Aborted at shutdown: nothing more is read. */
  signal: AbortSignal;
}

export class ValueStream {
  readonly #options: ValueStreamOptions;
  readonly #problems = new ProblemList();
  readonly #underWay = new Set<Promise<void>>();
  #failure: { error: unknown } | undefined;
  #accepted = 0;
  /** Values seen so far: problems count from the stream's beginning. */
  #seen = 0;
  /** The beginning of a line whose end has not arrived yet. */
  readonly #begun = new CollectedBytes();
  /** Bytes of the values in commits under way. */
  #valueBytes = 0;
  /** The rest of a line that is too long is skipped. */
  #skipsLine = false;

  constructor(options: ValueStreamOptions) {
    this.#options = options;
  }

  /** So far. */
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
        // A race against one promise for the shutdown would keep every chunk until that promise settles.
        const next = await new Promise<IteratorResult<Buffer> | undefined>((resolve, reject) => {
          stopWaiting = () => resolve(undefined);
          chunks.next().then(resolve, reject);
        });
        if (next === undefined) break;
        if (next.done) {
          await this.#submit(this.#begun.takeAll());
          break;
        }
        await this.#accept(next.value);
        giveBack(next.value);
      }
    } finally {
      signal.removeEventListener('abort', onAbort);
      chunks.return?.().catch(() => {});
      await Promise.all(this.#underWay);
      this.#begun.release();
      this.#setMemory();
    }
    if (this.#failure) throw this.#failure.error;
  }

  async #accept(chunk: Buffer): Promise<void> {
    const end = chunk.lastIndexOf(FEED) + 1;
    if (end > 0) {
      const complete = chunk.subarray(this.#skipsLine ? chunk.indexOf(FEED) + 1 : 0, end);
      this.#skipsLine = false;
      await this.#submit(this.#begun.length === 0 ? complete : Buffer.concat([this.#begun.takeAll(), complete]));
    }
    if (this.#skipsLine || end === chunk.length) return;
    if (this.#begun.length + chunk.length - end > MAX_LINE_BYTES) {
      this.#begun.release();
      this.#skipsLine = true;
      const draft = this.#options.draft();
      draft.refuse('', `the line is longer than ${MAX_LINE_BYTES} bytes`);
      await this.#commit(draft);
      return;
    }
    // A copy, because the end of a large chunk would keep all of it in memory.
    const begun = Buffer.from(chunk.subarray(end));
    await this.#reserve(begun.length);
    this.#begun.add(begun);
  }

  async #submit(lines: Buffer): Promise<void> {
    if (lines.length === 0) return;
    const draft = this.#options.draft();
    this.#options.read(lines, draft);
    await this.#commit(draft);
  }

  async #commit(draft: Draft): Promise<void> {
    const bytes = draft.taken * BYTES_OF_VALUE;
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
        this.#underWay.delete(done);
        this.#valueBytes -= bytes;
        this.#setMemory();
      });
    // Known as soon as it is submitted: series that could not be opened are among them.
    for (const { index, field, problem } of draft.problems.listed)
      this.#problems.add(this.#seen + index, field, problem);
    this.#problems.count += draft.problems.count - draft.problems.listed.length;
    this.#seen += draft.count;
    this.#underWay.add(done);
  }

  /** Waits for a place among the commits and for memory. Throws if the store has rejected values or there is no memory. */
  async #reserve(bytes: number): Promise<void> {
    const { memory } = this.#options;
    for (;;) {
      if (this.#failure) throw this.#failure.error;
      if (this.#underWay.size < MAX_COMMITS_UNDER_WAY && memory.grow(bytes)) return;
      // Commits settle in their order.
      const [oldest] = this.#underWay;
      if (!oldest) throw noRoom();
      await oldest;
    }
  }

  #setMemory(): void {
    this.#options.memory.set(this.#valueBytes + this.#begun.length);
  }
}
