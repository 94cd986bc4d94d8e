import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { occurredAtMs } from '../contract/events/occurred-at.ts';
import { timestampMs } from '../contract/events.ts';
import type { DeliveryRecord } from '../contract/webhooks.ts';
import type { ApiCalls } from '../platform/client.ts';
import { type DeliveryFilter, readDeliveries } from '../platform/resources/webhooks.ts';
import { parseDeliveryPage } from './delivery-list.ts';
import type { Registered } from './registration-file.ts';

/**
 * Times of one delivery according to the platform clock, in milliseconds: the event time and the time of the latest
 * attempt.
 */
export interface DeliverySpan {
  failing: boolean;
  firstMs: number;
  lastMs: number;
}

/** Duration of failures after which the platform disables a webhook (platform 3.2). */
const DISABLED_AFTER_MS = 14 * 86_400_000;
/** Approximate time after which the attempts for one event end (platform 3.3). */
const ATTEMPTS_END_AFTER_MS = 3 * 86_400_000;

/**
 * Reads the whole deliveries list. If deliveries kept failing for two weeks after `sinceMs`, returns the time of the
 * latest failed attempt. Otherwise returns `undefined`, which means that the webhook was disabled manually.
 */
export async function readLongFailure(
  platform: ApiCalls,
  application: number,
  webhook: number,
  sinceMs: number | undefined,
  signal?: AbortSignal,
): Promise<number | undefined> {
  return longFailure((await readSpans(platform, { application, webhook }, {}, signal)).spans, sinceMs);
}

/** Returns the times of the deliveries that match the filter, and the platform time at the first response. */
async function readSpans(
  platform: ApiCalls,
  { application, webhook }: { application: number; webhook: number },
  filter: DeliveryFilter,
  signal?: AbortSignal,
): Promise<{ spans: DeliverySpan[]; platformMs: number | undefined }> {
  const spans: DeliverySpan[] = [];
  let nowMs: number | undefined;
  const pages = readDeliveries(platform, application, webhook, filter, signal, parseDeliveryPage);
  for await (const { records, platformMs } of pages) {
    nowMs ??= platformMs;
    for (const record of records) {
      const span = spanOf(record);
      if (span) spans.push(span);
    }
  }
  return { spans, platformMs: nowMs };
}

/**
 * Returns the time of the latest failed attempt if either one event or all events kept failing for two weeks, because
 * the platform documentation is ambiguous (platform 3.2).
 */
export function longFailure(spans: readonly DeliverySpan[], sinceMs?: number): number | undefined {
  const run = failingRun(spans, sinceMs);
  if (!run) return undefined;
  return run.isOneLong || run.lastMs - run.firstMs >= DISABLED_AFTER_MS ? run.lastMs : undefined;
}

/**
 * Returns the period of failures after the latest successful delivery and after `sinceMs`. `isOneLong`: whether one
 * event kept failing for two weeks.
 */
function failingRun(
  spans: readonly DeliverySpan[],
  sinceMs = Number.NEGATIVE_INFINITY,
): { firstMs: number; lastMs: number; isOneLong: boolean } | undefined {
  let okMs = sinceMs;
  for (const { failing, lastMs } of spans) if (!failing) okMs = Math.max(okMs, lastMs);
  let firstMs = Number.POSITIVE_INFINITY;
  let lastMs = Number.NEGATIVE_INFINITY;
  let isOneLong = false;
  for (const span of spans) {
    if (!span.failing || span.lastMs <= okMs) continue;
    isOneLong ||= span.lastMs - Math.max(span.firstMs, sinceMs) >= DISABLED_AFTER_MS;
    firstMs = Math.min(firstMs, Math.max(span.firstMs, okMs));
    lastMs = Math.max(lastMs, span.lastMs);
  }
  return Number.isFinite(lastMs) ? { firstMs, lastMs, isOneLong } : undefined;
}

/**
 * Returns the delivery that has been failing for the longest time and is still being sent, regardless of other
 * deliveries; `undefined` if there is none.
 */
function persistentFailure(spans: readonly DeliverySpan[], nowMs: number): DeliverySpan | undefined {
  const current = spans.filter(({ failing, lastMs }) => failing && nowMs - lastMs < ATTEMPTS_END_AFTER_MS);
  return current.sort((one, other) => other.lastMs - other.firstMs - (one.lastMs - one.firstMs))[0];
}

/** Returns `undefined` for a delivery that was not sent, or whose time the platform does not report. */
function spanOf(record: DeliveryRecord): DeliverySpan | undefined {
  const sentMs = timestampMs(record.last_send_at);
  // Any other status is treated as a success, because a platform may use a different name for it.
  const isPending = record.status === 'pending' || record.status === 'cancelled';
  const failing = record.status === 'failed' || isPending;
  if (isPending && sentMs === undefined) return undefined;
  const occurredMs = occurredAtMs(payloadOf(record.payload));
  const lastMs = sentMs ?? occurredMs;
  if (lastMs === undefined) return undefined;
  const firstMs = Math.min(lastMs, occurredMs ?? lastMs - ATTEMPTS_END_AFTER_MS);
  return { failing, firstMs, lastMs };
}

export function payloadOf(payload: unknown): unknown {
  if (typeof payload !== 'string') return payload;
  try {
    return JSON.parse(payload);
  } catch {
    return undefined;
  }
}

/** Webhook whose deliveries have been failing for days. */
export interface FailingWebhook {
  webhook: number;
  sinceMs: number;
  /** Time left until the platform disables the webhook, in days. */
  daysLeft: number;
}

interface FailureWatchParts {
  platform: ApiCalls;
  registered(): Registered | undefined;
  clock: Clock;
  log: Logger;
}

const DAY_MS = 86_400_000;
/**
 * Duration of failures after which a warning is issued. Attempts for one event end after three days (platform 3.3), so
 * failures that last a week are not caused by a short outage.
 */
const WARNED_AFTER_MS = 7 * DAY_MS;
/**
 * Maximum event age that is read: the two weeks, plus the duration of the attempts for an event that occurred before.
 */
const READ_BACK_MS = 18 * DAY_MS;
/** Interval between checks while no delivery fails. Each check requires one API call. */
const CHECK_EVERY_MS = 6 * 3_600_000;
const CHECK_FAILING_EVERY_MS = 3_600_000;
const RETRY_MS = 15 * 60_000;
const FIRST_CHECK_MS = 60_000;
const COMMAND = 'tagferry webhook resend --all-failed';

/**
 * Warns before the platform disables the webhook (platform 3.2) because all deliveries fail or one event keeps failing.
 * Reads failed deliveries, and other deliveries only if some have been failing for a week. The result is not persisted;
 * after a restart, the list is read again.
 */
export class FailureWatch {
  readonly #parts: FailureWatchParts;
  readonly #stopping = new AbortController();
  #loop: Promise<void> | undefined;
  #failing: FailingWebhook | undefined;

  constructor(parts: FailureWatchParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#loop ??= this.#run(this.#stopping.signal);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#loop;
  }

  get failing(): FailingWebhook | undefined {
    return this.#failing;
  }

  /** Sentences for the notes in `/healthz`. */
  get notes(): string[] {
    if (!this.#failing) return [];
    const { webhook, sinceMs, daysLeft } = this.#failing;
    const since = new Date(sinceMs).toISOString().slice(0, 10);
    return [
      `deliveries of webhook ${webhook} have failed since ${since}, the platform will disable it in ${daysLeft} days; fix the listener, then run \`${COMMAND}\``,
    ];
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { clock } = this.#parts;
    let waitMs = FIRST_CHECK_MS;
    while (!signal.aborted) {
      await clock.sleep(waitMs, signal).catch(() => {});
      if (signal.aborted) return;
      waitMs = (await this.#check(signal)) * (0.9 + 0.2 * clock.random());
    }
  }

  /** Returns the delay until the next check. */
  async #check(signal: AbortSignal): Promise<number> {
    const registered = this.#parts.registered();
    if (!registered) return RETRY_MS;
    try {
      this.#note(await this.#read(registered, signal));
      return this.#failing ? CHECK_FAILING_EVERY_MS : CHECK_EVERY_MS;
    } catch (error) {
      const fields = { event: 'webhook.failures_unread', code: codeOf(error), error: messageOf(error) };
      if (!signal.aborted) this.#parts.log.debug(fields, 'failed to read failed deliveries, retrying');
      return RETRY_MS;
    }
  }

  async #read(registered: Registered, signal: AbortSignal): Promise<FailingWebhook | undefined> {
    const { platform, clock } = this.#parts;
    const occurredFrom = new Date(clock.wallMs() - READ_BACK_MS).toISOString();
    const failed = await readSpans(platform, registered, { status: 'failed', occurredFrom }, signal);
    const nowMs = failed.platformMs ?? clock.wallMs();
    if (!failed.spans.some(({ failing, firstMs }) => failing && nowMs - firstMs >= WARNED_AFTER_MS)) return undefined;
    const { spans } = await readSpans(platform, registered, { occurredFrom }, signal);
    const run = failingRun(spans) ?? persistentFailure(spans, nowMs);
    if (!run || nowMs - run.firstMs < WARNED_AFTER_MS) return undefined;
    const daysLeft = Math.max(0, Math.ceil((run.firstMs + DISABLED_AFTER_MS - nowMs) / DAY_MS));
    return { webhook: registered.webhook, sinceMs: run.firstMs, daysLeft };
  }

  #note(failing: FailingWebhook | undefined): void {
    const { log } = this.#parts;
    const before = this.#failing;
    this.#failing = failing;
    if (failing && failing.daysLeft !== before?.daysLeft) {
      const { webhook, sinceMs, daysLeft } = failing;
      const since = new Date(sinceMs).toISOString();
      const fields = { event: 'webhook.failing', webhook, since, daysLeft, hint: `Run \`${COMMAND}\`.` };
      log.warn(fields, 'deliveries keep failing, the platform will disable the webhook');
    }
    if (!failing && before) {
      log.info({ event: 'webhook.failing_over', webhook: before.webhook }, 'webhook deliveries restored');
    }
  }
}
