import { type Clock, plausibleWallMs } from '../base/clock.ts';
import type { JudgingTime } from '../reactions/rules.ts';

/** What authenticated responses of the platform say about the time. */
export interface PlatformTime {
  /** The platform's time now, carried on by the monotonic clock; `undefined` before it is known. */
  nowMs(): number | undefined;
  /** A response contradicts the gateway's clock, and the next one is to decide. */
  readonly isDisputed: boolean;
}

/**
 * The time as far as it can be trusted: the wall clock where it is plausible, else the platform's. Many gateways have no
 * clock of their own: they boot in 1970 and jump when NTP answers.
 */
export function trustedNowMs(clock: Clock, platform: PlatformTime): number | undefined {
  return plausibleWallMs(clock) ?? platform.nowMs();
}

/**
 * The time that decides the age of an event. Both the event's time and the platform's `Date` are the platform's, so a gateway clock
 * that is a quarter of an hour fast or a week slow decides nothing. The gateway's clock only where the platform's time is not
 * known, and then not before the agent is ready, which waits for the first login, and not while they contradict each other.
 */
export function eventTime(clock: Clock, platform: PlatformTime, isReady: boolean): JudgingTime | undefined {
  const platformMs = platform.nowMs();
  if (platformMs !== undefined) return { ms: platformMs, clock: 'platform' };
  const wallMs = plausibleWallMs(clock);
  if (!isReady || platform.isDisputed || wallMs === undefined) return undefined;
  return { ms: wallMs, clock: 'gateway' };
}
