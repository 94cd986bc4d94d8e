/**
 * How many pages a list has by its `pagination` member, `undefined` where it names none. Whole numbers only: what else
 * stands there is treated as absent, because a wrong count would make a client ask for pages for ever.
 */
export function pageCountOf(body: unknown): number | undefined {
  const pagination = (body as { pagination?: unknown } | null | undefined)?.pagination;
  const count = (pagination as { page_count?: unknown } | null | undefined)?.page_count;
  return typeof count === 'number' && Number.isSafeInteger(count) && count >= 0 ? count : undefined;
}
