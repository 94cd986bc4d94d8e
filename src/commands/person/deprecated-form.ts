import { type Clock, plausibleWallMs } from '../../base/clock.ts';
import { DEPRECATIONS, type DeprecatedArea, requireBeforeSunset } from '../../contract/deprecations.ts';

/**
 * Warns on standard error that `--v1` is deprecated and when it ends (platform 9). Throws `platform.sunset` with the v2 form of the
 * same command from the sunset date on, and `platform.sunset_unknown` if the clock is not set.
 */
export function heedDeprecatedForm(area: DeprecatedArea, v2Command: string, clock: Clock): void {
  const deprecation = DEPRECATIONS.find((one) => one.area === area);
  if (deprecation === undefined) return;
  const { since, sunset, reason, instead } = deprecation;
  requireBeforeSunset(deprecation, plausibleWallMs(clock), `${v2Command}\n(${instead})`);
  process.stderr.write(
    `tagferry: v1 of ${area} is deprecated since ${since} and ends on ${sunset}: ${reason}.\nUse v2: ${v2Command}\n`,
  );
}
