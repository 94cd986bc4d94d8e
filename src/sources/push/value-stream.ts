/**
 * Lines without an end, from a connection or a program: they are committed as they come, some commits at a time, and counted. What was
 * committed stays, however the stream ends: by the sender, by a broken connection, by a store that takes nothing, by a stop of the agent.
 */
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

/** What came of a request that is taken in part. */
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
  /** The agent stops: nothing more is read. */
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
  #rest: Buffer[] = [];
  #restBytes = 0;
  #reservedBytes = 0;
  /** The rest of a line that is too long is passed over. */
  #skipsLine = false;

  constructor(options: ValueStreamOptions) {
    this.#options = options;
  }

  /** So far. */
  get outcome(): PartialOutcome {
    return { accepted: this.#accepted, refused: this.#problems.count, problems: this.#problems.listed };
  }

  /** Resolves at the end of the stream, or when the agent stops. Rejects with what the store says, or where the stream breaks. */
  async read(chunks: AsyncIterator<Buffer>): Promise<void> {
    const { signal } = this.#options;
    const stopped = new Promise<undefined>((resolve) => {
      if (signal.aborted) resolve(undefined);
      signal.addEventListener('abort', () => resolve(undefined), { once: true });
    });
    try {
      for (;;) {
        const next = await Promise.race([chunks.next(), stopped]);
        if (next === undefined) break;
        if (next.done) {
          await this.#submit(this.#takeRest());
          break;
        }
        await this.#take(next.value);
      }
    } finally {
      await Promise.all(this.#underWay);
    }
    if (this.#failure) throw this.#failure.error;
  }

  async #take(chunk: Buffer): Promise<void> {
    const last = chunk.lastIndexOf(FEED);
    const whole = last < 0 ? undefined : chunk.subarray(this.#skipsLine ? chunk.indexOf(FEED) + 1 : 0, last + 1);
    if (whole) {
      this.#skipsLine = false;
      const lines = [...this.#rest, whole];
      this.#rest = [];
      this.#restBytes = 0;
      await this.#submit(Buffer.concat(lines));
    }
    if (this.#skipsLine) return;
    // A copy: the rest of a large chunk must not keep all of it.
    this.#rest.push(Buffer.from(chunk.subarray(last + 1)));
    this.#restBytes += chunk.length - last - 1;
    if (this.#restBytes <= MAX_LINE_BYTES) return;
    this.#rest = [];
    this.#restBytes = 0;
    this.#skipsLine = true;
    this.#problems.add(this.#seen++, '', `the line is longer than ${MAX_LINE_BYTES} bytes`);
  }

  #takeRest(): Buffer {
    return Buffer.concat(this.#rest);
  }

  async #submit(lines: Buffer): Promise<void> {
    if (lines.length === 0) return;
    const draft = this.#options.draft();
    this.#options.read(lines, draft);
    const bytes = draft.taken * BYTES_OF_VALUE;
    await this.#hold(bytes);
    const done = this.#options.submit(draft).then(
      (accepted) => {
        this.#accepted += accepted;
        this.#letGo(bytes);
      },
      (error: unknown) => {
        this.#failure ??= { error };
        this.#letGo(bytes);
      },
    );
    // Known as soon as it is submitted: series that could not be opened are among them.
    for (const { index, field, problem } of draft.problems.listed)
      this.#problems.add(this.#seen + index, field, problem);
    this.#problems.count += draft.problems.count - draft.problems.listed.length;
    this.#seen += draft.count;
    this.#underWay.add(done);
    void done.then(() => this.#underWay.delete(done));
  }

  async #hold(bytes: number): Promise<void> {
    const { memory } = this.#options;
    for (;;) {
      if (this.#failure) throw this.#failure.error;
      if (this.#underWay.size < MAX_COMMITS_UNDER_WAY && memory.grow(bytes)) break;
      if (this.#underWay.size === 0) throw noRoom();
      await Promise.race(this.#underWay);
    }
    this.#reservedBytes += bytes;
  }

  #letGo(bytes: number): void {
    this.#reservedBytes -= bytes;
    this.#options.memory.set(this.#reservedBytes);
  }
}
