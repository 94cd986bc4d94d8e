import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, TagferryError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { fullJitterMs } from '../base/retry.ts';
import type { Tag } from '../config/tags.ts';
import { type ArrivedAccessEvent, associatedAsset, type OwnUser, readVisibility, userOf } from './access-event.ts';
import type { ArrivedVisibility, HeldObject, HoldChange } from './access-table.ts';

/** Holds that events change; implemented by the uplink. */
export interface EventHolds {
  /** Applies an event that is on disk. */
  applied(change: HoldChange): void;
  /** Probes an object soon, if it is held. */
  probe(object: HeldObject): void;
  /** Probes all held objects soon. */
  tryNow(): void;
}

export interface FollowerOptions {
  /** Returns a page of access events with IDs above `afterId`, oldest first; empty at the end of the inbox. */
  feed: { ofAccess(limit: number, afterId: number): Promise<ArrivedAccessEvent[]> };
  store: { apply(event: ArrivedVisibility): Promise<HoldChange | undefined> };
  holds: EventHolds;
  tags(): Iterable<Tag>;
  user(): OwnUser | undefined;
  /** Whether a relay delivers the events of all users. */
  isRelayed: boolean;
  clock: Clock;
  logger: Logger;
}

const PAGE = 64;
const MAX_TRIES = 8;
const RETRY = { baseMs: 1_000, capMs: 30_000 };

/**
 * Reads access events from the inbox with its own cursor, so that slow reactions do not delay holds and releases.
 *
 * An event takes effect after it is on disk. The cursor is stored with the holds (`AccessTable`), so a crash repeats only
 * events that caused no change. If an event cannot be written to the disk, it is retried before later events are read.
 * If it fails for another reason, it is skipped after MAX_TRIES attempts.
 */
export class AccessFollower {
  readonly #options: FollowerOptions;
  readonly #repeats = new Repeats();
  readonly #stopping = new AbortController();
  readonly #lostNodes = new Map<number, number>();
  readonly #warned = new Set<string>();
  #after = 0;
  #wanted = false;
  #reading: Promise<void> | undefined;

  constructor(options: FollowerOptions) {
    this.#options = options;
  }

  /** Nodes that disappeared, for `status`; their assets have their own events. Times are ISO 8601. */
  lostNodes(): { node: number; since: string }[] {
    return [...this.#lostNodes].map(([node, sinceMs]) => ({ node, since: new Date(sinceMs).toISOString() }));
  }

  /** Starts after the stored cursor. The holds must be started first. */
  start({ cursor, lostNodes }: { cursor: number; lostNodes: readonly { node: number; sinceMs: number }[] }): void {
    for (const { node, sinceMs } of lostNodes) this.#lostNodes.set(node, sinceMs);
    this.#after = cursor;
    this.wake();
  }

  /** Starts reading new events in the inbox. Cheap enough to call after every insert. */
  wake(): void {
    if (this.#stopping.signal.aborted) return;
    this.#wanted = true;
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
      if (this.#wanted) this.wake();
    });
  }

  /** Resolves when all events in the inbox have been read. */
  async idle(): Promise<void> {
    while (this.#reading) await this.#reading;
  }

  async stop(): Promise<void> {
    this.#stopping.abort(new Error('the agent is stopping'));
    await this.#reading;
  }

  async #read(): Promise<void> {
    const { clock, feed } = this.#options;
    let failures = 0;
    /** Failed attempts on the next event, excluding retryable errors such as a full disk. */
    let tries = 0;
    while (this.#wanted && !this.#stopping.signal.aborted) {
      this.#wanted = false;
      try {
        for (let page = await feed.ofAccess(PAGE, this.#after); page.length > 0; ) {
          for (const event of page) {
            if (this.#stopping.signal.aborted) return;
            if (tries < MAX_TRIES) await this.#apply(event);
            else this.#logSkipped(event);
            this.#after = event.id;
            tries = 0;
          }
          page = await feed.ofAccess(PAGE, this.#after);
        }
        failures = 0;
        this.#repeats.end('');
      } catch (error) {
        this.#wanted = true;
        if (!(error instanceof TagferryError && error.retryable)) tries++;
        this.#logFailure(error);
        const waitMs = fullJitterMs(failures++, RETRY, () => clock.random(), 500);
        await clock.sleep(waitMs, this.#stopping.signal).catch(() => {});
      }
    }
  }

  async #apply(event: ArrivedAccessEvent): Promise<void> {
    const { clock, holds, logger, store } = this.#options;
    const associated = associatedAsset(event);
    if (associated !== undefined) return holds.probe({ kind: 'asset', id: associated });
    const read = readVisibility(event);
    if (!read) return;
    const { object: kind, id, gone } = read;
    const whose = this.#whose(event);
    // The next response shows whether the event also concerns this user.
    if (whose === 'another') return kind === 'node' ? undefined : holds.probe({ kind, id });
    const change = await store.apply({
      ...read,
      cursor: event.id,
      wallMs: clock.wallMs(),
      related: this.#relatedTo(kind, id),
      isDoubtful: whose === 'unknown',
    });
    if (!change) return;
    holds.applied(change);
    if (kind !== 'node') return;
    if (gone) {
      this.#lostNodes.set(id, clock.wallMs());
      logger.info({ event: 'access.node_lost', node: id }, 'node disappeared');
    } else {
      this.#lostNodes.delete(id);
      logger.info({ event: 'access.node_found', node: id }, 'node appeared, retrying held assets');
      holds.tryNow();
    }
  }

  /**
   * Returns whether the event concerns the own, an unknown or another user. A webhook receives only events for the
   * technical user of its subscription, so without a relay, an event without a user concerns this gateway's user.
   */
  #whose({ eventType, envelope }: ArrivedAccessEvent): 'own' | 'unknown' | 'another' {
    const { user, isRelayed } = this.#options;
    const own = user();
    const named = userOf(envelope);
    if (own === undefined && isRelayed) {
      const hint = 'Set TECHNICAL_USER_ID to the ID of the technical user.';
      this.#warnOnce('access.user_unknown', { hint }, 'technical user unknown, access events ignored');
      return 'another';
    }
    if (named === undefined) return isRelayed ? 'another' : 'own';
    if (own === undefined) return 'unknown';
    if (named === own.id) return 'own';
    const hint =
      'Check that TECHNICAL_USER_ID is correct and that the webhook belongs to the subscription of this user.';
    const facts = { eventType, user: named, ownUser: own.id, hint };
    if (!isRelayed) this.#warnOnce('access.other_user', facts, 'access events of another user ignored');
    return 'another';
  }

  #relatedTo(kind: string, id: number): number[] {
    if (kind === 'node') return [];
    const tags = [...this.#options.tags()];
    const related =
      kind === 'asset'
        ? tags.filter((tag) => tag.asset === id).map((tag) => tag.instrumentation)
        : tags.filter((tag) => tag.instrumentation === id).map((tag) => tag.asset);
    return [...new Set(related.filter((one) => one !== undefined))];
  }

  #warnOnce(event: string, facts: Record<string, unknown>, message: string): void {
    if (!this.#warned.has(event)) this.#options.logger.warn({ event, ...facts }, message);
    this.#warned.add(event);
  }

  #logSkipped({ id, eventType }: ArrivedAccessEvent): void {
    this.#options.logger.error(
      { event: 'access.passed_over', inboxId: id, eventType },
      "access event skipped after repeated failures, the platform's responses now determine access",
    );
  }

  #logFailure(error: unknown): void {
    const { clock, logger } = this.#options;
    const count = this.#repeats.note(`${codeOf(error)}`, clock.monotonicMs());
    const fields = { event: 'access.waiting', code: codeOf(error), error: messageOf(error), count };
    logger[count === undefined ? 'debug' : 'warn'](fields, 'failed to store an access event, retrying');
  }
}
