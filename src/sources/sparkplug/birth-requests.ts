/**
 * Limits the requests for the birth certificate of one edge node: up to three without delay, and one more per minute.
 *
 * States: idle; awaiting (requested less than five seconds ago, no birth certificate since); delayed (the limit is
 * reached, and one request is scheduled). A birth certificate ends all but idle, so that a gap after it leads to a
 * request at once.
 */
import type { Clock } from '../../base/clock.ts';

export interface BirthRequestsOptions {
  clock: Clock;
  /** Sends the request. */
  send(reason: string): void;
}

/** Number of requests without delay. A large birth certificate can take much of a radio link. */
const BURST = 3;
const REFILL_MS = 60_000;
/** Time allowed for a response before the request is repeated. */
const RESPONSE_MS = 5_000;

export class BirthRequests {
  readonly #options: BirthRequestsOptions;
  #allowed = BURST;
  #refilledMs: number;
  #awaitedUntilMs = Number.NEGATIVE_INFINITY;
  #cancelDelayed: (() => void) | undefined;

  constructor(options: BirthRequestsOptions) {
    this.#options = options;
    this.#refilledMs = options.clock.monotonicMs();
  }

  /** Requests the birth certificate, or schedules the request if the limit is reached. */
  request(reason: string): void {
    const { clock, send } = this.#options;
    const nowMs = clock.monotonicMs();
    if (this.#cancelDelayed !== undefined || nowMs < this.#awaitedUntilMs) return;
    this.#refill(nowMs);
    if (this.#allowed === 0) {
      this.#cancelDelayed = clock.after(this.#refilledMs + REFILL_MS - nowMs, () => {
        this.#cancelDelayed = undefined;
        this.request(reason);
      });
      return;
    }
    this.#allowed--;
    this.#awaitedUntilMs = nowMs + RESPONSE_MS;
    send(reason);
  }

  /** Requests the birth certificate at once, because a new connection invalidates the requests on the previous one. */
  requestNow(reason: string): void {
    this.cancel();
    this.#allowed = Math.max(1, this.#allowed);
    this.request(reason);
  }

  /** Records a birth certificate, or that the request could not be sent. */
  cancel(): void {
    this.#cancelDelayed?.();
    this.#cancelDelayed = undefined;
    this.#awaitedUntilMs = Number.NEGATIVE_INFINITY;
  }

  #refill(nowMs: number): void {
    const minutes = Math.floor((nowMs - this.#refilledMs) / REFILL_MS);
    this.#allowed = Math.min(BURST, this.#allowed + minutes);
    this.#refilledMs = this.#allowed === BURST ? nowMs : this.#refilledMs + minutes * REFILL_MS;
  }
}
