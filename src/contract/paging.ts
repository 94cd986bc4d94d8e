/**
 * Returns the number of pages in the `pagination` member of a list, or undefined if it is not a valid number. A wrong
 * number would make a client request pages endlessly.
 */
export function pageCountOf(body: unknown): number | undefined {
  const pagination = (body as { pagination?: unknown } | null | undefined)?.pagination;
  const count = (pagination as { page_count?: unknown } | null | undefined)?.page_count;
  return typeof count === 'number' && Number.isSafeInteger(count) && count >= 0 ? count : undefined;
}
