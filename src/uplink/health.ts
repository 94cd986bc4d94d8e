/**
 * Decides whether an asset or the platform is at fault, and when to retry during an outage.
 *
 *   online ── three assets, or all active ones, failed ──► outage ── trial at `nextTryAtMs` accepted ──► online
 *
 * Posts are numbered in the order in which they start. An accepted post removes the faults that were recorded before it
 * started, so one faulty asset among many never causes an outage. The wait between the starts of two trials is random
 * with an upper limit that doubles from 1 s to 55 s (full jitter): gateways do not retry in the same second, and each
 * gateway retries at least every 60 s. After an exhausted quota (402), the wait is 1 minute, doubling to 1 hour.
 */
import type { Clock } from '../base/clock.ts';
import { fullJitterMs } from '../base/retry.ts';

/** Kind of a failed post: no usable response, values rejected individually, or access denied. */
export type Fault = 'failed' | 'rejected' | 'denied';

/** Reason for an outage. `foreign`: a portal, proxy or redirect responds instead of the platform. */
export type OutageCause = 'unavailable' | 'foreign' | 'signed-out' | 'quota' | 'denied' | 'rejected';

export interface Outage {
  cause: OutageCause;
  sinceMs: number;
  /** Number of the first post after the outage began. Earlier posts do not affect the outage. */
  sincePost: number;
  /** Code of the latest failure: a status or an error code. */
  code: string;
  reason: string;
  /** Number of failed trials, including the post that started the outage. */
  attempts: number;
  nextTryAtMs: number;
}

/** A post. `startedMs` is monotonic. */
export interface Posted {
  post: number;
  startedMs: number;
}

/** A post that failed. `askedMs` is the delay that the response requests. */
interface FailedPost extends Posted {
  askedMs: number;
  code: string;
  reason: string;
}

/** Number of assets that make an outage. */
const ENOUGH = 3;
/** Minimum time for which an asset counts as active after an accepted post. */
const ACTIVE_MS = 120_000;
const TRIALS = { baseMs: 1_000, capMs: 55_000 };
/** Minimum delay after a failed trial, in milliseconds. */
const MIN_GAP_MS = 200;
const QUOTA = { baseMs: 60_000, capMs: 3_600_000 };

export class Health {
  readonly #clock: Clock;
  readonly #options: { readonly postIntervalMs: number };
  readonly #acceptedAtMs = new Map<number, number>();
  /** Assets that failed since the latest accepted post, with the number of the next post at that time. */
  readonly #faults = new Map<number, { fault: Fault; at: number }>();
  /** Called after an accepted post and when an outage begins. */
  readonly #waiting = new Set<() => void>();
  #posts = 0;
  #latestAccepted = -1;
  #quotaPauses = 0;
  #outage: Outage | undefined;

  /** `options`: settings that a reload can change. */
  constructor(clock: Clock, options: { readonly postIntervalMs: number }) {
    this.#clock = clock;
    this.#options = options;
  }

  get #activeMs(): number {
    return Math.max(ACTIVE_MS, 3 * this.#options.postIntervalMs);
  }

  /** `undefined` while online. */
  get outage(): Readonly<Outage> | undefined {
    return this.#outage;
  }

  /** Number of the next post. */
  get nextPost(): number {
    return this.#posts;
  }

  /** Returns the number of a post that starts. */
  begin(): number {
    return this.#posts++;
  }

  /** Records an accepted post. Returns whether it ends the outage. */
  accepted(asset: number, post: number): boolean {
    this.#acceptedAtMs.set(asset, this.#clock.monotonicMs());
    this.#latestAccepted = Math.max(this.#latestAccepted, post);
    this.#faults.delete(asset);
    for (const [other, { at }] of this.#faults) if (at <= post) this.#faults.delete(other);
    for (const check of this.#waiting) check();
    return this.#outage !== undefined && post >= this.#outage.sincePost;
  }

  /** Whether a post with this number or a later one was accepted. */
  acceptedSince(post: number): boolean {
    return this.#latestAccepted >= post;
  }

  /**
   * Waits until a post with this number or a later one is accepted. Returns false if an outage begins, or if none is
   * accepted while other assets count as active.
   */
  async isAcceptedSoon(post: number, signal: AbortSignal): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const check = () => {
      if (this.#outage || this.acceptedSince(post)) resolve();
    };
    const giveUp = () => resolve();
    this.#waiting.add(check);
    signal.addEventListener('abort', giveUp);
    const cancel = this.#clock.after(this.#activeMs, giveUp);
    if (!signal.aborted) await promise;
    cancel();
    signal.removeEventListener('abort', giveUp);
    this.#waiting.delete(check);
    return this.acceptedSince(post);
  }

  /** Records a failed post of an asset. Returns whether the platform is at fault instead of the asset. */
  recordFault(asset: number, fault: Fault): boolean {
    this.#faults.set(asset, { fault, at: this.#faults.get(asset)?.at ?? this.#posts });
    const active = this.#active().size;
    if (fault !== 'denied') return this.#faults.size >= Math.min(ENOUGH, active);
    // Permissions are revoked per asset. Many simultaneous denials indicate a proxy.
    const denied = [...this.#faults.values()].filter((one) => one.fault === 'denied').length;
    return denied >= Math.max(ENOUGH, active / 2);
  }

  /** Whether no other asset is active. */
  isAlone(asset: number): boolean {
    const active = this.#active();
    return active.size === 0 || (active.size === 1 && active.has(asset));
  }

  #active(): Set<number> {
    const sinceMs = this.#clock.monotonicMs() - this.#activeMs;
    for (const [asset, atMs] of this.#acceptedAtMs) if (atMs < sinceMs) this.#acceptedAtMs.delete(asset);
    return new Set([...this.#acceptedAtMs.keys(), ...this.#faults.keys()]);
  }

  /**
   * Starts an outage, or records a failed trial. Returns whether the outage is new, or `undefined` if the post started
   * before the outage.
   */
  unavailable(cause: OutageCause, { post, startedMs, askedMs, code, reason }: FailedPost): boolean | undefined {
    const before = this.#outage;
    if (before && post < before.sincePost) return undefined;
    const nowMs = this.#clock.monotonicMs();
    let nextTryAtMs: number;
    if (cause === 'quota') {
      const boundMs = Math.min(QUOTA.capMs, QUOTA.baseMs * 2 ** Math.min(this.#quotaPauses++, 10));
      nextTryAtMs = nowMs + boundMs * (1 + this.#clock.random()) * 0.5;
    } else {
      this.#quotaPauses = 0;
      const waitMs = fullJitterMs(before?.attempts ?? 0, TRIALS, () => this.#clock.random());
      nextTryAtMs = Math.max(nowMs + MIN_GAP_MS, startedMs + waitMs, nowMs + Math.min(askedMs, TRIALS.capMs));
    }
    this.#outage = {
      cause,
      sinceMs: before?.sinceMs ?? nowMs,
      sincePost: before?.sincePost ?? this.#posts,
      code,
      reason,
      attempts: (before?.attempts ?? 0) + 1,
      nextTryAtMs,
    };
    for (const check of this.#waiting) check();
    return before === undefined;
  }

  /** Ends the outage, because the platform responded to a trial. Returns the outage. */
  responded(): Outage | undefined {
    const ended = this.#outage;
    this.#outage = undefined;
    this.#quotaPauses = 0;
    return ended;
  }

  /** Starts the next trial immediately. A new session does not end a quota pause, but an operator's request does. */
  tryNow(by: 'session' | 'operator'): void {
    if (this.#outage && (by === 'operator' || this.#quotaPauses === 0)) {
      this.#outage.nextTryAtMs = this.#clock.monotonicMs();
    }
  }
}
