/**
 * How long each part of the demo takes. What the agent decides (when it tries again, when it renews its token) is
 * waited for; what the demo decides is a share of `--seconds`.
 */
export interface Timetable {
  /** Everything, the stop included. */
  wholeMs: number;
  /** Values flow, before anything happens. */
  calmMs: number;
  /** The platform is away for so long, if the agent's tries fall so; */
  awayMs: number;
  /** and at the most for so long. */
  maxAwayMs: number;
  /** BACKFILL_VALUES_PER_SECOND: the backlog of the outage shall leave slowly enough to watch. */
  backfillValuesPerSecond: number;
  /** The permission is gone. */
  withoutPermissionMs: number;
  /** Kept of the whole for the clean stop. */
  stopMs: number;
  /** Life of an access token: the agent renews between 0.6 and 0.75 of it, after the outage and before the end. */
  tokenLifeS: number;
  /** Between two plain lines of counters. */
  countersMs: number;
}

/** Below this the parts do not fit. */
export const MIN_SECONDS = 20;

/** `pushedPerSecond`: values that the plant pushes. */
export function timetableOf(seconds: number, pushedPerSecond: number): Timetable {
  const wholeMs = seconds * 1000;
  const awayMs = wholeMs * 0.28 - 1_600;
  // One second's worth is saved up while nothing is posted, and leaves at once.
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

/** What `/status` says of the agent's tries while the platform is away. */
export interface Tries {
  failed: number;
  nextInMs: number;
}

/** The longest wait after the first failed try; it doubles with each (uplink/link.ts), and is random below that. */
const FIRST_WAIT_MS = 1_000;
/** How long before a try that shall succeed the platform returns. */
const BEFORE_TRY_MS = 1_500;

/**
 * Whether the platform should return now. The agent's tries alone end the outage, and the waits between them grow: so the
 * platform returns before the first try that falls late enough, or after which the next could fall too late.
 */
export function shouldReturn(
  { awayMs, maxAwayMs }: Pick<Timetable, 'awayMs' | 'maxAwayMs'>,
  goneForMs: number,
  { failed, nextInMs }: Tries,
): boolean {
  const nextAtMs = goneForMs + nextInMs;
  const isTheOne = nextAtMs >= awayMs || nextAtMs + FIRST_WAIT_MS * 2 ** failed > maxAwayMs;
  return isTheOne && (nextInMs < BEFORE_TRY_MS || goneForMs >= awayMs);
}
