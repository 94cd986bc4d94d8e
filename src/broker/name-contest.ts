import type { Clock } from '../base/clock.ts';
import { codeOf } from '../base/errors.ts';

/** A connection that has ended. */
export interface EndedConnection {
  reason: unknown;
  sinceMs: number;
  sessionPresent: boolean;
  /** Whether the broker had not responded to all requests of this client. */
  wasResponsePending: boolean;
}

const HUNG_UP: ReadonlySet<string | undefined> = new Set(['broker.hung_up', 'ECONNRESET']);
/** Two agents with the same ID reconnect within a second, so a longer connection ended for another reason. */
const SHORT_MS = 5_000;
const WITHIN_MS = 120_000;
const STATED_AT_LEAST = 2;
const UNSTATED_AT_LEAST = 5;

/**
 * Detects another client with the same client id: each connection of one client ends the connection of the other. MQTT
 * 5 has a reason code for this case, which some brokers omit and MQTT 3.1.1 lacks. Without the code, the other client
 * is detected after several consecutive connections that the broker accepted with their session and closed within
 * seconds without a reason. Two other causes are ruled out. A restarting broker refuses connections for some time. A
 * broker that closes a connection because of a request does not respond to that request.
 */
export class NameContest {
  readonly #clock: Clock;
  #endsMs: number[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Records a failed connection attempt. */
  failed(): void {
    this.#endsMs = [];
  }

  /** Returns whether this and the previous connections indicate another client. */
  ended({ reason, sinceMs, sessionPresent, wasResponsePending }: EndedConnection): boolean {
    const nowMs = this.#clock.monotonicMs();
    const code = codeOf(reason);
    const isStated = code === 'broker.name_taken';
    if (!isStated && (!HUNG_UP.has(code) || !sessionPresent || nowMs - sinceMs > SHORT_MS)) {
      this.#endsMs = [];
      return false;
    }
    if (wasResponsePending && !isStated) return false;
    this.#endsMs = [...this.#endsMs.filter((endMs) => nowMs - endMs < WITHIN_MS), nowMs];
    return this.#endsMs.length >= (isStated ? STATED_AT_LEAST : UNSTATED_AT_LEAST);
  }
}
