/** Maximum length of a timestamp. */
const MAX_TEXT = 40;

/**
 * ISO 8601, or a time as Ruby prints it (`2026-11-21 00:00:00 UTC`). The length of every part is limited, so that no
 * text can make matching slow.
 */
const TIMESTAMP =
  /^(\d{4})-(\d{2})-(\d{2})(?:[Tt ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?)?(?: ?(?:([Zz]|UTC)|([+-])(\d{2}):?(\d{2})?))?$/;

/**
 * Returns a timestamp of the platform in milliseconds since 1970, or undefined if it is not a valid date. A timestamp without an
 * offset is in UTC (platform 6.2), regardless of the machine's time zone.
 */
export function timestampMs(stamp: unknown): number | undefined {
  if (typeof stamp !== 'string' || stamp.length > MAX_TEXT) return undefined;
  const found = TIMESTAMP.exec(stamp.trim());
  if (!found) return undefined;
  const [, year, month, day, hour = '0', minute = '0', second = '0', fraction = '', , sign, offsetHour, offsetMinute] =
    found;
  const milliseconds = Number(fraction.padEnd(3, '0').slice(0, 3));
  if (Number(hour) > 24 || Number(minute) > 59 || Number(second) > 60) return undefined;
  const at = new Date(0);
  at.setUTCFullYear(Number(year), Number(month) - 1, Number(day));
  // 31 February would roll over to March.
  if (at.getUTCMonth() !== Number(month) - 1 || at.getUTCDate() !== Number(day)) return undefined;
  at.setUTCHours(Number(hour), Number(minute), Number(second), milliseconds);
  const offset = (Number(offsetHour ?? 0) * 60 + Number(offsetMinute ?? 0)) * 60_000;
  return at.getTime() - (sign === '-' ? -offset : offset);
}

/** Returns the time of an event in either spelling (platform 6.2 shows `occured_at` for two types), in milliseconds since 1970. */
export function occurredAtMs(payload: unknown): number | undefined {
  if (typeof payload !== 'object' || payload === null) return undefined;
  const { occurred_at, occured_at } = payload as { occurred_at?: unknown; occured_at?: unknown };
  return timestampMs(occurred_at) ?? timestampMs(occured_at);
}
