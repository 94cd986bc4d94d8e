import { readlinkSync } from 'node:fs';
import type { GatewayZone } from './live-events.ts';

/**
 * The zone that this machine's people live in. Not by `Intl`: its data would cost 9 MB of memory; the browser has it, and needs the
 * name alone.
 */
export function gatewayZone(wallMs: number): GatewayZone {
  return { name: zoneName(), offsetMinutes: -new Date(wallMs).getTimezoneOffset() };
}

function zoneName(): string | null {
  const { TZ } = process.env;
  if (TZ !== undefined) return /^:?([A-Za-z_]+(?:\/[\w+-]+)*)$/.exec(TZ)?.[1] ?? null;
  try {
    return /zoneinfo\/(?:posix\/)?(.+)$/.exec(readlinkSync('/etc/localtime'))?.[1] ?? null;
  } catch {
    return null;
  }
}
