import { isDeepStrictEqual } from 'node:util';
import { pageCountOf } from '../../contract/paging.ts';
import { MAX_PER_PAGE } from '../../contract/webhooks.ts';
import { type ApiCalls, expectSuccess, type PlatformCall, unreadable } from '../client.ts';
import type { PlatformAnswer } from '../http-boundary.ts';
import { isPage, ResponseRecord } from '../response-body.ts';

type Query = NonNullable<PlatformCall['query']>;

interface List {
  path: string;
  /** Possible names of the list, in order of preference. The body itself may also be the list. */
  members: readonly string[];
  query?: Query;
  /** Undocumented filter. If the platform rejects it, the list is requested without it. */
  filter?: Query;
  /** Parses the body. Default: `JSON.parse`. */
  parse?: (text: string) => unknown;
  signal?: AbortSignal | undefined;
}

interface ListPage {
  call: PlatformCall;
  entries: unknown[];
}

/** Page sizes. If a page is too large to be read, the next smaller size is requested. */
const PAGE_SIZES = [MAX_PER_PAGE, 20, 4, 1];
/** Maximum number of requests for one list. A longer list is an error. */
const MAX_REQUESTS = 10_000;
/** Statuses after which a list is retried without paging parameters, which are undocumented (platform 10.3). */
export const PAGING_REJECTED: ReadonlySet<number> = new Set([400, 422]);

/**
 * Yields a list page by page on demand (`page`, `page_count`). The last page is identified by `page_count`, because the
 * server may limit the page size. Without a readable `pagination`, a page that is not full is the last page. An empty page
 * and a page that is repeated, because the platform ignores `page`, also end the list.
 *
 * Throws `CallRefusal` if the platform rejects the call, or `platform.unreadable` if the body contains no list.
 */
export async function* readPages(client: ApiCalls, list: List): AsyncGenerator<ListPage, void, undefined> {
  const { path, members, query, parse = JSON.parse, signal } = list;
  let { filter } = list;
  let isPaged = true;
  let size = 0;
  let page = 1;
  let previous: unknown[] = [];
  for (let requests = 1; ; requests++) {
    const perPage = PAGE_SIZES[size]!;
    const paging = isPaged ? { page, per_page: perPage } : {};
    const call: PlatformCall = {
      method: 'GET',
      path,
      query: { ...query, ...filter, ...paging },
      kind: 'other',
      signal,
    };
    if (requests > MAX_REQUESTS) throw unreadable(call, 'the list has too many pages');
    const answer = await client.request(call);
    if (PAGING_REJECTED.has(answer.status) && page === 1 && (filter || isPaged)) {
      if (filter) filter = undefined;
      else isPaged = false;
      continue;
    }
    expectSuccess(answer, call);
    const body = parsed(answer, parse);
    const nextSize = PAGE_SIZES[size + 1];
    if (!body && isPaged && nextSize !== undefined && !isPage(answer)) {
      page = Math.floor(((page - 1) * perPage) / nextSize) + 1;
      size++;
      continue;
    }
    if (!body) throw unreadable(call, 'the page is too large or not JSON', answer);
    const entries = entriesOf(body, members);
    if (!entries) throw unreadable(call, `no list named ${members.join(' or ')}`);
    if (page > 1 && isDeepStrictEqual(entries, previous)) return;
    previous = entries;
    yield { call, entries };
    const pageCount = pageCountOf(body);
    const isLast = pageCount === undefined ? entries.length < perPage : page >= pageCount;
    if (!isPaged || isLast || entries.length === 0) return;
    page++;
  }
}

/** Yields the entries of a list, converted by `read`. Throws the same errors as `readPages`. */
export async function* listEntries<Entry>(
  client: ApiCalls,
  list: List,
  read: (entry: ResponseRecord) => Entry,
): AsyncGenerator<Entry, void, undefined> {
  for await (const { call, entries } of readPages(client, list)) {
    for (const [i, entry] of entries.entries()) yield read(new ResponseRecord(call, entry, `${list.members[0]}[${i}]`));
  }
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

/** Returns the body itself if it is an array, otherwise the first member that is an array. */
function entriesOf(body: object, members: readonly string[]): unknown[] | undefined {
  const lists = [body, ...members.map((member) => (body as Record<string, unknown>)[member])];
  return lists.find((list) => Array.isArray(list));
}
