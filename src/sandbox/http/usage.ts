import type { SandboxClock } from '../sandbox-clock.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { Caller } from './call.ts';
import { refusal } from './refusal.ts';

export interface UsageLimits {
  /** Maximum number of requests per minute (platform 10.3); 0 means no limit. */
  perUser?: number;
  perApiKey?: number;
  perAddress?: number;
  /** Whether to send `Retry-After` with 429. The platform has not been observed to send it. */
  retryAfter?: boolean;
}

/**
 * Enforces a subscription's rate limits and quota. Rates are counted per full minute of the sandbox clock. If a limit
 * is exceeded, all calls are rejected with 429 "until a new minute starts". API calls, webhook calls and webhook bytes
 * count towards the quota (platform 6.1).
 */
export class Usage {
  readonly #clock: SandboxClock;
  readonly #site: SiteModel;
  readonly limits: Required<UsageLimits>;
  #minute = -1;
  readonly #counts = new Map<string, number>();
  readonly #spent = new Map<number, { calls: number; bytes: number }>();
  readonly startedMs: number;

  constructor(clock: SandboxClock, site: SiteModel, limits: UsageLimits = {}) {
    this.#clock = clock;
    this.#site = site;
    this.limits = { perUser: 500, perApiKey: 1000, perAddress: 2000, retryAfter: false, ...limits };
    this.startedMs = clock.wallMs();
  }

  change(limits: UsageLimits): void {
    Object.assign(this.limits, limits);
  }

  /** Counts an API call. Throws a 429 or 402 if a limit is exceeded. */
  count(caller: Caller, address: string): void {
    const nowMs = this.#clock.wallMs();
    const minute = Math.floor(nowMs / 60_000);
    if (minute !== this.#minute) {
      this.#minute = minute;
      this.#counts.clear();
    }
    const { perUser, perApiKey, perAddress, retryAfter } = this.limits;
    const over =
      this.#over(`user ${caller.user}`, perUser) ||
      this.#over(`key ${caller.application}`, perApiKey) ||
      this.#over(`address ${address}`, perAddress);
    if (over) {
      const leftS = Math.ceil(this.leftOfMinuteMs() / 1000);
      throw refusal(429, 'too many requests', undefined, retryAfter ? { 'retry-after': String(leftS) } : {});
    }
    if (!this.spend(caller.application, 0)) throw refusal(402, "the subscription's quota is used up");
  }

  /** Returns the time until the next minute, in real milliseconds. */
  leftOfMinuteMs(): number {
    return (60_000 - (this.#clock.wallMs() % 60_000)) / this.#clock.speed;
  }

  /** Counts one webhook call and its bytes. Returns false if the quota is exhausted. */
  spend(application: number, bytes: number): boolean {
    const record = this.#site.get('client_applications', application);
    const spent = this.spent(application);
    const callQuota = record?.call_quota ?? 0;
    const byteQuota = record?.byte_quota ?? 0;
    if (callQuota > 0 && spent.calls >= callQuota) return false;
    if (byteQuota > 0 && spent.bytes + bytes > byteQuota) return false;
    spent.calls++;
    spent.bytes += bytes;
    return true;
  }

  /** Starts a new quota period, for one application or for all. */
  reset(application?: number): void {
    if (application === undefined) this.#spent.clear();
    else this.#spent.delete(application);
  }

  spent(application: number): { calls: number; bytes: number } {
    const found = this.#spent.get(application);
    if (found) return found;
    const spent = { calls: 0, bytes: 0 };
    this.#spent.set(application, spent);
    return spent;
  }

  #over(name: string, limit: number): boolean {
    const count = (this.#counts.get(name) ?? 0) + 1;
    this.#counts.set(name, count);
    return limit > 0 && count > limit;
  }
}
