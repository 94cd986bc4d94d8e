/** The gateway's clocks and time zone, because the clock of the machine with the browser can be wrong. */
import type { GatewayZone, Sight, Views } from '../ops/live/views.ts';
import { pageMs } from './poll.ts';

export interface Gateway {
  sight: Sight;
  /** Returns the current time of the gateway's wall clock. */
  nowMs(): number;
  /** Converts a gateway monotonic time to the gateway's wall-clock time. */
  wallMs(monotonicMs: number): number;
  /** Formats a time in the gateway's time zone. */
  time(atMs: number): string;
}

/** `answeredMs`: value of `pageMs` when the answer arrived. */
export function gatewayOf({ sight, zone, clock }: Views['now'], answeredMs: number): Gateway {
  return {
    sight,
    nowMs: () => clock.atMs + pageMs() - answeredMs,
    wallMs: (monotonicMs) => clock.atMs - (clock.monotonicMs - monotonicMs),
    time: (atMs) => timeIn(zone, atMs),
  };
}

/** Formats a time in the gateway time zone with its offset: `2026-11-22 14:05:10 +01:00`. */
export function timeIn(zone: GatewayZone, atMs: number): string {
  const offset = offsetAt(zone, atMs);
  const text = new Date(atMs + offset * 60_000).toISOString();
  const [hours, minutes] = [Math.floor(Math.abs(offset) / 60), Math.abs(offset) % 60];
  const two = (count: number) => String(count).padStart(2, '0');
  return `${text.slice(0, 10)} ${text.slice(11, 19)} ${offset < 0 ? '-' : '+'}${two(hours)}:${two(minutes)}`;
}

const formats = new Map<string, Intl.DateTimeFormat | undefined>();

/**
 * Returns the time zone's offset from UTC at that time, in minutes. If the zone is unknown, returns the gateway's
 * current offset.
 */
function offsetAt({ name, offsetMinutes }: GatewayZone, atMs: number): number {
  if (name === null) return offsetMinutes;
  if (!formats.has(name)) formats.set(name, formatOf(name));
  const part = formats
    .get(name)
    ?.formatToParts(atMs)
    .find(({ type }) => type === 'timeZoneName')?.value;
  if (part === undefined) return offsetMinutes;
  const match = /GMT(?:([+-])(\d\d):(\d\d))?/.exec(part);
  if (!match?.[1]) return 0;
  return (match[1] === '-' ? -1 : 1) * (Number(match[2]) * 60 + Number(match[3]));
}

/** Returns `undefined` if this browser does not support the zone. */
function formatOf(timeZone: string): Intl.DateTimeFormat | undefined {
  try {
    return new Intl.DateTimeFormat('en', { timeZone, timeZoneName: 'longOffset' });
  } catch {
    return undefined;
  }
}
