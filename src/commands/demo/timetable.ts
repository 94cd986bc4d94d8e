/**
 * Step durations as fractions of `--seconds`. If the agent determines a duration, such as a retry delay, the demo waits
 * for the result.
 */
export interface Timetable {
  /** Total duration, including shutdown. */
  wholeMs: number;
  /** Normal operation before the outage. */
  calmMs: number;
  /** Intended duration of the outage. */
  awayMs: number;
  /** Maximum duration of the outage. */
  maxAwayMs: number;
  /** BACKFILL_VALUES_PER_SECOND, low enough to watch the backlog drain. */
  backfillValuesPerSecond: number;
  /** Time during which the permission is revoked. */
  withoutPermissionMs: number;
  /** Time reserved for shutdown. */
  stopMs: number;
  /**
   * Lifetime of an access token. The agent renews the token after 60 to 75 % of its lifetime, which is after the outage
   * and before the demo ends.
   */
  tokenLifeS: number;
  /** Interval between status lines in a pipe. */
  countersMs: number;
}

/** Minimum duration of the whole demo. */
export const MIN_SECONDS = 20;

/** `pushedPerSecond`: number of values that the plant pushes per second. */
export function timetableOf(seconds: number, pushedPerSecond: number): Timetable {
  const wholeMs = seconds * 1000;
  const awayMs = wholeMs * 0.28 - 1_600;
  // After the outage, the rate limit allows a burst of values for one second.
  const drainS = seconds * 0.16 - 1.2;
  return {
    wholeMs,
    calmMs: wholeMs * 0.12,
    awayMs,
    maxAwayMs: awayMs + wholeMs * 0.13,
    backfillValuesPerSecond: Math.ceil((pushedPerSecond * (awayMs / 1000)) / drainS),
    withoutPermissionMs: Math.max(2_000, wholeMs * 0.09),
    stopMs: 2_000,
    tokenLifeS: Math.round(seconds * 0.75),
    countersMs: Math.max(1_000, wholeMs / 30),
  };
}

/** The agent's connection attempts during the outage, from `/status`. */
export interface Attempts {
  failed: number;
  nextInMs: number;
}

/**
 * Maximum delay after the first failed attempt. The delay doubles with each attempt, with random jitter
 * (uplink/link.ts).
 */
const FIRST_WAIT_MS = 1_000;
/** Time between the end of the outage and the successful attempt. */
const BEFORE_TRY_MS = 1_500;

/**
 * Returns whether the outage should end now. The outage must end shortly before the first attempt after `awayMs`, or
 * before an earlier attempt if the following one could be later than `maxAwayMs`.
 */
export function shouldReturn(
  { awayMs, maxAwayMs }: Pick<Timetable, 'awayMs' | 'maxAwayMs'>,
  goneForMs: number,
  { failed, nextInMs }: Attempts,
): boolean {
  const nextAtMs = goneForMs + nextInMs;
  const isTheOne = nextAtMs >= awayMs || nextAtMs + FIRST_WAIT_MS * 2 ** failed > maxAwayMs;
  return isTheOne && (nextInMs < BEFORE_TRY_MS || goneForMs >= awayMs);
}
