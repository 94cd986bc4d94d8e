import { pageCountOf } from '../contract/paging.ts';
import { MAX_PER_PAGE } from '../contract/webhooks.ts';
import { type ApiCalls, type PlatformCall, unreadable } from './client.ts';
import { CallRefusal } from './response-meanings.ts';
import { ResponseRecord } from './response-record.ts';

/**
 * Maximum number of pages, which corresponds to a million entries at 100 entries per page. A larger page count is
 * considered incorrect.
 */
const MAX_PAGES = 10_000;
const REJECTED: ReadonlySet<number> = new Set([400, 422]);

export interface ListOptions {
  query?: PlatformCall['query'];
  signal?: AbortSignal | undefined;
}

/**
 * Yields list entries, reading page by page on demand (`page`, `page_count`). A response without `pagination` is
 * treated as the complete list. `members`: possible names of the list, in order of preference. `read`: converts an
 * entry.
 *
 * The last page is identified by `page_count`, not by the page size, because the server may limit the page size. A page
 * without entries also ends the list.
 */
export async function* listEntries<Entry>(
  client: ApiCalls,
  path: string,
  members: readonly string[],
  read: (entry: ResponseRecord) => Entry,
  options: ListOptions = {},
): AsyncGenerator<Entry, void, undefined> {
  const { signal } = options;
  const callOf = (query: NonNullable<PlatformCall['query']>): PlatformCall => ({
    method: 'GET',
    path,
    query,
    kind: 'other',
    signal,
  });
  for (let page = 1; page <= MAX_PAGES; page++) {
    let call = callOf({ ...options.query, page, per_page: MAX_PER_PAGE });
    const body = await client.call(call).catch((error: unknown) => {
      // Paging is not documented (platform 10.3). If a server rejects the parameters, request the complete list.
      if (page > 1 || !(error instanceof CallRefusal) || !REJECTED.has(error.status)) throw error;
      call = callOf(options.query ?? {});
      return client.call(call);
    });
    const entries = entriesOf(body, members);
    if (entries === undefined) throw unreadable(call, `no list named ${members.join(' or ')}`);
    for (const [i, entry] of entries.entries()) yield read(new ResponseRecord(call, entry, `${members[0]}[${i}]`));
    const pages = pageCountOf(body);
    if (pages === undefined || page >= pages || entries.length === 0) return;
  }
}

/**
 * Returns the list in a body: the body itself if it is an array, otherwise the first member in `members` that is an
 * array.
 */
export function entriesOf(body: unknown, members: readonly string[]): unknown[] | undefined {
  if (Array.isArray(body)) return body;
  for (const member of members) {
    const entries = (body as Record<string, unknown> | null | undefined)?.[member];
    if (Array.isArray(entries)) return entries;
  }
  return undefined;
}
