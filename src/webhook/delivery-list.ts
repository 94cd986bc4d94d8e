import { countMarks } from '../contract/events/event-text.ts';
import { timestampMs } from '../contract/events.ts';
import { type DeliveryRecord, FAILED_EVENTS_KEPT_DAYS } from '../contract/webhooks.ts';
import type { ApiCalls } from '../platform/client.ts';
import { readDeliveries } from '../platform/resources/webhooks.ts';
import { deliveryIdentity, parseExactly } from './identity.ts';
import { type ArrivedEvent, readEvent } from './received-event.ts';
import type { Registered } from './registration-file.ts';

/** One page of the deliveries list. */
export interface ArrivalPage {
  /** Number of all entries on the page. */
  listed: number;
  /** Deliveries with a payload, converted to events for the inbox. */
  events: ArrivedEvent[];
  /** Deliveries without a payload, for which a resend can be requested. */
  bare: { id: number; delivery: Uint8Array }[];
  /** Time of the response according to the platform clock. */
  platformMs: number | undefined;
}

/**
 * Reads deliveries with any status and converts them to events for the inbox. Reading only the status `failed` would
 * omit deliveries until the platform stops retrying them after three days.
 */
export async function* readArrivals(
  platform: ApiCalls,
  registered: Registered,
  fromMs: number | undefined,
  receivedAtMs: () => number,
  signal?: AbortSignal,
): AsyncGenerator<ArrivalPage> {
  const filter = fromMs === undefined ? {} : { occurredFrom: new Date(fromMs).toISOString() };
  const { application, webhook, scope } = registered;
  const pages = readDeliveries(platform, application, webhook, filter, signal, parseDeliveryPage);
  for await (const { records, platformMs } of pages) yield sort(records, scope, platformMs, receivedAtMs());
}

/**
 * Maximum number of values on a page. If it is exceeded, a smaller page is requested. A single delivery of 1 MiB is
 * always within the limit.
 */
const MAX_PAGE_MARKS = 1_100_000;

export function parseDeliveryPage(text: string): unknown {
  if (countMarks(text) > MAX_PAGE_MARKS) throw new RangeError('too many values in a page of deliveries');
  return parseExactly(text);
}

function sort(
  records: readonly DeliveryRecord[],
  scope: string,
  platformMs: number | undefined,
  receivedAtMs: number,
): ArrivalPage {
  const page: ArrivalPage = { listed: records.length, events: [], bare: [], platformMs };
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

/**
 * Returns the payload as JSON text, regardless of whether it is listed as an object or as text. Returns `undefined` if
 * the payload is missing or is nested too deeply to be serialized.
 */
function payloadText(payload: unknown): string | undefined {
  if (typeof payload === 'string') return payload === '' ? undefined : payload;
  if (typeof payload !== 'object' || payload === null) return undefined;
  try {
    return JSON.stringify(payload);
  } catch {
    return undefined;
  }
}

/**
 * Returns whether a resend can be requested. Pending deliveries are still being sent by the platform; deliveries older
 * than six months have been deleted (platform 3.3).
 */
function mayBeResent(record: DeliveryRecord, platformMs: number | undefined): boolean {
  if (record.status === 'pending') return false;
  const sentMs = timestampMs(record.last_send_at);
  return sentMs === undefined || platformMs === undefined || platformMs - sentMs < FAILED_EVENTS_KEPT_DAYS * 86_400_000;
}
