import { type Deprecation, deprecationOf, sunsetMs } from '../../contract/deprecations.ts';
import { refusal } from './refusal.ts';

/** v2 permissions have different IDs, so the endpoint itself adds the link. */
const OF_ANOTHER_ID = /^\/v1\/permissions\/./;

/**
 * Returns the headers `Deprecation` (RFC 9745), `Sunset` (RFC 8594) and the link to the successor for deprecated v1
 * endpoints (platform 9). After the sunset date according to the sandbox clock, these endpoints respond 410. The
 * specification does not define this response.
 */
export function deprecationHeaders(path: string, wallMs: number): Record<string, string> {
  const deprecation = deprecationOf(path);
  if (!deprecation) return {};
  const headers = {
    deprecation: `@${Math.floor(sinceMs(deprecation) / 1000)}`,
    sunset: new Date(sunsetMs(deprecation)).toUTCString(),
    ...(OF_ANOTHER_ID.test(path) ? {} : successorLink(path.replace(/^\/v1\//, '/v2/'))),
  };
  if (wallMs >= sunsetMs(deprecation)) {
    throw refusal(410, `v1 ended on ${deprecation.sunset}. Use ${deprecation.instead}`, undefined, headers);
  }
  return headers;
}

export function successorLink(path: string): { link: string } {
  return { link: `<${path}>; rel="successor-version"` };
}

/** Returns a date. If the specification does not mention a day, returns the first day of the month. */
function sinceMs(deprecation: Deprecation): number {
  const day = deprecation.since.length === 7 ? `${deprecation.since}-01` : deprecation.since;
  return Date.parse(`${day}T00:00:00Z`);
}
