import { pageCountOf } from '../../contract/paging.ts';
import { type DeliveryRecord, type DeliveryStatus, MAX_PER_PAGE } from '../../contract/webhooks.ts';
import { type ApiCalls, expectSuccess, type PlatformCall, unreadable } from '../client.ts';
import type { PlatformAnswer } from '../http-boundary.ts';
import { entriesOf } from '../pages.ts';

/** Filters of the deliveries list (platform 10.4); all may stay absent. */
export interface DeliveryFilter {
  status?: DeliveryStatus;
  eventType?: string;
  /** ISO 8601. */
  occurredFrom?: string;
}

export interface DeliveryPage {
  records: DeliveryRecord[];
  /** Platform time of the response, by the platform clock. */
  platformMs: number | undefined;
}

/** Page sizes, tried in turn if a response exceeds the client's limit: a hundred payloads of up to one mebibyte do not fit. */
const PAGE_SIZES = [MAX_PER_PAGE, 20, 4, 1];
/** 100,000 deliveries in one pass; a list that never ends is an error. */
const MAX_PAGES = 1_000;
const LISTS = ['events', 'webhook_events'];
const REJECTED: ReadonlySet<number> = new Set([400, 422]);

/**
 * Reads the deliveries of one webhook, page by page (platform 2.5, 4.5). The list is the body, or its member `events` or `webhook_events`.
 * The time filter and the paging parameters are not documented: a platform that rejects them is read without them.
 * Without `order_by`: deliveries that arrive meanwhile move others to later pages in one order and are last in the other, so some are
 * read twice but none is missed.
 *
 * `parse` reads the body: payloads may contain numbers that a double cannot represent. Throws `platform.unreadable` if the body has no list.
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
    if (pages > MAX_PAGES * PAGE_SIZES.length) throw unreadable(call, 'a list that has no end');
    const answer = await client.request(call);
    if (REJECTED.has(answer.status) && page === 1 && (from !== undefined || isPaged)) {
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
    // A platform that ignores `page` returns the same list again.
    if (page > 1 && ids === previousIds) return;
    previousIds = ids;
    yield { records, platformMs: client.platformClock.nowMs() };
    const pageCount = pageCountOf(body);
    // Without a readable `pagination` a page that is not full is the last.
    if (!isPaged || (pageCount === undefined ? records.length < perPage : page >= pageCount)) return;
    page++;
  }
}

/** Other entries are skipped: one of them must not keep the deliveries beside it from being read. */
function isRecord(entry: unknown): entry is DeliveryRecord {
  return typeof entry === 'object' && entry !== null && !Array.isArray(entry);
}

/** Ids may be decimal strings. */
function withNumber(record: DeliveryRecord): DeliveryRecord {
  const id: unknown = record.id;
  return typeof id === 'string' && /^\d{1,15}$/.test(id) ? { ...record, id: Number(id) } : record;
}

/** `undefined` if the text is truncated, or not a JSON object or array. */
function parsed(answer: PlatformAnswer, parse: (text: string) => unknown): object | undefined {
  if (answer.truncated) return undefined;
  try {
    const body = parse(answer.text);
    return typeof body === 'object' && body !== null ? body : undefined;
  } catch {
    return undefined;
  }
}
