import { timestampMs } from '../contract/events.ts';
import {
  type DeliveryList,
  type DeliveryRecord,
  FAILED_EVENTS_KEPT_DAYS,
  MOST_PER_PAGE,
} from '../contract/webhooks.ts';
import { PlatformError } from '../errors.ts';
import { parseExactly } from './canonical-json.ts';
import { deliveryIdentity } from './identity.ts';
import { type PlatformAnswer, RefusedError } from './platform-port.ts';
import { type ArrivedEvent, readEvent } from './received-event.ts';
import type { Registered } from './registration.ts';
import { isLastPage, type WebhookResource } from './webhook-resource.ts';

/** One page of the deliveries list. */
export interface DeliveryPage {
  /** Entries of the page, whatever they are. */
  listed: number;
  /** What came with its payload, ready for the inbox. */
  events: ArrivedEvent[];
  /** What came without, and may be asked for again. */
  bare: { id: number; delivery: Uint8Array }[];
  /** The platform's clock when it answered. */
  platformMs: number | undefined;
}

/** Tried in turn where an answer is longer than the client's bound: a hundred payloads of up to a mebibyte do not fit. */
const PAGE_SIZES = [MOST_PER_PAGE, 20, 4, 1];
/** 100,000 deliveries in one pass; a list that never ends is an error. */
const MOST_PAGES = 1_000;

/**
 * Reads the list in all statuses, page by page (`failed` alone would come only after the platform's three days). Without
 * `order_by`: new entries that arrive while it reads move others to later pages in one order and stand at the end in the other, so
 * entries are met twice but none is passed over.
 */
export async function* readDeliveries(
  resource: WebhookResource,
  registered: Registered,
  fromMs: number | undefined,
  receivedAtMs: () => number,
  signal?: AbortSignal,
): AsyncGenerator<DeliveryPage> {
  let from = fromMs === undefined ? {} : { occurred_at_from: new Date(fromMs).toISOString() };
  let size = 0;
  for (let page = 1, pages = 0; ; pages++) {
    if (pages > MOST_PAGES * PAGE_SIZES.length) throw unreadable('the list has no end');
    const perPage = PAGE_SIZES[size]!;
    const query = { page: String(page), per_page: String(perPage), ...from };
    const answer = await resource.listDeliveries(registered.application, registered.webhook, query, signal);
    if ((answer.status === 400 || answer.status === 422) && 'occurred_at_from' in from) {
      // The filter's exact form is not in the spec: a platform that refuses it is read whole.
      from = {};
      continue;
    }
    const body = parseList(answer);
    if (!body) {
      if (size === PAGE_SIZES.length - 1) throw unreadable('a page with one entry is no JSON');
      page = Math.floor(((page - 1) * perPage) / PAGE_SIZES[++size]!) + 1;
      continue;
    }
    const records = body.events ?? body.webhook_events ?? [];
    if (!Array.isArray(records)) throw unreadable('its entries are no list');
    yield sort(records, registered.scope, platformTime(answer), receivedAtMs());
    if (isLastPage(body.pagination, page, records.length, perPage)) return;
    page++;
  }
}

function parseList(answer: PlatformAnswer): DeliveryList | undefined {
  if (answer.status !== 200 && answer.status !== 201) throw new RefusedError('reading the deliveries', answer);
  if (answer.truncated) return undefined;
  try {
    const body = parseExactly(answer.text);
    return typeof body === 'object' && body !== null ? (body as DeliveryList) : undefined;
  } catch {
    return undefined;
  }
}

function sort(
  records: readonly DeliveryRecord[],
  scope: string,
  platformMs: number | undefined,
  receivedAtMs: number,
): DeliveryPage {
  const page: DeliveryPage = { listed: records.length, events: [], bare: [], platformMs };
  for (const record of records) {
    if (typeof record !== 'object' || record === null) continue;
    const delivery = typeof record.id === 'number' ? deliveryIdentity(scope, record.id) : undefined;
    const text = payloadText(record.payload);
    if (text !== undefined) {
      const event = readEvent(new TextEncoder().encode(text), receivedAtMs);
      page.events.push(delivery ? { ...event, delivery } : event);
    } else if (delivery && mayBeResent(record, platformMs)) {
      page.bare.push({ id: record.id, delivery });
    }
  }
  return page;
}

/** The payload as JSON text, whether it is listed as an object or as text. */
function payloadText(payload: unknown): string | undefined {
  if (typeof payload === 'string') return payload === '' ? undefined : payload;
  return typeof payload === 'object' && payload !== null ? JSON.stringify(payload) : undefined;
}

/** Pending ones come by themselves; after six months the platform has nothing to send (spec 3.3). */
function mayBeResent(record: DeliveryRecord, platformMs: number | undefined): boolean {
  if (record.status === 'pending') return false;
  const sentMs = timestampMs(record.last_send_at);
  return sentMs === undefined || platformMs === undefined || platformMs - sentMs < FAILED_EVENTS_KEPT_DAYS * 86_400_000;
}

/** `Date` of an answer (RFC 9110 section 6.6.1). */
function platformTime(answer: PlatformAnswer): number | undefined {
  const at = Date.parse(answer.header('date') ?? '');
  return Number.isNaN(at) ? undefined : at;
}

function unreadable(why: string): PlatformError {
  return new PlatformError(`reading the deliveries: ${why}`, { code: 'webhook.unreadable_answer', retryable: true });
}
