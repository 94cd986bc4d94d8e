import { type Deprecation, deprecationOf, sunsetMs } from '../../contract/deprecations.ts';
import { refusal } from './refusal.ts';

/** A permission of v1 is another record in v2, of another id: its endpoint says which. */
const OF_ANOTHER_ID = /^\/v1\/permissions\/./;

/**
 * `Deprecation` (RFC 9745) and `Sunset` (RFC 8594) for the v1 endpoints of platform 9, and where they lead. Past the
 * sunset of the sandbox's clock they are gone: `afterSunset`, 410 unless given, for what the platform will answer then is
 * not shown.
 */
export function deprecationHeaders(path: string, wallMs: number, afterSunset = 410): Record<string, string> {
  const deprecation = deprecationOf(path);
  if (!deprecation) return {};
  const headers = {
    deprecation: `@${Math.floor(sinceMs(deprecation) / 1000)}`,
    sunset: new Date(sunsetMs(deprecation)).toUTCString(),
    ...(OF_ANOTHER_ID.test(path) ? {} : successorLink(path.replace(/^\/v1\//, '/v2/'))),
  };
  if (wallMs >= sunsetMs(deprecation)) {
    throw refusal(afterSunset, `v1 ended on ${deprecation.sunset}. Use ${deprecation.instead}`, undefined, headers);
  }
  return headers;
}

export function successorLink(path: string): { link: string } {
  return { link: `<${path}>; rel="successor-version"` };
}

/** The first day of the month where the spec names no day. */
function sinceMs(deprecation: Deprecation): number {
  const day = deprecation.since.length === 7 ? `${deprecation.since}-01` : deprecation.since;
  return Date.parse(`${day}T00:00:00Z`);
}
