import type { Clock } from '../base/clock.ts';
import { codeOf } from '../base/errors.ts';
import type { PlatformClient } from '../platform/client.ts';
import { listApiSubscriptions } from '../platform/resources/api-subscriptions.ts';

/** The latest quota report of the connect subscription (platform 10.3). */
export interface QuotaReport {
  calls: number;
  used: number;
  /** Payload in bytes, if the platform reports it. */
  payload: { bytes: number; used: number } | null;
  /** When its period began, as the platform writes it. */
  since: string | null;
}

/** One call an hour at most, and only while somebody looks: the call counts against the quota itself. */
const ASK_EVERY_MS = 3_600_000;
/** After a call that failed. */
const ASK_AGAIN_MS = 5 * 60_000;
/** Who looks at the status does not wait longer for it. */
const PATIENCE_MS = 2_000;

export class Quota {
  readonly #client: PlatformClient;
  readonly #clock: Clock;
  #known: QuotaReport | undefined;
  #askedAtMs = Number.NEGATIVE_INFINITY;
  #asking: Promise<void> | undefined;

  constructor(client: PlatformClient, clock: Clock) {
    this.#client = client;
    this.#clock = clock;
  }

  /** What is known without asking. */
  get known(): QuotaReport | undefined {
    return this.#known;
  }

  /** Asks where the last answer is old; waits a moment for it. Never throws: a platform without quotas is no fault. */
  async refresh(): Promise<void> {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#askedAtMs >= ASK_EVERY_MS && !this.#asking) {
      this.#askedAtMs = nowMs;
      this.#asking = this.#ask().finally(() => {
        this.#asking = undefined;
      });
    }
    if (this.#asking) await Promise.race([this.#asking, this.#clock.sleep(PATIENCE_MS)]);
  }

  async #ask(): Promise<void> {
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
      // The session or the platform is away, and status says so elsewhere.
      const restMs = codeOf(error) === 'platform.no_session' ? 0 : ASK_AGAIN_MS;
      this.#askedAtMs = this.#clock.monotonicMs() - ASK_EVERY_MS + restMs;
    }
  }
}
