/**
 * Platform availability, as determined from posts.
 *
 *   online ── fail ──► unavailable ── trial posts at `nextTryAtMs` ──► accepted ──► online
 *
 * The wait between the starts of two trials is random with an upper limit that doubles from 1 s to 55 s (full jitter).
 * Gateways therefore do not retry in the same second, and each gateway retries at least every 60 s. After an exhausted
 * quota (402), the wait is 1 minute, doubling to 1 hour, half of it random. A reload or `session renew` starts a trial
 * immediately.
 */
import type { Clock } from '../base/clock.ts';
import { fullJitterMs } from '../base/retry.ts';

export interface Outage {
  sinceMs: number;
  /** Number of the first post after the outage began. Earlier posts do not affect the outage. */
  sincePost: number;
  /** Code of the latest failure: a status or an error code. */
  code: string;
  reason: string;
  /** Whether a portal, proxy or redirect responded instead of the platform. */
  isForeign: boolean;
  /** Number of failed trials, including the post that started the outage. */
  attempts: number;
  nextTryAtMs: number;
}

/** Reason for a failed post. */
export interface Failure {
  code: string;
  reason: string;
  isForeign?: boolean;
}

const OUTAGE = { baseMs: 1_000, capMs: 55_000 };
/** Minimum delay after a failed trial, in milliseconds. */
const MIN_GAP_MS = 200;
const QUOTA_BASE_MS = 60_000;
const QUOTA_CAP_MS = 3_600_000;

export class PlatformAvailability {
  readonly #clock: Clock;
  #outage: Outage | undefined;
  #quotaPauses = 0;
  readonly #listeners = new Set<(unavailableMs: number) => void>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** `undefined` while online. */
  get outage(): Readonly<Outage> | undefined {
    return this.#outage;
  }

  /** Calls the listener after each outage with its duration. Returns a function that removes the listener. */
  onRestored(listener: (unavailableMs: number) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Records a failed post that started at `startedMs`. `minMs` is the delay requested by the platform, limited to 55 s.
   * `post` is the number of the next post.
   */
  fail(failure: Failure, startedMs: number, minMs = 0, post = 0): Readonly<Outage> {
    const wait = fullJitterMs(this.#outage?.attempts ?? 0, OUTAGE, () => this.#clock.random());
    const nowMs = this.#clock.monotonicMs();
    const nextMs = Math.max(nowMs + MIN_GAP_MS, startedMs + wait, nowMs + Math.min(minMs, OUTAGE.capMs));
    this.#quotaPauses = 0;
    return this.#enter(failure, nextMs, post);
  }

  /** Records that the API call quota is exhausted. */
  failQuota(failure: Failure, post = 0): Readonly<Outage> {
    const bound = Math.min(QUOTA_CAP_MS, QUOTA_BASE_MS * 2 ** Math.min(this.#quotaPauses++, 10));
    return this.#enter(failure, this.#clock.monotonicMs() + bound * (1 + this.#clock.random()) * 0.5, post);
  }

  #enter(failure: Failure, nextTryAtMs: number, post: number): Readonly<Outage> {
    const sinceMs = this.#outage?.sinceMs ?? this.#clock.monotonicMs();
    const sincePost = this.#outage?.sincePost ?? post;
    const attempts = (this.#outage?.attempts ?? 0) + 1;
    const { code, reason, isForeign = false } = failure;
    this.#outage = { sinceMs, sincePost, code, reason, isForeign, attempts, nextTryAtMs };
    return this.#outage;
  }

  /** Ends the outage and returns it. */
  succeed(): Readonly<Outage> | undefined {
    const ended = this.#outage;
    this.#outage = undefined;
    this.#quotaPauses = 0;
    if (!ended) return undefined;
    const unavailableMs = this.#clock.monotonicMs() - ended.sinceMs;
    for (const listener of this.#listeners) listener(unavailableMs);
    return ended;
  }

  /** Starts the next trial immediately. A new session does not end a quota pause, but a manual request does. */
  tryNow(by: 'session' | 'person' = 'session'): void {
    if (this.#outage && (by === 'person' || this.#quotaPauses === 0)) {
      this.#outage.nextTryAtMs = this.#clock.monotonicMs();
    }
  }
}
