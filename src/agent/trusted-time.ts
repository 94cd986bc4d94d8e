import { EARLIEST_TRUSTED_MS } from '../buffer/stamp-correction.ts';
import type { Clock } from '../clock.ts';

/** What the platform's answers say about the time. */
export interface PlatformTime {
  /** The platform's clock now, carried on by the monotonic one; `undefined` before its first answer. */
  nowMs(): number | undefined;
}

/**
 * The time as far as it can be trusted: the wall clock where it is plausible, else the platform's. Many gateways have no
 * clock of their own: they boot in 1970 and jump when NTP answers.
 */
export function trustedNowMs(clock: Clock, platform: PlatformTime): number | undefined {
  const wallMs = clock.wallMs();
  return wallMs >= EARLIEST_TRUSTED_MS ? wallMs : platform.nowMs();
}
