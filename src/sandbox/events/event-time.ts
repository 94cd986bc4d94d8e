/** How events write their time: platform 6.2 has ISO 8601 with or without UTC offset. */
export const EVENT_TIMES = ['Z', 'bare', 'offset'] as const;
export type EventTimes = (typeof EVENT_TIMES)[number];

const HOUR_MS = 3_600_000;

/** `2026-11-21T00:00:00.000Z`; bare: without an offset, in UTC; offset: by a clock two hours ahead, and it says so. */
export function eventTime(atMs: number, form: EventTimes): string {
  if (form === 'offset') return new Date(atMs + 2 * HOUR_MS).toISOString().replace('Z', '+02:00');
  const utc = new Date(atMs).toISOString();
  return form === 'bare' ? utc.slice(0, -1) : utc;
}
