import type { Clock } from '../base/clock.ts';
import { messageOf, TagferryError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { ApiCalls } from '../platform/client.ts';
import { Webhooks } from '../platform/resources/webhooks.ts';
import { CallRefusal } from '../platform/response-meanings.ts';
import type { Arrivals } from './arrivals.ts';
import { type ArrivalPage, readArrivals } from './delivery-list.ts';
import { PeriodicCheck } from './periodic-check.ts';
import type { ArrivedEvent } from './received-event.ts';
import type { Registered } from './registration-file.ts';
import { advance, parseWatermark, planPass, WATERMARK_NOTE, type Watermark } from './watermark.ts';

/**
 * Fetches events that were not delivered. Reads the deliveries list and inserts unknown events into the inbox, with the
 * same identity as delivered events. Runs after startup, after outages, and at the interval WEBHOOK_POLL. Without the
 * listener, this is the only source of events.
 *
 * The only state on disk is the watermark (`watermark.ts`), which is advanced after a complete pass. After a crash, the
 * pass is repeated.
 */
export interface CatchUpInbox {
  seen(digests: Uint8Array[]): Promise<boolean[]>;
  asked(deliveries: Uint8Array[]): Promise<{ times: number; agoMs: number }[]>;
  markAsked(deliveries: Uint8Array[]): Promise<void>;
  note(name: string): Promise<string | undefined>;
  setNote(name: string, value: string): Promise<void>;
}

export interface CatchUpParts {
  platform: ApiCalls;
  inbox: CatchUpInbox;
  arrivals: Pick<Arrivals, 'storePage'>;
  /** Returns the registered webhook, or `undefined` before the registration. */
  registered: () => Registered | undefined;
  /** Called when the webhook no longer exists on the platform. */
  lost?: () => void;
  clock: Clock;
  log: Logger;
  /** Called with the identities of the listed events. */
  listed?: (identities: readonly Uint8Array[]) => void;
}

export interface CatchUpOptions {
  /** WEBHOOK_POLL in milliseconds. If 0, the list is read only when `catchUpNow` is called. */
  pollMs: number;
  /** Whether the listener is enabled, so that resends can be requested. */
  listening: boolean;
}

export interface CatchUpReport {
  listed: number;
  /** Number of events added to the inbox. */
  taken: number;
  /** Number of entries without a payload for which the platform accepted a resend request. */
  asked: number;
  /** Number of entries without a payload for which the platform rejected a resend request. */
  rejected: number;
}

const RETRY = { baseMs: 2_000, capMs: 60_000 };
/**
 * Maximum number of resend requests per delivery, at least a day apart. Each request restarts the platform's three-day
 * retry schedule.
 */
const MAX_ASKS = 3;
const ASK_AGAIN_AFTER_MS = 86_400_000;
/** Maximum number of IDs per request. */
const ASK_BATCH = 100;

export class CatchUp {
  readonly #options: CatchUpOptions;
  readonly #parts: CatchUpParts;
  #lastPass: Promise<unknown> = Promise.resolve();
  #queued: Promise<CatchUpReport> | undefined;
  readonly #stopping = new AbortController();
  readonly #passes: PeriodicCheck;

  constructor(options: CatchUpOptions, parts: CatchUpParts) {
    this.#options = options;
    this.#parts = parts;
    this.#passes = new PeriodicCheck({
      check: () => this.catchUpNow(),
      isPossible: () => parts.registered() !== undefined,
      everyMs: options.pollMs,
      retry: RETRY,
      failed: { event: 'webhook.catch_up_failed', message: 'failed to read the deliveries list, retrying' },
      restored: { event: 'webhook.catch_up_restored', message: 'deliveries list restored' },
      clock: parts.clock,
      log: parts.log,
    });
  }

  start(signal: AbortSignal): void {
    signal.addEventListener('abort', () => this.#stopping.abort(), { once: true });
    if (this.#options.pollMs > 0) this.#passes.start(this.#stopping.signal);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#passes.stop();
  }

  /** Starts a pass soon, for example after an outage. */
  readSoon(): void {
    this.#passes.runSoon();
  }

  /** Called when the webhook is registered. Starts a pass if none has run since startup. */
  nowRegistered(): void {
    this.#passes.nowPossible();
  }

  /**
   * Runs a pass that begins after this call. Callers that wait at the same time share a pass. Throws
   * `webhook.not_registered`, and errors from the platform client and the inbox.
   */
  catchUpNow(): Promise<CatchUpReport> {
    if (this.#queued) return this.#queued;
    const pass = this.#lastPass.then(() => {
      this.#queued = undefined;
      return this.#pass(this.#stopping.signal);
    });
    this.#queued = pass;
    this.#lastPass = pass.catch(() => {});
    return pass;
  }

  async #pass(signal: AbortSignal): Promise<CatchUpReport> {
    const registered = this.#parts.registered();
    if (!registered) throw notRegistered();
    const mark = parseWatermark(await this.#parts.inbox.note(WATERMARK_NOTE));
    const plan = planPass(mark, registered.scope, this.#parts.platform.platformClock.nowMs());
    const report: CatchUpReport = { listed: 0, taken: 0, asked: 0, rejected: 0 };
    let newestMs: number | undefined;
    let beganMs: number | undefined;
    try {
      const { platform, clock } = this.#parts;
      const pages = readArrivals(platform, registered, plan.fromMs, () => clock.wallMs(), signal);
      for await (const page of pages) {
        beganMs ??= page.platformMs;
        newestMs = newest(newestMs, page.events);
        report.listed += page.listed;
        this.#parts.listed?.(page.events.map(({ identity }) => identity));
        report.taken += await this.#parts.arrivals.storePage(page.events, 'list');
        const { asked, rejected } = await this.#requestResends(registered, page.bare, signal);
        report.asked += asked;
        report.rejected += rejected;
      }
    } catch (error) {
      if (error instanceof CallRefusal && error.status === 404) this.#parts.lost?.();
      throw error;
    }
    await this.#saveWatermark(
      mark,
      advance(mark, registered.scope, { deep: plan.deep, newestMs, platformMs: beganMs }),
    );
    const level = report.taken + report.asked + report.rejected > 0 ? 'info' : 'debug';
    this.#parts.log[level]({ event: 'webhook.caught_up', ...report }, 'deliveries list read');
    return report;
  }

  /** Requests a resend of listed deliveries that have no payload and never arrived. The listener receives them. */
  async #requestResends(
    registered: Registered,
    bare: ArrivalPage['bare'],
    signal: AbortSignal,
  ): Promise<Pick<CatchUpReport, 'asked' | 'rejected'>> {
    const outcome = { asked: 0, rejected: 0 };
    if (bare.length === 0 || !this.#options.listening) return outcome;
    const digests = bare.map(({ delivery }) => delivery);
    const [seen, asked] = [await this.#parts.inbox.seen(digests), await this.#parts.inbox.asked(digests)];
    const wanted = bare.filter((_, i) => {
      const { times, agoMs } = asked[i] ?? { times: 0, agoMs: Number.POSITIVE_INFINITY };
      return !seen[i] && times < MAX_ASKS && (times === 0 || agoMs >= ASK_AGAIN_AFTER_MS);
    });
    const webhooks = new Webhooks(this.#parts.platform, registered.application);
    for (let i = 0; i < wanted.length; i += ASK_BATCH) {
      const batch = wanted.slice(i, i + ASK_BATCH);
      const ids = batch.map(({ id }) => id);
      try {
        await webhooks.resend(registered.webhook, ids, signal);
        outcome.asked += ids.length;
      } catch (error) {
        // A permanently rejected ID must not prevent the pass from completing.
        if (!(error instanceof CallRefusal) || error.retryable) throw error;
        const fields = { event: 'webhook.resend_refused', deliveries: ids.length, error: messageOf(error) };
        this.#parts.log.warn(fields, 'resend request rejected for deliveries without a payload');
        outcome.rejected += ids.length;
      }
      await this.#parts.inbox.markAsked(batch.map(({ delivery }) => delivery));
    }
    return outcome;
  }

  async #saveWatermark(before: Watermark | undefined, after: Watermark | undefined): Promise<void> {
    // Commit only changes, because an idle gateway polls 288 times a day.
    const text = JSON.stringify(after);
    if (after && text !== JSON.stringify(before)) await this.#parts.inbox.setNote(WATERMARK_NOTE, text);
  }
}

function newest(before: number | undefined, events: readonly ArrivedEvent[]): number | undefined {
  let latest = before;
  for (const { occurredAtMs } of events) {
    if (occurredAtMs !== undefined && (latest === undefined || occurredAtMs > latest)) latest = occurredAtMs;
  }
  return latest;
}

function notRegistered(): TagferryError {
  return new TagferryError('cannot read deliveries: no webhook is registered', {
    code: 'webhook.not_registered',
    retryable: true,
    hint: 'Set WEBHOOK_URL. Run `tagferry webhook ls` to list the webhooks on the platform.',
  });
}
