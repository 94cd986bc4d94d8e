import type { Observed } from './observed.ts';
import { Remembered, type Rule } from './rule.ts';

/** Clocks tick in milliseconds, and timers fire a little early. */
const TICK_MS = 50;
/** Sooner than this is at once. */
const AT_ONCE_MS = 100;

const isOwnLimit = (one: Observed) => one.status === 429 && one.entry.fault === undefined;

/** How fast a client comes, and comes again (platform 10.3). */
export const PACE_RULES: readonly Rule[] = [
  {
    id: 'retry-after',
    section: '10.3',
    requirement: 'Retry-After is waited out',
    begin: (tally) => {
      const untilMs = new Remembered<{ fromMs: number; untilMs: number }>();
      return {
        see: (one) => {
          for (const name of [one.name, '*']) {
            const wait = name === '*' && !one.isApi ? undefined : untilMs.get(name);
            // What was under way when the answer came had not heard of it.
            if (wait === undefined || one.startedMs <= wait.fromMs) continue;
            const leftMs = wait.untilMs - one.startedMs - TICK_MS;
            if (leftMs > 0) tally.broken(`${one.name} ${Math.ceil(leftMs / 1000)} s before Retry-After was over`);
            else {
              untilMs.delete(name);
              tally.held();
            }
          }
          if (one.retryAfterMs === undefined || ![429, 503].includes(one.status)) return;
          // A rate is of the user, and so of every call; what a fault or an outage says, of this one.
          const name = isOwnLimit(one) ? '*' : one.name;
          untilMs.set(name, { fromMs: one.endedMs, untilMs: one.endedMs + one.retryAfterMs });
        },
      };
    },
  },
  {
    id: 'budget',
    section: '10.3',
    requirement: 'no more requests in a minute than the platform takes',
    begin: (tally) => ({
      see: (one) => {
        if (!one.isApi) return;
        if (isOwnLimit(one)) tally.broken(`${one.name} was over the rate`);
        else if (one.status !== 0) tally.held();
      },
    }),
  },
  {
    id: 'minute',
    section: '10.3',
    requirement: 'after a 429 nothing is called until a new minute starts',
    begin: (tally, { leftOfMinuteMs }) => {
      let wait: { fromMs: number; untilMs: number } | undefined;
      return {
        see: (one) => {
          if (!one.isApi) return;
          if (wait !== undefined && one.startedMs > wait.fromMs) {
            if (one.startedMs < wait.untilMs - TICK_MS) tally.broken(`${one.name} in the minute of a 429`);
            else {
              tally.held();
              wait = undefined;
            }
          }
          const isOver = isOwnLimit(one) || (one.status === 429 && one.retryAfterMs === undefined);
          if (isOver && wait === undefined) {
            wait = { fromMs: one.endedMs, untilMs: one.endedMs + leftOfMinuteMs() };
          }
        },
      };
    },
  },
  {
    id: 'pause',
    section: '10.3',
    requirement: 'what failed is not tried again at once',
    begin: (tally) => {
      const failed = new Remembered<number>();
      return {
        see: (one) => {
          const name = `${one.name} ${one.exchange.body?.length ?? 0}`;
          const atMs = failed.get(name);
          if (atMs !== undefined && one.startedMs > atMs) {
            failed.delete(name);
            if (one.startedMs - atMs < AT_ONCE_MS)
              tally.broken(`${one.name} ${Math.round(one.startedMs - atMs)} ms after it failed`);
            else tally.held();
          }
          if (one.status >= 500 || one.status === 429) failed.set(name, one.endedMs);
        },
      };
    },
  },
];
