import type { Clock } from '../base/clock.ts';
import { EARLIEST_TRUSTED_MS } from '../buffer/recovery/stamp-correction.ts';

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

/**
 * What the age of an event is judged by: both its time and the platform's `Date` are the platform's, so this machine's clock, a
 * quarter of an hour fast or a week slow, decides nothing. The wall clock only where the platform has not answered yet, and
 * then not before the agent is ready, which waits for the first login to be tried: `undefined` until then.
 */
export function eventNowMs(clock: Clock, platform: PlatformTime, isReady: boolean): number | undefined {
  const platformMs = platform.nowMs();
  if (platformMs !== undefined) return platformMs;
  return isReady ? trustedNowMs(clock, platform) : undefined;
}
