import type { Clock } from '../base/clock.ts';
import { codeOf } from '../base/errors.ts';
import type { PlatformClient } from '../platform/client.ts';
import { listApiSubscriptions } from '../platform/resources/connect-subscription.ts';

/** The latest quota report of the connect subscription (platform 10.3). */
export interface QuotaReport {
  calls: number;
  used: number;
  /** Payload size in bytes, if the platform reports it. */
  payload: { bytes: number; used: number } | null;
  /** Start of the quota period as reported by the platform. */
  since: string | null;
}

/** Minimum interval between calls, made only while the status is viewed, because each call counts against the quota. */
const REFRESH_INTERVAL_MS = 3_600_000;
/** Interval after a failed call. */
const RETRY_MS = 5 * 60_000;
/** Maximum delay of the status response. */
const MAX_DELAY_MS = 2_000;

export class Quota {
  readonly #client: PlatformClient;
  readonly #clock: Clock;
  #known: QuotaReport | undefined;
  #requestedAtMs = Number.NEGATIVE_INFINITY;
  #request: Promise<void> | undefined;

  constructor(client: PlatformClient, clock: Clock) {
    this.#client = client;
    this.#clock = clock;
  }

  /** Returns the latest report without making a call. */
  get known(): QuotaReport | undefined {
    return this.#known;
  }

  /**
   * Fetches an outdated report and waits briefly for it. Never throws, because a platform without quotas is not an
   * error.
   */
  async refresh(): Promise<void> {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#requestedAtMs >= REFRESH_INTERVAL_MS && !this.#request) {
      this.#requestedAtMs = nowMs;
      this.#request = this.#fetch().finally(() => {
        this.#request = undefined;
      });
    }
    if (this.#request) await Promise.race([this.#request, this.#clock.sleep(MAX_DELAY_MS)]);
  }

  async #fetch(): Promise<void> {
    try {
      for await (const subscription of listApiSubscriptions(this.#client, AbortSignal.timeout(10_000))) {
        const { calls, payload, since } = subscription;
        if (calls === undefined) continue;
        this.#known = {
          calls: calls.quota,
          used: calls.used,
          payload: payload ? { bytes: payload.quota, used: payload.used } : null,
          since: since ?? null,
        };
        return;
      }
    } catch (error) {
      // The session or the platform is unavailable, which the status reports separately.
      const restMs = codeOf(error) === 'platform.no_session' ? 0 : RETRY_MS;
      this.#requestedAtMs = this.#clock.monotonicMs() - REFRESH_INTERVAL_MS + restMs;
    }
  }
}
