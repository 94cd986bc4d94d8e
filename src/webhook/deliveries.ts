import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, PlatformError } from '../base/errors.ts';
import { retryBounded } from '../base/retry.ts';
import { occurredAtMs } from '../contract/events/occurred-at.ts';
import { timestampMs } from '../contract/events.ts';
import { type DeliveryRecord, type DeliveryStatus, FAILED_EVENTS_KEPT_DAYS } from '../contract/webhooks.ts';
import { CallRefusal } from '../platform/call-refusal.ts';
import type { ApiCalls } from '../platform/client.ts';
import { type DeliveryFilter, readDeliveries } from '../platform/resources/deliveries.ts';
import { Webhooks } from '../platform/resources/webhooks.ts';
import { parseDeliveryPage } from './delivery-list.ts';
import { payloadOf } from './failing-deliveries.ts';
import type { Registered } from './registration-file.ts';

/** A delivery as the platform lists it. Members that the platform does not report are `null`. */
interface ListedDelivery {
  id: number;
  status: string;
  event_type: string | null;
  occurred_at: string | null;
  last_send_at: string | null;
  attempts: number | null;
  /** Response of the receiver to the last attempt. */
  response: string | null;
  /** Days until the platform removes the delivery (platform 3.3); `null` unless it has ended without success. */
  days_left: number | null;
}

export interface DeliveryQuery {
  /** Default: the webhook of this gateway. */
  webhook?: number | undefined;
  status?: string;
  eventType?: string;
  /** Deliveries of events that occurred earlier are left out, in milliseconds since 1970. */
  sinceMs?: number;
  /** Maximum number of deliveries. Default: 100. */
  limit?: number;
}

export interface DeliveryListing {
  webhook: number;
  /** Deliveries that match, including those over the limit. */
  total: number;
  /** Newest first. */
  deliveries: ListedDelivery[];
}

export interface ResendReport {
  /** Deliveries that the platform accepted for another attempt. */
  accepted: number[];
  rejected: { id: number; error: string }[];
  /** Failed deliveries over the limit of one command, which were not requested. */
  remaining: number;
}

/** The list as the page shows it: `problem` is why it could not be read. */
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
/** Ids in one request. */
const RESEND_BATCH = 100;
const DAY_MS = 86_400_000;
const MAX_TEXT = 200;
/** Deliveries on the page, and the minimum interval between two readings for it: each is at least one API call. */
const ON_PAGE = 50;
const PAGE_EVERY_MS = 60_000;
/** The member is unspecified (platform 2.5). */
const RESPONSE_MEMBERS = ['response', 'response_status', 'response_code', 'last_response', 'status_code'] as const;

/** Lists the deliveries of this gateway's webhook, and asks the platform to send some again (platform 4.5). */
export class Deliveries {
  readonly #parts: DeliveriesParts;
  #recent: RecentDeliveries = { readAtMs: null, listing: null, problem: null };
  #nextReadMs = Number.NEGATIVE_INFINITY;

  constructor(parts: DeliveriesParts) {
    this.#parts = parts;
  }

  /**
   * Reads the whole list. `status` and the time are sent; event types are selected here, because that filter is unspecified. Throws
   * `webhook.not_registered`, and errors of the platform client.
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
      // The order of the list is unspecified: only the newest are kept.
      if (found.size > 2 * maximum) keepNewest(found, maximum);
    }
    keepNewest(found, maximum);
    return { webhook, total: counted.size, deliveries: [...found.values()].sort(newestFirst) };
  }

  /** Asks for deliveries again. If the platform rejects a request, its deliveries are requested in halves to find the cause. */
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

  /** `webhook resend --all-failed`. */
  async resendFailed(webhook?: number, signal?: AbortSignal): Promise<ResendReport> {
    const { deliveries, total } = await this.list({ webhook, status: 'failed', limit: MAX_LISTED }, signal);
    const report = await this.resend(deliveries.map(({ id }) => id).reverse(), webhook, signal);
    return { ...report, remaining: total - deliveries.length };
  }

  /** The list as it was last read for the page. Starts another reading when that is a minute ago, and does not wait for it. */
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

  /** Another webhook of the client application may be asked about. */
  #webhookOf(webhook: number | undefined): Pick<Registered, 'application' | 'webhook'> {
    const registered = this.#parts.registered();
    if (registered) return { application: registered.application, webhook: webhook ?? registered.webhook };
    throw new PlatformError('the webhook of this gateway is not registered', {
      code: 'webhook.not_registered',
      hint: 'Set WEBHOOK_URL, then run `tagferry webhook register`.',
    });
  }
}

/** Statuses by which the platform rejects ids, not the caller. */
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
    occurred_at: isoText(occurredMs),
    last_send_at: isoText(sentMs),
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

/** The filters once more: a platform may ignore those that it does not know. */
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

function isoText(ms: number | undefined): string | null {
  return ms === undefined ? null : new Date(ms).toISOString();
}
