import { pageCountOf } from '../contract/paging.ts';
import { MAX_PER_PAGE } from '../contract/webhooks.ts';
import { CallRefusal } from './call-refusal.ts';
import { type ApiCalls, type PlatformCall, unreadable } from './client.ts';
import { ResponseRecord } from './response-record.ts';

/** A list that claims more pages than this has lost count: a million entries at 100 a page. */
const MAX_PAGES = 10_000;
const REJECTED: ReadonlySet<number> = new Set([400, 422]);

export interface ListOptions {
  query?: PlatformCall['query'];
  signal?: AbortSignal | undefined;
  perPage?: number;
  kind?: PlatformCall['kind'];
}

/**
 * Entries of a list, page after page as they are asked for (`page`, `page_count`). Where an answer has no `pagination` it
 * is taken for the whole list. `members` are the names under which the entries may stand, in order of preference. `read` turns an
 * entry into the caller's type.
 *
 * The last page is known by `page_count` alone: an answer that is shorter than asked may be a server's own bound. A page
 * without entries ends the list too, whatever the count says.
 */
export async function* listEntries<Entry>(
  client: ApiCalls,
  path: string,
  members: readonly string[],
  read: (entry: ResponseRecord) => Entry,
  options: ListOptions = {},
): AsyncGenerator<Entry, void, undefined> {
  const { kind = 'other', signal, perPage = MAX_PER_PAGE } = options;
  const callOf = (query: NonNullable<PlatformCall['query']>): PlatformCall => ({
    method: 'GET',
    path,
    query,
    kind,
    signal,
  });
  for (let page = 1; page <= MAX_PAGES; page++) {
    let call = callOf({ ...options.query, page, per_page: perPage });
    const body = await client.call(call).catch((error: unknown) => {
      // Paging is not documented (platform 10.3): a server that rejects its parameters is asked for the whole list.
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

/** All entries of a list at once: for lists that people look at. */
export async function allEntries<Entry>(entries: AsyncIterable<Entry>): Promise<Entry[]> {
  const all: Entry[] = [];
  for await (const entry of entries) all.push(entry);
  return all;
}

/** The list in a body: the body itself, or the first of `members` that is an array. */
export function entriesOf(body: unknown, members: readonly string[]): unknown[] | undefined {
  if (Array.isArray(body)) return body;
  for (const member of members) {
    const entries = (body as Record<string, unknown> | null | undefined)?.[member];
    if (Array.isArray(entries)) return entries;
  }
  return undefined;
}
