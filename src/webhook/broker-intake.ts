/**
 * Receives relayed events (`Relay`) from a broker. The relay and the broker are not trusted: each body is verified with
 * the webhook secret, as in the listener. Events that are not relevant to this gateway are not stored. `receive`
 * resolves when the caller may confirm the message, and rejects if the disk is not writable.
 */
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { SIGNATURE_SHA1_HEADER, SIGNATURE_SHA256_HEADER } from '../contract/webhooks.ts';
import type { Arrivals } from './arrivals.ts';
import { REQUEST_LIMITS } from './listener.ts';
import { type ArrivedEvent, readEvent } from './received-event.ts';
import { verifySignature } from './signature.ts';

export interface BrokerIntakeParts {
  arrivals: Pick<Arrivals, 'store'>;
  secrets: readonly string[];
  acceptSha1: boolean;
  /** Returns whether an event is relevant to the tags, reactions or access of this gateway. */
  concerns(event: ArrivedEvent): boolean;
  clock: Clock;
  log: Logger;
  rejected(reason: 'signature_missing' | 'signature_wrong' | 'too_large'): void;
  /** Called when an event was ignored because it is not relevant to this gateway. */
  passed(): void;
}

export class BrokerIntake {
  readonly #parts: BrokerIntakeParts;
  readonly #repeats = new Repeats();

  constructor(parts: BrokerIntakeParts) {
    this.#parts = parts;
  }

  /** `header` returns a message header by its lower-case name. */
  async receive(body: Uint8Array, header: (name: string) => string | undefined): Promise<void> {
    const { acceptSha1, arrivals, clock, concerns, passed, secrets } = this.#parts;
    if (body.length > REQUEST_LIMITS.bodyBytes) return this.#reject('too_large');
    const headers = { sha256: header(SIGNATURE_SHA256_HEADER), sha1: header(SIGNATURE_SHA1_HEADER) };
    const verdict = verifySignature(headers, body, secrets, acceptSha1);
    if (!verdict.ok) return this.#reject(`signature_${verdict.reason}`);
    const event = readEvent(new Uint8Array(body), clock.wallMs());
    if (!concerns(event)) return passed();
    await arrivals.store(event, 'broker');
  }

  #reject(reason: 'signature_missing' | 'signature_wrong' | 'too_large'): void {
    const { clock, log, rejected } = this.#parts;
    rejected(reason);
    const count = this.#repeats.note(reason, clock.monotonicMs());
    if (count === undefined) return;
    log.warn({ event: 'webhook.rejected', reason, via: 'broker', count }, 'event from the broker rejected');
  }
}
