import { PlatformError } from '../base/errors.ts';

/**
 * Deprecated v1 endpoints (platform 9) with their dates and replacements, for client, commands, sandbox and
 * documentation.
 */
const DEPRECATED_AREAS = ['display-labels', 'permissions', 'owners', 'tenants', 'userroles'] as const;
export type DeprecatedArea = (typeof DEPRECATED_AREAS)[number];

export interface Deprecation {
  area: DeprecatedArea;
  /** Date in the specification; `YYYY-MM` if it has no day. */
  since: string;
  /** Sunset date (UTC), `YYYY-MM-DD`: v1 ends when this day begins. */
  sunset: string;
  reason: string;
  /** Replacement, as a sentence. */
  instead: string;
  /** Matches the path of a v1 call in this area. */
  path: RegExp;
}

export const DEPRECATIONS: readonly Deprecation[] = [
  {
    area: 'display-labels',
    since: '2025-02',
    sunset: '2027-03-01',
    reason: 'the flat body cannot contain the new parameters',
    instead: 'PATCH /v2/{assets|instrumentations}/{id}/display_labels with an object for each key.',
    path: /^\/v1\/(?:assets|instrumentations)\/[^/]+\/display_labels$/,
  },
  {
    area: 'permissions',
    since: '2025-05-01',
    sunset: '2027-05-01',
    reason: 'sequential IDs can be enumerated',
    instead: '/v2/permissions: `permission_types` as an array, users by e-mail, one record for each pair.',
    path: /^\/v1\/permissions(?:\/|$)/,
  },
  {
    area: 'owners',
    since: '2025-05-01',
    sunset: '2027-05-01',
    reason: 'sequential IDs can be enumerated',
    instead: '/v2/owners with the user by e-mail.',
    path: /^\/v1\/owners$/,
  },
  {
    area: 'tenants',
    since: '2025-07-01',
    sunset: '2027-07-01',
    reason: 'sequential user IDs can be enumerated',
    instead: '/v2/tenants/{id}/{admins|users} with `users` by e-mail.',
    path: /^\/v1\/tenants\/[^/]+\/(?:admins|users)$/,
  },
  {
    area: 'userroles',
    since: '2025-07-01',
    sunset: '2027-07-01',
    reason: 'sequential user IDs can be enumerated',
    instead: '/v2/userroles/{id}/users with `users` by e-mail.',
    path: /^\/v1\/userroles\/[^/]+\/users$/,
  },
];

/** Returns the deprecation of a path, if any. */
export function deprecationOf(path: string): Deprecation | undefined {
  return DEPRECATIONS.find((each) => each.path.test(path));
}

/** Returns the start of the sunset date (UTC), when v1 ends. */
export function sunsetMs({ sunset }: Deprecation): number {
  return Date.parse(`${sunset}T00:00:00Z`);
}

/**
 * Throws `platform.sunset` once the sunset date has begun, and `platform.sunset_unknown` if no clock is trusted,
 * because v2 is always available. `nowMs` is the trusted time; `instead` is the v2 replacement.
 */
export function requireBeforeSunset(deprecation: Deprecation, nowMs: number | undefined, instead: string): void {
  const { area, sunset } = deprecation;
  if (nowMs === undefined) {
    throw new PlatformError(
      `cannot use v1 of ${area}, which will be removed on ${sunset}: this machine's clock is not set`,
      {
        code: 'platform.sunset_unknown',
        hint: `Set the clock, or use v2: ${instead}`,
      },
    );
  }
  if (nowMs < sunsetMs(deprecation)) return;
  throw new PlatformError(`v1 of ${area} was removed on ${sunset}`, {
    code: 'platform.sunset',
    hint: `Use v2: ${instead}`,
  });
}
