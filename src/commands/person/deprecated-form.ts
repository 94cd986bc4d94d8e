import type { Clock } from '../../base/clock.ts';
import { PlatformError } from '../../base/errors.ts';
import { DEPRECATIONS, type DeprecatedArea, isSunset } from '../../contract/deprecations.ts';

/**
 * Says on standard error that `--v1` is deprecated and when it ends (platform 9). Past that date it throws
 * `platform.sunset` with the v2 form of the same command.
 */
export function heedDeprecatedForm(area: DeprecatedArea, v2Command: string, clock: Clock): void {
  const deprecation = DEPRECATIONS.find((one) => one.area === area);
  if (deprecation === undefined) return;
  const { since, sunset, reason, instead } = deprecation;
  if (isSunset(deprecation, clock.wallMs())) {
    throw new PlatformError(`v1 of ${area} ended on ${sunset}`, {
      code: 'platform.sunset',
      hint: `Use v2: ${v2Command}\n(${instead})`,
    });
  }
  process.stderr.write(
    `tagferry: v1 of ${area} is deprecated since ${since} and ends on ${sunset}: ${reason}.\nUse v2: ${v2Command}\n`,
  );
}
