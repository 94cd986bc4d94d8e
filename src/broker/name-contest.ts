import type { Clock } from '../base/clock.ts';
import { codeOf } from '../base/errors.ts';

/** A connection that has ended. */
export interface EndedConnection {
  reason: unknown;
  sinceMs: number;
  sessionPresent: boolean;
  /** The broker had not responded to all requests of this client. */
  wasAnswerPending: boolean;
}

const HUNG_UP: ReadonlySet<string | undefined> = new Set(['broker.hung_up', 'ECONNRESET']);
/** Two agents reconnect within a second. A connection that lasted longer has another cause. */
const SHORT_MS = 5_000;
const WITHIN_MS = 120_000;
const STATED_AT_LEAST = 2;
const UNSTATED_AT_LEAST = 5;

/**
 * Recognises another client with the client id of this one: each connection of one ends the connection of the other. MQTT 5 has a reason
 * code for it, which some brokers do not send and MQTT 3.1.1 does not have. Without it the pattern tells: several connections in a row that
 * the broker accepted with their session and closed within seconds without a reason. A broker that is restarted refuses connections
 * meanwhile, and one that closes because of a request leaves that request without an answer.
 */
export class NameContest {
  readonly #clock: Clock;
  #endsMs: number[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** No connection could be made. */
  failed(): void {
    this.#endsMs = [];
  }

  /** Whether it, with those before it, shows another client. */
  ended({ reason, sinceMs, sessionPresent, wasAnswerPending }: EndedConnection): boolean {
    const nowMs = this.#clock.monotonicMs();
    const code = codeOf(reason);
    const isStated = code === 'broker.name_taken';
    if (!isStated && (!HUNG_UP.has(code) || !sessionPresent || nowMs - sinceMs > SHORT_MS)) {
      this.#endsMs = [];
      return false;
    }
    if (wasAnswerPending && !isStated) return false;
    this.#endsMs = [...this.#endsMs.filter((endMs) => nowMs - endMs < WITHIN_MS), nowMs];
    return this.#endsMs.length >= (isStated ? STATED_AT_LEAST : UNSTATED_AT_LEAST);
  }
}
