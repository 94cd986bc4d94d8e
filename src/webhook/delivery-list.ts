import { countMarks } from '../contract/events/event-text.ts';
import { timestampMs } from '../contract/events.ts';
import { type DeliveryRecord, FAILED_EVENTS_KEPT_DAYS } from '../contract/webhooks.ts';
import type { ApiCalls } from '../platform/client.ts';
import { readDeliveries } from '../platform/resources/deliveries.ts';
import { parseExactly } from './canonical-json.ts';
import { deliveryIdentity } from './identity.ts';
import { type ArrivedEvent, readEvent } from './received-event.ts';
import type { Registered } from './registration-file.ts';

/** One page of the deliveries list. */
export interface ArrivalPage {
  /** Entries of the page, whatever they are. */
  listed: number;
  /** What came with its payload, ready for the inbox. */
  events: ArrivedEvent[];
  /** What came without, and may be asked for again. */
  bare: { id: number; delivery: Uint8Array }[];
  /** Platform time of the response, by the platform clock. */
  platformMs: number | undefined;
}

/** Reads the list in all statuses (`failed` alone would come only after the platform's three days), ready for the inbox. */
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

/** A page with more is requested again in smaller pages. One delivery of 1 MiB is always within the bound. */
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

/** The payload as JSON text, whether it is listed as an object or as text; `undefined` if it is nested too deeply to be written. */
function payloadText(payload: unknown): string | undefined {
  if (typeof payload === 'string') return payload === '' ? undefined : payload;
  if (typeof payload !== 'object' || payload === null) return undefined;
  try {
    return JSON.stringify(payload);
  } catch {
    return undefined;
  }
}

/** Pending ones come by themselves; after six months the platform has nothing to send (platform 3.3). */
function mayBeResent(record: DeliveryRecord, platformMs: number | undefined): boolean {
  if (record.status === 'pending') return false;
  const sentMs = timestampMs(record.last_send_at);
  return sentMs === undefined || platformMs === undefined || platformMs - sentMs < FAILED_EVENTS_KEPT_DAYS * 86_400_000;
}
