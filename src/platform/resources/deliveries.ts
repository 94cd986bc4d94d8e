import type { DeliveryRecord, DeliveryStatus } from '../../contract/webhooks.ts';
import type { ApiCalls } from '../client.ts';
import { readPages } from './lists.ts';

/** Optional filters for the delivery list (platform 10.4). */
export interface DeliveryFilter {
  status?: DeliveryStatus;
  eventType?: string;
  /** ISO 8601. */
  occurredFrom?: string;
}

export interface DeliveryPage {
  records: DeliveryRecord[];
  /** Platform time at the response, according to the platform clock. */
  platformMs: number | undefined;
}

/**
 * Yields the deliveries of one webhook, page by page (platform 2.5, 4.5). `order_by` is not used. In descending order, new
 * deliveries move others to later pages; in ascending order, they are appended. Some deliveries may therefore be read
 * twice, but none are missed. Entries that are not objects are skipped, so that valid deliveries are still read.
 *
 * `parse` parses the body; required because payloads may contain numbers that a double cannot represent. Throws
 * `platform.unreadable` if the body does not contain a list.
 */
export async function* readDeliveries(
  client: ApiCalls,
  clientApplicationId: number,
  webhookId: number,
  filter: DeliveryFilter = {},
  signal?: AbortSignal,
  parse: (text: string) => unknown = JSON.parse,
): AsyncGenerator<DeliveryPage, void, undefined> {
  const { status, eventType, occurredFrom } = filter;
  const pages = readPages(client, {
    path: `/v1/client_applications/${clientApplicationId}/webhooks/${webhookId}/events`,
    members: ['events', 'webhook_events'],
    query: { status, event_type: eventType },
    ...(occurredFrom === undefined ? {} : { filter: { occurred_at_from: occurredFrom } }),
    parse,
    signal,
  });
  for await (const { entries } of pages) {
    yield { records: entries.filter(isRecord).map(withNumber), platformMs: client.platformClock.nowMs() };
  }
}

function isRecord(entry: unknown): entry is DeliveryRecord {
  return typeof entry === 'object' && entry !== null && !Array.isArray(entry);
}

/** Converts an ID in a decimal string to a number. */
function withNumber(record: DeliveryRecord): DeliveryRecord {
  const id: unknown = record.id;
  return typeof id === 'string' && /^\d{1,15}$/.test(id) ? { ...record, id: Number(id) } : record;
}
