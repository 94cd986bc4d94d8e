import { isoTime } from '../base/amounts.ts';
import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, PlatformError } from '../base/errors.ts';
import { retryBounded } from '../base/retry.ts';
import { occurredAtMs } from '../contract/events/occurred-at.ts';
import { timestampMs } from '../contract/events.ts';
import { type DeliveryRecord, type DeliveryStatus, FAILED_EVENTS_KEPT_DAYS } from '../contract/webhooks.ts';
import type { ApiCalls } from '../platform/client.ts';
import { type DeliveryFilter, readDeliveries, Webhooks } from '../platform/resources/webhooks.ts';
import { CallRefusal } from '../platform/response-meanings.ts';
import { payloadOf } from './delivery-failures.ts';
import { parseDeliveryPage } from './delivery-list.ts';
import type { Registered } from './registration-file.ts';

/** A delivery in the list. Members that the platform does not return are `null`. */
interface ListedDelivery {
  id: number;
  status: string;
  event_type: string | null;
  occurred_at: string | null;
  last_send_at: string | null;
  attempts: number | null;
  /** Receiver's response to the latest attempt. */
  response: string | null;
  /**
   * Number of days until the platform removes the delivery (platform 3.3); `null` if it is pending or was delivered.
   */
  days_left: number | null;
}

export interface DeliveryQuery {
  /** Default: the webhook of this gateway. */
  webhook?: number | undefined;
  status?: string;
  eventType?: string;
  /** Earliest event time to include, in milliseconds since 1970. */
  sinceMs?: number;
  /** Maximum number of deliveries. Default: 100. */
  limit?: number;
}

export interface DeliveryListing {
  webhook: number;
  /** Number of matching deliveries, including those beyond the limit. */
  total: number;
  /** Matching deliveries, newest first. */
  deliveries: ListedDelivery[];
}

export interface ResendReport {
  /** IDs of deliveries that the platform will send again. */
  accepted: number[];
  rejected: { id: number; error: string }[];
  /** Number of failed deliveries for which no resend was requested, because they exceed the limit for one command. */
  remaining: number;
}

/** Deliveries shown on the page. `problem` is the reason why the latest read failed. */
export interface RecentDeliveries {
  readAtMs: number | null;
  listing: DeliveryListing | null;
  problem: string | null;
}

export interface DeliveriesParts {
  platform: ApiCalls;
  registered(): Registered | undefined;
  clock: Clock;
}

const DEFAULT_LIMIT = 100;
export const MAX_LISTED = 10_000;
/** Maximum number of IDs per request. */
const RESEND_BATCH = 100;
const DAY_MS = 86_400_000;
const MAX_TEXT = 200;
/**
 * Number of deliveries shown on the page, and minimum interval between reads for the page. Each read requires at least
 * one API call.
 */
const ON_PAGE = 50;
const PAGE_EVERY_MS = 60_000;
/** Possible names of the member that contains the response, which is not specified (platform 2.5). */
const RESPONSE_MEMBERS = ['response', 'response_status', 'response_code', 'last_response', 'status_code'] as const;

/** Lists the deliveries of this gateway's webhook, and requests resends (platform 4.5). */
export class Deliveries {
  readonly #parts: DeliveriesParts;
  #recent: RecentDeliveries = { readAtMs: null, listing: null, problem: null };
  #nextReadMs = Number.NEGATIVE_INFINITY;

  constructor(parts: DeliveriesParts) {
    this.#parts = parts;
  }

  /**
   * Reads the whole list. `status` and the time are sent as filters. Event types are filtered locally, because the
   * platform specifies no such filter. Throws `webhook.not_registered`, and errors from the platform client.
   */
  async list(query: DeliveryQuery = {}, signal?: AbortSignal): Promise<DeliveryListing> {
    const { application, webhook } = this.#webhookOf(query.webhook);
    const { status, sinceMs, limit = DEFAULT_LIMIT } = query;
    const filter: DeliveryFilter = {
      ...(status === undefined ? {} : { status: status as DeliveryStatus }),
      ...(sinceMs === undefined ? {} : { occurredFrom: new Date(sinceMs).toISOString() }),
    };
    const maximum = Math.min(limit, MAX_LISTED);
    const found = new Map<number, ListedDelivery>();
    const counted = new Set<number>();
    const { platform, clock } = this.#parts;
    const pages = readDeliveries(platform, application, webhook, filter, signal, parseDeliveryPage);
    for await (const { records, platformMs = clock.wallMs() } of pages) {
      for (const record of records) {
        const delivery = listed(record, platformMs);
        if (!delivery || counted.has(delivery.id) || !matches(delivery, query)) continue;
        counted.add(delivery.id);
        found.set(delivery.id, delivery);
      }
      // Limit the memory. All pages must be read, because the order of the list is not specified.
      if (found.size > 2 * maximum) keepNewest(found, maximum);
    }
    keepNewest(found, maximum);
    return { webhook, total: counted.size, deliveries: [...found.values()].sort(newestFirst) };
  }

  /**
   * Requests a resend of deliveries. If the platform rejects a request, the request is split in half to find the
   * rejected deliveries.
   */
  async resend(ids: readonly number[], other?: number, signal?: AbortSignal): Promise<ResendReport> {
    const { application, webhook } = this.#webhookOf(other);
    const webhooks = new Webhooks(this.#parts.platform, application);
    const report: ResendReport = { accepted: [], rejected: [], remaining: 0 };
    const batches: number[][] = [];
    for (let at = 0; at < ids.length; at += RESEND_BATCH) batches.push(ids.slice(at, at + RESEND_BATCH));
    for (let batch = batches.shift(); batch; batch = batches.shift()) {
      const some = batch;
      try {
        await retryBounded(() => webhooks.resend(webhook, some, signal), { retries: 2, signal });
        report.accepted.push(...some);
      } catch (error) {
        if (!(error instanceof CallRefusal) || !REJECTS_IDS.has(error.status)) throw error;
        const middle = Math.ceil(some.length / 2);
        if (some.length > 1) batches.unshift(some.slice(0, middle), some.slice(middle));
        else report.rejected.push({ id: some[0]!, error: messageOf(error) });
      }
    }
    return report;
  }

  /** Requests a resend of all failed deliveries, for `webhook resend --all-failed`. */
  async resendFailed(webhook?: number, signal?: AbortSignal): Promise<ResendReport> {
    const { deliveries, total } = await this.list({ webhook, status: 'failed', limit: MAX_LISTED }, signal);
    const report = await this.resend(deliveries.map(({ id }) => id).reverse(), webhook, signal);
    return { ...report, remaining: total - deliveries.length };
  }

  /**
   * Returns the latest list read for the page. If the list is older than a minute, starts another read without waiting
   * for it.
   */
  recent(): RecentDeliveries {
    const { clock } = this.#parts;
    if (clock.monotonicMs() >= this.#nextReadMs) {
      this.#nextReadMs = Number.POSITIVE_INFINITY;
      void this.#readRecent().finally(() => {
        this.#nextReadMs = clock.monotonicMs() + PAGE_EVERY_MS;
      });
    }
    return this.#recent;
  }

  async #readRecent(): Promise<void> {
    try {
      const listing = await this.list({ limit: ON_PAGE });
      this.#recent = { readAtMs: this.#parts.clock.wallMs(), listing, problem: null };
    } catch (error) {
      const problem = codeOf(error) === 'webhook.not_registered' ? 'no webhook is registered' : messageOf(error);
      this.#recent = { ...this.#recent, problem };
    }
  }

  /** Returns the webhook to list: this gateway's webhook, or another webhook of the client application. */
  #webhookOf(webhook: number | undefined): Pick<Registered, 'application' | 'webhook'> {
    const registered = this.#parts.registered();
    if (registered) return { application: registered.application, webhook: webhook ?? registered.webhook };
    throw new PlatformError("this gateway's webhook is not registered", {
      code: 'webhook.not_registered',
      hint: 'Set WEBHOOK_URL, then run `tagferry webhook register`.',
    });
  }
}

/** Statuses with which the platform rejects specific IDs. */
const REJECTS_IDS: ReadonlySet<number> = new Set([400, 404, 409, 422]);

function listed(record: DeliveryRecord, platformMs: number): ListedDelivery | undefined {
  if (!Number.isSafeInteger(record.id)) return undefined;
  const status = typeof record.status === 'string' ? (record.status as string).slice(0, MAX_TEXT) : 'unknown';
  const payload = payloadOf(record.payload);
  const type = (payload as { event_type?: unknown } | null | undefined)?.event_type;
  const occurredMs = occurredAtMs(payload);
  const sentMs = timestampMs(record.last_send_at);
  const endedMs = status === 'delivered' || status === 'pending' ? undefined : (sentMs ?? occurredMs);
  return {
    id: record.id,
    status,
    event_type: typeof type === 'string' ? type.slice(0, MAX_TEXT) : null,
    occurred_at: isoTime(occurredMs) ?? null,
    last_send_at: isoTime(sentMs) ?? null,
    attempts: attemptsOf(record, sentMs),
    response: responseOf(record),
    days_left:
      endedMs === undefined
        ? null
        : Math.max(0, Math.floor((endedMs + FAILED_EVENTS_KEPT_DAYS * DAY_MS - platformMs) / DAY_MS)),
  };
}

function attemptsOf({ retries }: DeliveryRecord, sentMs: number | undefined): number | null {
  if (typeof retries !== 'number' || !Number.isSafeInteger(retries) || retries < 0) return null;
  return retries === 0 && sentMs === undefined ? 0 : retries + 1;
}

function responseOf(record: DeliveryRecord): string | null {
  for (const name of RESPONSE_MEMBERS) {
    const found = (record as unknown as Record<string, unknown>)[name];
    if (found === undefined || found === null || found === '') continue;
    return (typeof found === 'object' ? JSON.stringify(found) : String(found)).slice(0, MAX_TEXT);
  }
  return null;
}

/** Applies the filters again, because a platform may ignore filters that it does not support. */
function matches(delivery: ListedDelivery, { status, eventType, sinceMs }: DeliveryQuery): boolean {
  if (status !== undefined && delivery.status !== status) return false;
  if (eventType !== undefined && delivery.event_type !== eventType) return false;
  return sinceMs === undefined || delivery.occurred_at === null || Date.parse(delivery.occurred_at) >= sinceMs;
}

function newestFirst(one: ListedDelivery, other: ListedDelivery): number {
  return other.id - one.id;
}

function keepNewest(found: Map<number, ListedDelivery>, maximum: number): void {
  for (const { id } of [...found.values()].sort(newestFirst).slice(maximum)) found.delete(id);
}
