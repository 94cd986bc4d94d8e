import { INBOUND_LIMITS, type InboundLimits } from '../base/inbound/inbound-server.ts';

/** Bounds of the listener: it faces the internet, or a proxy that passes it on. */
export interface ListenerLimits extends InboundLimits {
  /** docs/interface.md, settled details: over this it answers 413. */
  bodyBytes: number;
  /** Requests a second in the long run, and at once: four times the goal of 500 deliveries a second. */
  requestsPerSecond: number;
  burst: number;
  /** Bytes of bodies being read at one time: follows the memory that the unit allows. */
  bytesUnderWay: number;
  /** Events that may wait for one commit. */
  waiting: number;
  /** A disk that takes longer than this is answered for with 503, within the sender's 10 s; it tries again and is recognised. */
  commitMs: number;
}

export const LISTENER_LIMITS: ListenerLimits = {
  ...INBOUND_LIMITS,
  bodyBytes: 1024 * 1024,
  requestsPerSecond: 2_000,
  burst: 4_000,
  bytesUnderWay: 32 * 1024 * 1024,
  waiting: 4_096,
  commitMs: 8_000,
};

/** Tokens that come back evenly; one is taken for each request. */
export class TokenBucket {
  readonly #perMs: number;
  readonly #max: number;
  #tokens: number;
  #atMs: number;

  constructor(perSecond: number, burst: number, monotonicMs: number) {
    this.#perMs = perSecond / 1000;
    this.#max = burst;
    this.#tokens = burst;
    this.#atMs = monotonicMs;
  }

  take(monotonicMs: number): boolean {
    this.#tokens = Math.min(this.#max, this.#tokens + (monotonicMs - this.#atMs) * this.#perMs);
    this.#atMs = monotonicMs;
    if (this.#tokens < 1) return false;
    this.#tokens--;
    return true;
  }
}
