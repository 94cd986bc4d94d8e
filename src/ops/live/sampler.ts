import type { Clock } from '../../base/clock.ts';
import { History } from './history.ts';

/** How it stands now; counters since the start. */
export interface Standing {
  ingested: number;
  delivered: number;
  backlog: number;
  requests: number;
  isOut: boolean;
}

const EVERY_MS = 1_000;
/** The kernel puts a file together for it. */
const SECONDS_A_LOOK_AT_MEMORY = 10;

/** Writes a row of history each second, from the start to the end of the agent. */
export class Sampler {
  readonly history = new History();
  readonly #look: () => Standing;
  readonly #clock: Clock;
  readonly #resident: () => number;
  #before = { ingested: 0, delivered: 0 };
  #waited = { sumMs: 0, count: 0 };
  #cancel: () => void = () => {};
  #rssBytes = 0;

  constructor(look: () => Standing, clock: Clock, resident = () => process.memoryUsage.rss()) {
    this.#look = look;
    this.#clock = clock;
    this.#resident = resident;
  }

  start(): void {
    this.#cancel = this.#clock.after(EVERY_MS, () => {
      this.#sample();
      this.start();
    });
  }

  stop(): void {
    this.#cancel();
  }

  /** Live values were delivered, the oldest of them so long after it was accepted. */
  delivered(waitedMs: number): void {
    this.#waited.sumMs += waitedMs;
    this.#waited.count++;
  }

  #sample(): void {
    const { ingested, delivered, backlog, requests, isOut } = this.#look();
    const { sumMs, count } = this.#waited;
    this.history.add({
      atMs: this.#clock.monotonicMs(),
      ingested: ingested - this.#before.ingested,
      delivered: delivered - this.#before.delivered,
      backlog,
      latencyMs: count === 0 ? Number.NaN : sumMs / count,
      requests,
      rssBytes: this.history.second % SECONDS_A_LOOK_AT_MEMORY === 0 ? this.#residentBytes() : this.#rssBytes,
      out: isOut ? 1 : 0,
    });
    this.#before = { ingested, delivered };
    this.#waited = { sumMs: 0, count: 0 };
  }

  /** It is read from a file: where no more may be open, what it was stands for what it is. */
  #residentBytes(): number {
    try {
      this.#rssBytes = this.#resident();
    } catch {
      // EMFILE, which the listeners tell of by themselves.
    }
    return this.#rssBytes;
  }
}
