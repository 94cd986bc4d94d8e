import type { Pagination } from '../../contract/errors.ts';
import type { Call } from './call.ts';
import { refusal } from './refusal.ts';

/** A page of a list with its `pagination` (platform 10.3: `page`, `per_page` 1 to 100). Default page size: not shown, 25 here. */
export function page<Item>(call: Call, items: readonly Item[]): { items: Item[]; pagination: Pagination } {
  const perPage = number(call, 'per_page', 25, 100);
  const at = number(call, 'page', 1, 1_000_000);
  const pageCount = Math.max(1, Math.ceil(items.length / perPage));
  const address = (to: number) => {
    const query = new URLSearchParams(call.query);
    query.set('page', String(to));
    query.set('per_page', String(perPage));
    return `${call.path}?${query}`;
  };
  return {
    items: items.slice((at - 1) * perPage, at * perPage),
    pagination: {
      total_count: items.length,
      page_count: pageCount,
      per_page: perPage,
      page: at,
      prev: at > 1 ? address(at - 1) : null,
      next: at < pageCount ? address(at + 1) : null,
      first: address(1),
      last: address(pageCount),
    },
  };
}

function number(call: Call, name: string, otherwise: number, max: number): number {
  const text = call.query.get(name);
  if (text === null) return otherwise;
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < 1 || value > max) {
    throw refusal(400, `${name} is a whole number from 1 to ${max}`, name);
  }
  return value;
}
