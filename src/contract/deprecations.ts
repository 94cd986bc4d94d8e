import { PlatformError } from '../base/errors.ts';

/**
 * Platform 9: the v1 endpoints that are deprecated, since when, until when, and what takes their place. Client,
 * verbs, sandbox and docs read this one table.
 */
const DEPRECATED_AREAS = ['display-labels', 'permissions', 'owners', 'tenants', 'userroles'] as const;
export type DeprecatedArea = (typeof DEPRECATED_AREAS)[number];

export interface Deprecation {
  area: DeprecatedArea;
  /** As the spec writes it; `YYYY-MM` where it names no day. */
  since: string;
  /** Sunset date (UTC), `YYYY-MM-DD`: v1 ends when this day begins. */
  sunset: string;
  reason: string;
  /** What to use instead, as a sentence for people. */
  instead: string;
  /** Matches the path of a v1 call of this area. */
  path: RegExp;
}

export const DEPRECATIONS: readonly Deprecation[] = [
  {
    area: 'display-labels',
    since: '2025-02',
    sunset: '2027-03-01',
    reason: 'the flat body cannot carry the new parameters',
    instead: 'PATCH /v2/{assets|instrumentations}/{id}/display_labels with an object for each key.',
    path: /^\/v1\/(?:assets|instrumentations)\/[^/]+\/display_labels$/,
  },
  {
    area: 'permissions',
    since: '2025-05-01',
    sunset: '2027-05-01',
    reason: 'sequential ids can be enumerated',
    instead: '/v2/permissions: `permission_types` as an array, users by e-mail, one record for each pair.',
    path: /^\/v1\/permissions(?:\/|$)/,
  },
  {
    area: 'owners',
    since: '2025-05-01',
    sunset: '2027-05-01',
    reason: 'sequential ids can be enumerated',
    instead: '/v2/owners with the user by e-mail.',
    path: /^\/v1\/owners$/,
  },
  {
    area: 'tenants',
    since: '2025-07-01',
    sunset: '2027-07-01',
    reason: 'sequential user ids can be enumerated',
    instead: '/v2/tenants/{id}/{admins|users} with `users` by e-mail.',
    path: /^\/v1\/tenants\/[^/]+\/(?:admins|users)$/,
  },
  {
    area: 'userroles',
    since: '2025-07-01',
    sunset: '2027-07-01',
    reason: 'sequential user ids can be enumerated',
    instead: '/v2/userroles/{id}/users with `users` by e-mail.',
    path: /^\/v1\/userroles\/[^/]+\/users$/,
  },
];

/** The deprecation that a call's path falls under, if any. */
export function deprecationOf(path: string): Deprecation | undefined {
  return DEPRECATIONS.find((each) => each.path.test(path));
}

/** Start (UTC) of the sunset date: v1 ends here. */
export function sunsetMs({ sunset }: Deprecation): number {
  return Date.parse(`${sunset}T00:00:00Z`);
}

/**
 * Throws `platform.sunset` from the start of the sunset date on, and `platform.sunset_unknown` if no clock is trusted: v2 is always
 * available. `nowMs` is the trusted time; `instead` names the v2 form.
 */
export function requireBeforeSunset(deprecation: Deprecation, nowMs: number | undefined, instead: string): void {
  const { area, sunset } = deprecation;
  if (nowMs === undefined) {
    throw new PlatformError(`cannot use v1 of ${area}, which ends on ${sunset}: the clock of this machine is not set`, {
      code: 'platform.sunset_unknown',
      hint: `Set the clock, or use v2: ${instead}`,
    });
  }
  if (nowMs < sunsetMs(deprecation)) return;
  throw new PlatformError(`v1 of ${area} ended on ${sunset}`, { code: 'platform.sunset', hint: `Use v2: ${instead}` });
}
