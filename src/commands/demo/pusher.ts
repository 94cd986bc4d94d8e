import { Pool } from 'undici';
import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import type { DemoTag } from './plant.ts';

/** Interval between requests, each of which contains one value per tag. */
export const PUSH_EVERY_MS = 200;
/** Maximum number of pending requests, so that they do not accumulate if the agent hangs. */
const MAX_PENDING = 25;

interface Push {
  timestampMs: number;
  /** One value per tag. */
  values: number[];
  acknowledged: boolean;
}

/**
 * Pushes a value for every tag several times per second with `POST /v1/values`, and records sent and acknowledged
 * values.
 */
export class Pusher {
  readonly tags: readonly DemoTag[];
  readonly #read: (tag: number, nowMs: number) => number;
  readonly #clock: Clock;
  readonly #pool: Pool;
  readonly #pushes: Push[] = [];
  readonly #pending = new Set<Promise<void>>();
  #acknowledged = 0;
  #timer: NodeJS.Timeout | undefined;
  #trouble: string | undefined;

  constructor(
    tags: readonly DemoTag[],
    socketPath: string,
    read: (tag: number, nowMs: number) => number,
    clock: Clock,
  ) {
    this.tags = tags;
    this.#pool = new Pool('http://localhost', { socketPath, connections: MAX_PENDING });
    this.#read = read;
    this.#clock = clock;
  }

  start(): void {
    this.#timer = setInterval(() => this.#pushSoon(), PUSH_EVERY_MS);
    this.#pushSoon();
  }

  /** Stops pushing and waits for pending responses. Can be called more than once. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await Promise.all(this.#pending);
    await this.#pool.destroy();
  }

  get sent(): number {
    return this.#pushes.length * this.tags.length;
  }

  get acknowledged(): number {
    return this.#acknowledged;
  }

  /** Reason why the latest failed request was not acknowledged. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /** Number of requests so far, used as a position in `valuesOf`. */
  get pushes(): number {
    return this.#pushes.length;
  }

  /**
   * Returns the sent values of a tag, oldest first. The result can be limited to acknowledged values or to values
   * between two positions.
   */
  valuesOf(
    tag: number,
    which: { acknowledged?: boolean; from?: number; to?: number } = {},
  ): { timestampMs: number; value: number }[] {
    return this.#pushes
      .slice(which.from, which.to)
      .filter((push) => push.acknowledged || which.acknowledged !== true)
      .map((push) => ({ timestampMs: push.timestampMs, value: push.values[tag]! }));
  }

  #pushSoon(): void {
    if (this.#pending.size >= MAX_PENDING) return;
    const done: Promise<void> = this.#push().finally(() => this.#pending.delete(done));
    this.#pending.add(done);
  }

  async #push(): Promise<void> {
    const nowMs = this.#clock.monotonicMs();
    // Timestamps identify values within a series and must be unique, even if the clock is set back.
    const timestampMs = Math.max(Math.round(this.#clock.wallMs()), (this.#pushes.at(-1)?.timestampMs ?? 0) + 1);
    const push: Push = { timestampMs, values: this.tags.map((_, tag) => this.#read(tag, nowMs)), acknowledged: false };
    this.#pushes.push(push);
    const values = this.tags.map(({ name, key }, tag) => ({
      tag: name,
      key,
      value: push.values[tag],
      timestamp: timestampMs,
    }));
    try {
      const body = JSON.stringify({ values });
      const headers = { 'Content-Type': 'application/json' };
      const response = await this.#pool.request({ method: 'POST', path: '/v1/values', headers, body });
      const text = await response.body.text();
      push.acknowledged = response.statusCode === 204;
      if (push.acknowledged) this.#acknowledged += values.length;
      else this.#trouble = `${response.statusCode} ${text.slice(0, 200)}`;
    } catch (error) {
      this.#trouble = messageOf(error);
    }
  }
}
