import { pageCountOf } from '../../contract/paging.ts';
import { type DeliveryRecord, type DeliveryStatus, MAX_PER_PAGE } from '../../contract/webhooks.ts';
import { type ApiCalls, entriesOf, expectSuccess, PAGING_REJECTED, type PlatformCall, unreadable } from '../client.ts';
import type { PlatformAnswer } from '../http-boundary.ts';

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
 * Page sizes. If a response exceeds the client's size limit, the next smaller size is used, because payloads may be up
 * to one mebibyte.
 */
const PAGE_SIZES = [MAX_PER_PAGE, 20, 4, 1];
/** Maximum number of full pages, which allows for 100,000 deliveries. A list with more pages is an error. */
const MAX_PAGES = 1_000;
const LISTS = ['events', 'webhook_events'];

/**
 * Yields the deliveries of one webhook, page by page (platform 2.5, 4.5). The list is the body, or its member `events`
 * or `webhook_events`. The time filter and the paging parameters are not documented. If the platform rejects them, the
 * list is requested without them. `order_by` is not used. In descending order, new deliveries move others to later
 * pages; in ascending order, they are appended. Some deliveries may therefore be read twice, but none are missed.
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
  const path = `/v1/client_applications/${clientApplicationId}/webhooks/${webhookId}/events`;
  const { status, eventType: event_type } = filter;
  let from = filter.occurredFrom;
  let isPaged = true;
  let size = 0;
  let previousIds = '';
  for (let page = 1, pages = 0; ; pages++) {
    const perPage = PAGE_SIZES[size]!;
    const paging = isPaged ? { page, per_page: perPage } : {};
    const query = { status, event_type, occurred_at_from: from, ...paging };
    const call: PlatformCall = { method: 'GET', path, query, kind: 'other', signal };
    if (pages > MAX_PAGES * PAGE_SIZES.length) throw unreadable(call, 'the list does not end');
    const answer = await client.request(call);
    if (PAGING_REJECTED.has(answer.status) && page === 1 && (from !== undefined || isPaged)) {
      if (from === undefined) isPaged = false;
      from = undefined;
      continue;
    }
    expectSuccess(answer, call);
    const body = parsed(answer, parse);
    if (!body) {
      if (!isPaged || size === PAGE_SIZES.length - 1) throw unreadable(call, 'a page that is not JSON, or too large');
      page = Math.floor(((page - 1) * perPage) / PAGE_SIZES[++size]!) + 1;
      continue;
    }
    const entries = entriesOf(body, LISTS);
    if (!entries) throw unreadable(call, `no list named ${LISTS.join(' or ')}`);
    const records = entries.filter(isRecord).map(withNumber);
    const ids = records.map(({ id }) => id).join();
    // If the platform ignores `page`, it returns the same list again.
    if (page > 1 && ids === previousIds) return;
    previousIds = ids;
    yield { records, platformMs: client.platformClock.nowMs() };
    const pageCount = pageCountOf(body);
    // Without a readable `pagination`, a page that is not full is the last page.
    if (!isPaged || (pageCount === undefined ? records.length < perPage : page >= pageCount)) return;
    page++;
  }
}

/**
 * Returns whether an entry is an object. Other entries are skipped, so that they do not prevent valid deliveries from
 * being read.
 */
function isRecord(entry: unknown): entry is DeliveryRecord {
  return typeof entry === 'object' && entry !== null && !Array.isArray(entry);
}

/** Converts an ID in a decimal string to a number. */
function withNumber(record: DeliveryRecord): DeliveryRecord {
  const id: unknown = record.id;
  return typeof id === 'string' && /^\d{1,15}$/.test(id) ? { ...record, id: Number(id) } : record;
}

/** Returns the parsed body, or `undefined` if the body is truncated or is not a JSON object or array. */
function parsed(answer: PlatformAnswer, parse: (text: string) => unknown): object | undefined {
  if (answer.truncated) return undefined;
  try {
    const body = parse(answer.text);
    return typeof body === 'object' && body !== null ? body : undefined;
  } catch {
    return undefined;
  }
}
