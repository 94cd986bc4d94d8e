/**
 * Takes events that a relay published (`Relay`) into the inbox. Neither broker nor relay is trusted: each body is verified with the
 * webhook's secret, as the listener does it. What concerns other gateways is not written down. Whoever hands a message over confirms it
 * when `take` resolves: the event is on disk then, known, or of no use here. It rejects where the disk takes nothing, and the broker
 * keeps the message. A crash leaves nothing here.
 */
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { SIGNATURE_SHA1_HEADER, SIGNATURE_SHA256_HEADER } from '../contract/webhooks.ts';
import { GroupCommit, type InsertMany } from './group-commit.ts';
import { LISTENER_LIMITS } from './listener-limits.ts';
import { type ArrivedEvent, arrivalLine, readEvent } from './received-event.ts';
import { verifySignature } from './signature.ts';

export interface BrokerIntakeParts {
  insertMany: InsertMany;
  secrets: readonly string[];
  acceptSha1: boolean;
  /** Whether an event is for this gateway: by what its tags and reactions name, and whose access it tells of. */
  concerns(event: ArrivedEvent): boolean;
  clock: Clock;
  log: Logger;
  received(eventType: string): void;
  rejected(reason: 'signature_missing' | 'signature_wrong' | 'too_large'): void;
  /** One that concerns others. */
  passed(): void;
  inserted(): void;
}

export class BrokerIntake {
  readonly #parts: BrokerIntakeParts;
  readonly #commit: GroupCommit;
  readonly #repeats = new Repeats();

  constructor(parts: BrokerIntakeParts) {
    this.#parts = parts;
    this.#commit = new GroupCommit(parts.insertMany, LISTENER_LIMITS.waiting);
  }

  /** `header`: of the message, by its name in lower case. */
  async take(body: Uint8Array, header: (name: string) => string | undefined): Promise<void> {
    const { acceptSha1, clock, concerns, inserted, log, passed, received, secrets } = this.#parts;
    if (body.length > LISTENER_LIMITS.bodyBytes) return this.#reject('too_large');
    const headers = { sha256: header(SIGNATURE_SHA256_HEADER), sha1: header(SIGNATURE_SHA1_HEADER) };
    const verdict = verifySignature(headers, body, secrets, acceptSha1);
    if (!verdict.ok) return this.#reject(`signature_${verdict.reason}`);
    const event = readEvent(new Uint8Array(body), clock.wallMs());
    if (!concerns(event)) return passed();
    if ((await this.#commit.insert(event)) === 'seen') {
      log.debug({ ...arrivalLine(event, 'broker'), event: 'webhook.repeated' }, 'an event came again');
      return;
    }
    log.info(arrivalLine(event, 'broker'), 'an event is in the inbox');
    received(event.unrecognised ? 'unrecognised' : event.eventType);
    inserted();
  }

  #reject(reason: 'signature_missing' | 'signature_wrong' | 'too_large'): void {
    const { clock, log, rejected } = this.#parts;
    rejected(reason);
    const count = this.#repeats.note(reason, clock.monotonicMs());
    if (count === undefined) return;
    log.warn({ event: 'webhook.rejected', reason, via: 'broker', count }, 'an event from the broker was refused');
  }
}
