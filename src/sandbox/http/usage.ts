import type { SandboxClock } from '../sandbox-clock.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { Caller } from './call.ts';
import { refusal } from './refusal.ts';

export interface UsageLimits {
  /** Requests a minute (platform 10.3); 0 is none. */
  perUser?: number;
  perApiKey?: number;
  perAddress?: number;
  /** Send `Retry-After` with 429; the platform was not seen to. */
  retryAfter?: boolean;
}

/**
 * Rate limits and the subscription's quota. A rate is counted in whole minutes of the sandbox's clock: over it every
 * call is 429 "until a new minute starts". The quota counts API calls, webhook calls and webhook bytes (platform 6.1).
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

  /** Counts an API call; throws the 429 or 402 that it is answered. */
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
    if (!this.spend(caller.application, 0)) throw refusal(402, 'the subscription’s quota is spent');
  }

  /** Until a new minute starts, in the caller's milliseconds, as everything that a client waits for. */
  leftOfMinuteMs(): number {
    return (60_000 - (this.#clock.wallMs() % 60_000)) / this.#clock.speed;
  }

  /** Counts one call and its bytes against the quota; `false` where it is spent. */
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

  /** For the state file. */
  snapshot(): [application: number, spent: { calls: number; bytes: number }][] {
    return [...this.#spent];
  }

  restore(spent: ReturnType<Usage['snapshot']>): void {
    for (const [application, one] of spent) this.#spent.set(application, one);
  }

  /** A new period begins, for one application or for all. */
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
