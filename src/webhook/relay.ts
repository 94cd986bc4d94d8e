/**
 * Publishes inbox events to a topic, for gateways without a public address. Messages contain the unchanged body and the
 * signatures of its delivery. An event without a valid signature (from the deliveries list, or after a rotation) is
 * signed with the current secret.
 *
 * A cursor on disk contains the ID of the latest published event; later events are not deleted from the inbox. After a
 * crash, some events are published again, and receivers recognise duplicates by their content.
 */
import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { fullJitterMs } from '../base/retry.ts';
import { SIGNATURE_SHA1_HEADER, SIGNATURE_SHA256_HEADER } from '../contract/webhooks.ts';
import { RELAYED_NOTE, type RelayedEvent } from './inbox-event.ts';
import { sign, verifySignature } from './signature.ts';

interface RelayInbox {
  toRelay(limit: number, afterId: number): Promise<RelayedEvent[]>;
  note(name: string): Promise<string | undefined>;
  setNote(name: string, value: string): Promise<void>;
  highestId(): Promise<number>;
}

export interface RelayParts {
  inbox: RelayInbox;
  /** Resolves when the broker has confirmed the message. `id` is unique per event. */
  publish(body: Uint8Array, headers: Readonly<Record<string, string>>, id: string, signal: AbortSignal): Promise<void>;
  secrets(): readonly string[];
  clock: Clock;
  log: Logger;
  relayed(count: number): void;
}

const PAGE = 64;
const RETRY = { baseMs: 500, capMs: 30_000 };

export class Relay {
  readonly #parts: RelayParts;
  readonly #repeats = new Repeats();
  readonly #stopping = new AbortController();
  #after = 0;
  /** Events after the cursor that the broker has confirmed (true), or that will not be published (false). */
  readonly #ahead = new Map<number, boolean>();
  #wanted = false;
  #work: Promise<void> | undefined;

  constructor(parts: RelayParts) {
    this.#parts = parts;
  }

  /** On first startup, begins with the next event. */
  async start(): Promise<void> {
    const { inbox } = this.#parts;
    const note = await inbox.note(RELAYED_NOTE);
    this.#after = note ? Number(note) : await inbox.highestId();
    if (!note) await inbox.setNote(RELAYED_NOTE, String(this.#after));
    this.wake();
  }

  /** Called after every insert into the inbox. Inexpensive. */
  wake(): void {
    if (this.#stopping.signal.aborted) return;
    this.#wanted = true;
    this.#work ??= this.#run().finally(() => {
      this.#work = undefined;
      if (this.#wanted) this.wake();
    });
  }

  async stop(): Promise<void> {
    this.#stopping.abort(new Error('the agent is stopping'));
    await this.#work;
  }

  async #run(): Promise<void> {
    const { clock } = this.#parts;
    const { signal } = this.#stopping;
    for (let failures = 0; this.#wanted && !signal.aborted; ) {
      this.#wanted = false;
      try {
        while (!signal.aborted && (await this.#publishSome()) > 0);
        this.#repeats.end('');
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        this.#wanted = true;
        this.#report(error);
        const waitMs = fullJitterMs(failures++, RETRY, () => clock.random(), 200);
        await clock.sleep(waitMs, signal).catch(() => {});
      }
    }
  }

  /**
   * Publishes a page of events and advances the cursor up to the first failure. Returns the number of events on the
   * page.
   */
  async #publishSome(): Promise<number> {
    const { inbox, secrets, relayed } = this.#parts;
    const current = secrets();
    if (current.length === 0) return 0;
    const page = await inbox.toRelay(PAGE, this.#after);
    if (page.length === 0) return 0;
    const left = page.filter(({ id }) => !this.#ahead.has(id));
    const outcomes = await Promise.allSettled(left.map((event) => this.#publish(event, current)));
    for (const [at, one] of outcomes.entries())
      if (one.status === 'fulfilled') this.#ahead.set(left[at]!.id, one.value);
    const failed = page.findIndex(({ id }) => !this.#ahead.has(id));
    const done = failed < 0 ? page : page.slice(0, failed);
    if (done.length > 0) {
      const { id } = done.at(-1)!;
      await inbox.setNote(RELAYED_NOTE, String(id));
      this.#after = id;
      relayed(done.filter((event) => this.#ahead.get(event.id)).length);
      for (const event of done) this.#ahead.delete(event.id);
    }
    const refused = outcomes.find((one) => one.status === 'rejected');
    if (refused) throw refused.reason;
    return page.length;
  }

  /**
   * Publishes an event. Returns whether the broker has confirmed it; `false` if the event is local or too large for the
   * broker.
   */
  async #publish(event: RelayedEvent, secrets: readonly string[]): Promise<boolean> {
    const { publish, log } = this.#parts;
    if (event.isLocal) return false;
    const id = Buffer.from(event.identity).toString('hex');
    try {
      await publish(event.payload, signaturesOf(event, secrets), id, this.#stopping.signal);
      return true;
    } catch (error) {
      if (codeOf(error) !== 'broker.too_large') throw error;
      const fields = { event: 'webhook.relay_too_large', id: event.id, bytes: event.payload.length };
      log.error({ ...fields, error: messageOf(error) }, 'event is too large for the broker, not relayed');
      return false;
    }
  }

  #report(error: unknown): void {
    const { clock, log } = this.#parts;
    const count = this.#repeats.note('', clock.monotonicMs());
    const fields = { event: 'webhook.relay_waits', code: codeOf(error), error: messageOf(error), count };
    log[count === undefined ? 'debug' : 'warn'](fields, 'failed to relay events, retrying');
  }
}

/** Returns the valid signatures of the delivery, always including SHA-256. */
function signaturesOf({ payload, signatures }: RelayedEvent, secrets: readonly string[]): Record<string, string> {
  const { sha256, sha1 } = signatures;
  const isGood = (headers: typeof signatures) => verifySignature(headers, payload, secrets, true).ok;
  return {
    [SIGNATURE_SHA256_HEADER]: sha256 && isGood({ sha256, sha1: undefined }) ? sha256 : sign(payload, secrets[0]!),
    ...(sha1 && isGood({ sha256: undefined, sha1 }) ? { [SIGNATURE_SHA1_HEADER]: sha1 } : {}),
  };
}
