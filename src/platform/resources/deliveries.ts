import { pageCountOf } from '../../contract/paging.ts';
import { type DeliveryList, type DeliveryRecord, type DeliveryStatus, MAX_PER_PAGE } from '../../contract/webhooks.ts';
import { type ApiCalls, expectSuccess, type PlatformCall, unreadable } from '../client.ts';
import type { PlatformAnswer } from '../http-boundary.ts';

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

/** Tried in turn where an answer is longer than the client's bound: a hundred payloads of up to a mebibyte do not fit. */
const PAGE_SIZES = [MAX_PER_PAGE, 20, 4, 1];
/** 100,000 deliveries in one pass; a list that never ends is an error. */
const MAX_PAGES = 1_000;

/**
 * The deliveries of one webhook, page by page (platform 2.5, 4.5). docs/interface.md: they may stand under `events` or `webhook_events`.
 * Without `order_by`: new entries that arrive while it reads move others to later pages in one order and stand at the end in the
 * other, so entries are met twice but none is passed over.
 *
 * `parse` is what reads the body: payloads may hold numbers that no double does.
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
  let from = filter.occurredFrom;
  let size = 0;
  for (let page = 1, pages = 0; ; pages++) {
    const perPage = PAGE_SIZES[size]!;
    const query = {
      status: filter.status,
      event_type: filter.eventType,
      occurred_at_from: from,
      page,
      per_page: perPage,
    };
    const call: PlatformCall = { method: 'GET', path, query, kind: 'other', signal };
    if (pages > MAX_PAGES * PAGE_SIZES.length) throw unreadable(call, 'a list that has no end');
    const answer = await client.request(call);
    if ((answer.status === 400 || answer.status === 422) && from !== undefined) {
      // The filter's exact form is not in the spec: a platform that refuses it is read whole.
      from = undefined;
      continue;
    }
    expectSuccess(answer, call);
    const body = parsed(answer, parse);
    if (!body) {
      if (size === PAGE_SIZES.length - 1) throw unreadable(call, 'a page with one entry that is no JSON');
      page = Math.floor(((page - 1) * perPage) / PAGE_SIZES[++size]!) + 1;
      continue;
    }
    const records = Array.isArray(body) ? (body as DeliveryRecord[]) : (body.events ?? body.webhook_events);
    if (!Array.isArray(records)) throw unreadable(call, 'no list named events or webhook_events');
    yield { records, platformMs: client.platformClock.nowMs() };
    const pageCount = pageCountOf(body);
    // Without a readable `pagination` a page that is not full is the last.
    if (pageCount === undefined ? records.length < perPage : page >= pageCount) return;
    page++;
  }
}

/** `undefined` where it is cut off, or no JSON object. */
function parsed(answer: PlatformAnswer, parse: (text: string) => unknown): DeliveryList | undefined {
  if (answer.truncated) return undefined;
  try {
    const body = parse(answer.text);
    return typeof body === 'object' && body !== null ? (body as DeliveryList) : undefined;
  } catch {
    return undefined;
  }
}
