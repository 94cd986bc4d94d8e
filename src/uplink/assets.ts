/** Delivery state of each asset: lanes in progress, pauses and post size. */
import type { Clock } from '../base/clock.ts';
import { fullJitterMs } from '../base/retry.ts';
import { PostSize } from './post-size.ts';

/** Times are monotonic, in milliseconds. */
export interface AssetState {
  /** Whether a batch of the lane is in progress. */
  live: boolean;
  backlog: boolean;
  /** Number of failures since the latest accepted post. */
  failures: number;
  pausedUntilMs: number;
  /** Time of its latest post with live values. */
  lastLiveAtMs: number;
  /** Time of its latest post with backlog values. */
  lastBacklogAtMs: number;
  /** End of its latest batch. */
  endedAtMs: number;
  /** Whether backlog values remained after its latest post with backlog values, because they did not fit. */
  isDraining: boolean;
  readonly size: PostSize;
}

const PAUSE = { baseMs: 2_000, capMs: 60_000 };
const MIN_PAUSE_MS = 500;

export class Assets {
  readonly states = new Map<number, AssetState>();
  readonly #clock: Clock;
  readonly #options: { readonly postMaxBytes: number };
  /** Limits all posts after an outage. */
  readonly #afterOutage = new PostSize();

  /** `options`: settings that a reload can change. */
  constructor(clock: Clock, options: { readonly postMaxBytes: number }) {
    this.#clock = clock;
    this.#options = options;
  }

  of(asset: number): AssetState {
    let state = this.states.get(asset);
    if (!state) {
      const never = Number.NEGATIVE_INFINITY;
      state = {
        live: false,
        backlog: false,
        failures: 0,
        pausedUntilMs: never,
        lastLiveAtMs: never,
        lastBacklogAtMs: never,
        endedAtMs: never,
        isDraining: false,
        size: new PostSize(),
      };
      this.states.set(asset, state);
    }
    return state;
  }

  /** Maximum body size of a post for the asset; without an asset, the smallest limit of any asset. */
  maxBytes(asset?: number): number {
    const states = asset === undefined ? [...this.states.values()] : [this.of(asset)];
    return Math.min(this.#options.postMaxBytes, this.#afterOutage.maxBytes, ...states.map(({ size }) => size.maxBytes));
  }

  /** Removes all limits below POST_MAX_BYTES after a reload. */
  forgetLimits(): void {
    this.#afterOutage.restart();
    for (const { size } of this.states.values()) size.restart();
  }

  /** Limits posts after an outage to twice the size of the accepted trial. */
  restart(trialBytes: number): void {
    this.#afterOutage.restart(2 * trialBytes);
  }

  /** Records an accepted post. Returns whether the asset was failing. */
  accepted(asset: number, bytes: number): boolean {
    const state = this.of(asset);
    const wasFailing = state.failures > 0;
    state.failures = 0;
    state.pausedUntilMs = Number.NEGATIVE_INFINITY;
    const nowMs = this.#clock.monotonicMs();
    state.size.accepted(bytes, nowMs);
    this.#afterOutage.accepted(bytes, nowMs);
    return wasFailing;
  }

  /** Pauses a failing asset. Returns the duration of the pause, in milliseconds. */
  pause(asset: number, askedMs: number): number {
    const state = this.of(asset);
    const waitMs = fullJitterMs(state.failures++, PAUSE, () => this.#clock.random(), MIN_PAUSE_MS);
    const pauseMs = Math.max(waitMs, Math.min(askedMs, PAUSE.capMs));
    state.pausedUntilMs = this.#clock.monotonicMs() + pauseMs;
    return pauseMs;
  }

  /** Clears failures and pauses, because the platform failed rather than the assets. */
  resetFailures(): void {
    for (const state of this.states.values()) {
      state.failures = 0;
      state.pausedUntilMs = Number.NEGATIVE_INFINITY;
    }
  }

  /** Number of posts in progress for failing assets. */
  failing(): number {
    let count = 0;
    for (const { failures, live, backlog } of this.states.values()) if (failures > 0 && (live || backlog)) count++;
    return count;
  }

  /** Returns the paused assets, for `status`. */
  paused(): { asset: number; failures: number; forMs: number }[] {
    const nowMs = this.#clock.monotonicMs();
    return [...this.states]
      .map(([asset, { failures, pausedUntilMs }]) => ({ asset, failures, forMs: pausedUntilMs - nowMs }))
      .filter(({ failures, forMs }) => failures > 0 && forMs > 0);
  }
}
