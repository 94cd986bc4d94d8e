/** Bounds of the listener: it faces the internet, or a proxy that passes it on. */
export interface ListenerLimits {
  /** INTERFACE.md, settled details: over this it answers 413. */
  bodyBytes: number;
  /** Four times what a proxy adds to the platform's few headers. */
  headerBytes: number;
  /** For all headers to arrive. */
  headerMs: number;
  /** For the whole request: 1 MiB over a bad mobile link. */
  requestMs: number;
  keepAliveMs: number;
  connections: number;
  /** How often an address in use is tried again, a second apart. */
  listenRetries: number;
  /** Requests a second in the long run, and at once: four times the goal of 500 deliveries a second. */
  requestsPerSecond: number;
  burst: number;
  /** Bytes of bodies being read at one time: a gateway has little memory. */
  bytesUnderWay: number;
  /** Events that may wait for one commit. */
  waiting: number;
  /** A disk that takes longer than this is answered for with 503; the platform tries again and is recognised. */
  commitMs: number;
  /** For requests under way at stop. */
  drainMs: number;
}

export const LISTENER_LIMITS: ListenerLimits = {
  bodyBytes: 1024 * 1024,
  headerBytes: 16 * 1024,
  headerMs: 10_000,
  requestMs: 30_000,
  keepAliveMs: 65_000,
  connections: 256,
  listenRetries: 10,
  requestsPerSecond: 2_000,
  burst: 4_000,
  bytesUnderWay: 32 * 1024 * 1024,
  waiting: 4_096,
  commitMs: 20_000,
  drainMs: 5_000,
};

/** Tokens that come back evenly; one is taken for each request. */
export class TokenBucket {
  readonly #perMs: number;
  readonly #most: number;
  #tokens: number;
  #atMs: number;

  constructor(perSecond: number, burst: number, monotonicMs: number) {
    this.#perMs = perSecond / 1000;
    this.#most = burst;
    this.#tokens = burst;
    this.#atMs = monotonicMs;
  }

  take(monotonicMs: number): boolean {
    this.#tokens = Math.min(this.#most, this.#tokens + (monotonicMs - this.#atMs) * this.#perMs);
    this.#atMs = monotonicMs;
    if (this.#tokens < 1) return false;
    this.#tokens--;
    return true;
  }
}
