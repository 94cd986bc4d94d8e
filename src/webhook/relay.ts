/**
 * Publishes what the inbox takes to a topic, for gateways without a public address: the body as it came, with the platform's signatures as
 * they came with it. What has none that is still good (the deliveries list has none, a secret was changed meanwhile) is signed with the
 * secret in force, so that whoever takes it verifies it in the same way.
 *
 * A cursor on disk says how far it has come; nothing above it leaves the inbox. A crash publishes some events a second time, which those
 * who take them know by their content.
 */
import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { fullJitterMs } from '../base/retry.ts';
import { SIGNATURE_SHA1_HEADER, SIGNATURE_SHA256_HEADER } from '../contract/webhooks.ts';
import { RELAYED_NOTE, type RelayedEvent } from './relayed-note.ts';
import { sign, verifySignature } from './signature.ts';

interface RelayInbox {
  toRelay(limit: number, afterId: number): Promise<RelayedEvent[]>;
  note(name: string): Promise<string | undefined>;
  setNote(name: string, value: string): Promise<void>;
  highestId(): Promise<number>;
}

export interface RelayParts {
  inbox: RelayInbox;
  /** Resolves once the broker has it. `id`: the same for the same event. */
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
  /** Beyond the cursor, while one before them fails: what the broker has (true), and what it takes at no time (false). */
  readonly #ahead = new Map<number, boolean>();
  #wanted = false;
  #work: Promise<void> | undefined;

  constructor(parts: RelayParts) {
    this.#parts = parts;
  }

  /** Events that were there before the first start of the relay stay here. */
  async start(): Promise<void> {
    const { inbox } = this.#parts;
    const note = await inbox.note(RELAYED_NOTE);
    this.#after = note ? Number(note) : await inbox.highestId();
    if (!note) await inbox.setNote(RELAYED_NOTE, String(this.#after));
    this.wake();
  }

  /** There is something new in the inbox. Cheap; call it after every insert. */
  wake(): void {
    if (this.#stopping.signal.aborted) return;
    this.#wanted = true;
    this.#work ??= this.#run().finally(() => {
      this.#work = undefined;
      if (this.#wanted) this.wake();
    });
  }

  async stop(): Promise<void> {
    this.#stopping.abort(new Error('the agent stops'));
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
        this.#say(error);
        const waitMs = fullJitterMs(failures++, RETRY, () => clock.random(), 200);
        await clock.sleep(waitMs, signal).catch(() => {});
      }
    }
  }

  /** Gives how many there were. The cursor moves up to the first that is not with the broker. */
  async #publishSome(): Promise<number> {
    const { inbox, secrets, relayed } = this.#parts;
    const inForce = secrets();
    if (inForce.length === 0) return 0;
    const page = await inbox.toRelay(PAGE, this.#after);
    if (page.length === 0) return 0;
    const left = page.filter(({ id }) => !this.#ahead.has(id));
    const outcomes = await Promise.allSettled(left.map((event) => this.#publish(event, inForce)));
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

  /** Gives whether the broker has it. One that it takes at no time holds up no other. */
  async #publish(event: RelayedEvent, secrets: readonly string[]): Promise<boolean> {
    const { publish, log } = this.#parts;
    const id = Buffer.from(event.identity).toString('hex');
    try {
      await publish(event.payload, signaturesOf(event, secrets), id, this.#stopping.signal);
      return true;
    } catch (error) {
      if (codeOf(error) !== 'broker.too_large') throw error;
      const fields = { event: 'webhook.relay_too_large', id: event.id, bytes: event.payload.length };
      log.error({ ...fields, error: messageOf(error) }, 'an event is too large for the broker, and no gateway gets it');
      return false;
    }
  }

  #say(error: unknown): void {
    const { clock, log } = this.#parts;
    const count = this.#repeats.note('', clock.monotonicMs());
    const fields = { event: 'webhook.relay_waits', code: codeOf(error), error: messageOf(error), count };
    log[count === undefined ? 'debug' : 'warn'](
      fields,
      'events wait here for the broker that takes them to the gateways',
    );
  }
}

/** As they came, where they are good by a secret that is in force; a signature by SHA-256 in any case. */
function signaturesOf({ payload, signatures }: RelayedEvent, secrets: readonly string[]): Record<string, string> {
  const { sha256, sha1 } = signatures;
  const isGood = (headers: typeof signatures) => verifySignature(headers, payload, secrets, true).ok;
  return {
    [SIGNATURE_SHA256_HEADER]: sha256 && isGood({ sha256, sha1: undefined }) ? sha256 : sign(payload, secrets[0]!),
    ...(sha1 && isGood({ sha256: undefined, sha1 }) ? { [SIGNATURE_SHA1_HEADER]: sha1 } : {}),
  };
}
