import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, TagferryError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { fullJitterMs } from '../base/retry.ts';
import { CallRefusal } from '../platform/call-refusal.ts';
import type { ApiCalls } from '../platform/client.ts';
import { Webhooks } from '../platform/resources/webhooks.ts';
import { type ArrivalPage, readArrivals } from './delivery-list.ts';
import { type ArrivedEvent, arrivalLine } from './received-event.ts';
import type { Registered } from './registration-file.ts';
import { advance, parseWatermark, planPass, WATERMARK_NOTE, type Watermark } from './watermark.ts';

/**
 * Fetches what did not arrive: reads the deliveries list and puts into the inbox what was never seen, by the same identity as what is
 * pushed (docs/architecture.md, must always hold 7). Runs after the start, after outages and every WEBHOOK_POLL; with the listener off it is the
 * only way in. `watermark.ts` says from where.
 *
 * The only state on disk is the watermark, moved after a complete pass. A crash in the middle of a pass repeats it: what it had
 * put in is recognised.
 */
export interface CatchUpInbox {
  insertMany(events: ArrivedEvent[]): Promise<('new' | 'seen')[]>;
  seen(digests: Uint8Array[]): Promise<boolean[]>;
  asked(deliveries: Uint8Array[]): Promise<{ times: number; agoMs: number }[]>;
  markAsked(deliveries: Uint8Array[]): Promise<void>;
  note(name: string): Promise<string | undefined>;
  setNote(name: string, value: string): Promise<void>;
}

export interface CatchUpParts {
  platform: ApiCalls;
  inbox: CatchUpInbox;
  /** The webhook, once it is registered. */
  registered: () => Registered | undefined;
  /** The platform does not know the webhook any more. */
  lost?: () => void;
  clock: Clock;
  log: Logger;
  /** As for the listener. */
  received?: (eventType: string) => void;
  inserted?: () => void;
  /** The list contains events with these identities. */
  listed?: (identities: readonly Uint8Array[]) => void;
}

export interface CatchUpOptions {
  /** WEBHOOK_POLL in milliseconds; 0 reads only when `catchUpNow` is called. */
  pollMs: number;
  /** Whether deliveries can come in: only then is it of use to ask for one again. */
  listening: boolean;
}

export interface CatchUpReport {
  listed: number;
  /** New in the inbox. */
  taken: number;
  /** Resends that the platform accepted, for entries without a payload. */
  asked: number;
  /** Resends that the platform rejected. */
  rejected: number;
}

const RETRY = { baseMs: 2_000, capMs: 60_000 };
/** Each ask starts the platform's schedule of three days anew: three of them, a day and more apart, and it is given up. */
const MAX_ASKS = 3;
const ASK_AGAIN_AFTER_MS = 86_400_000;
/** Ids in one request. */
const ASK_BATCH = 100;

export class CatchUp {
  readonly #options: CatchUpOptions;
  readonly #parts: CatchUpParts;
  #lastPass: Promise<unknown> = Promise.resolve();
  #queued: Promise<CatchUpReport> | undefined;
  #loop: Promise<void> | undefined;
  readonly #stopping = new AbortController();
  #wake: () => void = () => {};
  #soon = true;

  constructor(options: CatchUpOptions, parts: CatchUpParts) {
    this.#options = options;
    this.#parts = parts;
  }

  start(signal: AbortSignal): void {
    signal.addEventListener('abort', () => this.#stopping.abort(), { once: true });
    if (this.#options.pollMs > 0) this.#loop ??= this.#run(this.#stopping.signal);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#loop;
  }

  /** The webhook is registered, or an outage is over: what waited for that is read now. Cheap to call often. */
  readSoon(): void {
    this.#soon = true;
    this.#wake();
  }

  /** The webhook was found or made; reads only where nothing was read since the start. */
  nowRegistered(): void {
    if (this.#soon) this.#wake();
  }

  /**
   * One pass that begins after this call; calls that wait for the same pass share it. Throws what the platform's client or the inbox
   * throw, or `webhook.not_registered`.
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

  async #run(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#parts;
    let failures = 0;
    let said = false;
    while (!signal.aborted) {
      let waitMs = this.#options.pollMs * (0.9 + 0.2 * clock.random());
      if (this.#parts.registered()) {
        this.#soon = false;
        try {
          await this.catchUpNow();
          if (said) log.info({ event: 'webhook.catch_up_restored', failures }, 'the deliveries can be read again');
          failures = 0;
          said = false;
        } catch (error) {
          if (signal.aborted) return;
          waitMs = Math.min(
            waitMs,
            fullJitterMs(failures, RETRY, () => clock.random(), 500),
          );
          if (failures++ % 10 === 0) {
            const isOwn = codeOf(error) !== 'platform.no_session';
            said ||= isOwn;
            const fields = { event: 'webhook.catch_up_failed', code: codeOf(error), error: messageOf(error), failures };
            log[isOwn ? 'warn' : 'debug'](fields, 'the deliveries could not be read; it is tried again');
          }
        }
      }
      if (!this.#soon || !this.#parts.registered()) await this.#pause(waitMs, signal);
    }
  }

  async #pause(ms: number, signal: AbortSignal): Promise<void> {
    const woken = new AbortController();
    this.#wake = () => woken.abort();
    await this.#parts.clock.sleep(ms, AbortSignal.any([signal, woken.signal])).catch(() => {});
    this.#wake = () => {};
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
        report.taken += await this.#take(page.events);
        const { asked, rejected } = await this.#askAgain(registered, page.bare, signal);
        report.asked += asked;
        report.rejected += rejected;
      }
    } catch (error) {
      if (error instanceof CallRefusal && error.status === 404) this.#parts.lost?.();
      throw error;
    }
    await this.#keep(mark, advance(mark, registered.scope, { deep: plan.deep, newestMs, platformMs: beganMs }));
    const level = report.taken + report.asked + report.rejected > 0 ? 'info' : 'debug';
    this.#parts.log[level]({ event: 'webhook.caught_up', ...report }, 'the deliveries list was read');
    return report;
  }

  async #take(events: ArrivedEvent[]): Promise<number> {
    if (events.length === 0) return 0;
    const outcomes = await this.#parts.inbox.insertMany(events);
    let taken = 0;
    for (const [i, event] of events.entries()) {
      if (outcomes[i] !== 'new') continue;
      taken++;
      this.#parts.log.info(arrivalLine(event, 'list'), 'an event is in the inbox');
      this.#parts.received?.(event.unrecognised ? 'unrecognised' : event.eventType);
    }
    if (taken > 0) this.#parts.inserted?.();
    return taken;
  }

  /** Requests a resend of entries without a payload that never arrived; the listener receives them. */
  async #askAgain(
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
        // One id that the platform refuses for good must not keep the pass, and with it the watermark, from ever ending.
        if (!(error instanceof CallRefusal) || error.retryable) throw error;
        const fields = { event: 'webhook.resend_refused', deliveries: ids.length, error: messageOf(error) };
        this.#parts.log.warn(fields, 'resend of deliveries without a payload rejected');
        outcome.rejected += ids.length;
      }
      await this.#parts.inbox.markAsked(batch.map(({ delivery }) => delivery));
    }
    return outcome;
  }

  async #keep(before: Watermark | undefined, after: Watermark | undefined): Promise<void> {
    // An idle gateway polls 288 times a day: a commit only where something changed.
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
  return new TagferryError('no webhook is registered yet: there are no deliveries to read', {
    code: 'webhook.not_registered',
    retryable: true,
    hint: 'Set WEBHOOK_URL; `tagferry webhook ls` shows what the platform has.',
  });
}
