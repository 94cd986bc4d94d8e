/**
 * Whether the platform is there.
 *
 *   online ── fail ──► unavailable ── one try at `nextTryAtMs`, again and again ──► taken ──► online
 *
 * The wait between the starts of two tries is random between nothing and a bound that doubles from 1 s to 55 s (full
 * jitter), so that gateways that lost the platform together do not return together, and yet each tries at least once
 * in 60 s for as long as it takes. A spent quota (402) is waited out longer: 1 minute, doubling to 1 hour, half of it random;
 * a reload or `session renew` tries at once.
 */
import type { Clock } from '../base/clock.ts';
import { fullJitterMs } from '../base/retry.ts';

export interface Outage {
  sinceMs: number;
  /** Where it began in the order of posts: what started before says nothing about it. */
  sincePost: number;
  /** Code of the last failure: a status, or that of an error. */
  code: string;
  words: string;
  /** It was answered, but not by the platform: a portal, a proxy, a redirect. */
  isForeign: boolean;
  /** Failed tries, the one that began it included. */
  attempts: number;
  nextTryAtMs: number;
}

/** What a try met. */
export interface Failure {
  code: string;
  words: string;
  isForeign?: boolean;
}

const OUTAGE = { baseMs: 1_000, capMs: 55_000 };
/** A try that failed at once is not followed at once. */
const MIN_GAP_MS = 200;
const QUOTA_BASE_MS = 60_000;
const QUOTA_CAP_MS = 3_600_000;

export class PlatformAvailability {
  readonly #clock: Clock;
  #outage: Outage | undefined;
  #quotaPauses = 0;
  readonly #backListeners = new Set<(unavailableMs: number) => void>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** `undefined` while online. */
  get outage(): Readonly<Outage> | undefined {
    return this.#outage;
  }

  /** Called when an outage has ended, with how long it was. The function it returns takes the listener away. */
  onBack(listener: (unavailableMs: number) => void): () => void {
    this.#backListeners.add(listener);
    return () => this.#backListeners.delete(listener);
  }

  /**
   * A try that began at `startedMs` failed. `minMs`: what the platform asked to wait (bounded by 55 s); `post`: what the next post
   * has for a number.
   */
  fail(failure: Failure, startedMs: number, minMs = 0, post = 0): Readonly<Outage> {
    const wait = fullJitterMs(this.#outage?.attempts ?? 0, OUTAGE, () => this.#clock.random());
    const nowMs = this.#clock.monotonicMs();
    const nextMs = Math.max(nowMs + MIN_GAP_MS, startedMs + wait, nowMs + Math.min(minMs, OUTAGE.capMs));
    this.#quotaPauses = 0;
    return this.#enter(failure, nextMs, post);
  }

  /** The quota is spent. */
  failQuota(failure: Failure, post = 0): Readonly<Outage> {
    const bound = Math.min(QUOTA_CAP_MS, QUOTA_BASE_MS * 2 ** Math.min(this.#quotaPauses++, 10));
    return this.#enter(failure, this.#clock.monotonicMs() + bound * (1 + this.#clock.random()) * 0.5, post);
  }

  #enter(failure: Failure, nextTryAtMs: number, post: number): Readonly<Outage> {
    const sinceMs = this.#outage?.sinceMs ?? this.#clock.monotonicMs();
    const sincePost = this.#outage?.sincePost ?? post;
    const attempts = (this.#outage?.attempts ?? 0) + 1;
    const { code, words, isForeign = false } = failure;
    this.#outage = { sinceMs, sincePost, code, words, isForeign, attempts, nextTryAtMs };
    return this.#outage;
  }

  /** Something was taken, or answered in a way that shows it is there. Gives the outage that ended. */
  succeed(): Readonly<Outage> | undefined {
    const ended = this.#outage;
    this.#outage = undefined;
    this.#quotaPauses = 0;
    if (!ended) return undefined;
    const unavailableMs = this.#clock.monotonicMs() - ended.sinceMs;
    for (const listener of this.#backListeners) listener(unavailableMs);
    return ended;
  }

  /** The next try need not wait: a session was obtained. That says nothing about a spent quota, a person's word does. */
  tryNow(by: 'session' | 'person' = 'session'): void {
    if (this.#outage && (by === 'person' || this.#quotaPauses === 0)) {
      this.#outage.nextTryAtMs = this.#clock.monotonicMs();
    }
  }
}
