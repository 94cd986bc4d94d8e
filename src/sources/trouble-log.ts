import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';

/** What stands in a line of trouble: a stable `event` and fields. */
export interface Trouble {
  event: string;
  [field: string]: unknown;
}

interface Ongoing {
  sinceMs: number;
  saidAtMs: number;
  unsaid: number;
  total: number;
}

const SUMMARY_EVERY_MS = 5 * 60_000;
/** Kinds remembered at once; kinds are named by the code, but sources and registers are many. */
const MAX_KINDS = 1_000;

/**
 * Says repeated trouble as a night shift wants to read it: the first at once, then one line every five minutes with a count,
 * and one line when it is over. 150,000 equal lines have filled disks before.
 */
export class TroubleLog {
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #ongoing = new Map<string, Ongoing>();

  constructor(log: Logger, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  /** It happened (again). `kind` tells troubles apart that have the same event: a register, a status. */
  again(trouble: Trouble, message: string, kind = ''): void {
    const nowMs = this.#clock.monotonicMs();
    const key = `${trouble.event} ${kind}`;
    const ongoing = this.#ongoing.get(key);
    if (ongoing === undefined) {
      if (this.#ongoing.size >= MAX_KINDS) this.#ongoing.clear();
      this.#ongoing.set(key, { sinceMs: nowMs, saidAtMs: nowMs, unsaid: 0, total: 1 });
      this.#log.warn(trouble, message);
      return;
    }
    ongoing.unsaid++;
    ongoing.total++;
    if (nowMs - ongoing.saidAtMs < SUMMARY_EVERY_MS) return;
    this.#log.warn({ ...trouble, times: ongoing.unsaid }, message);
    ongoing.saidAtMs = nowMs;
    ongoing.unsaid = 0;
  }

  /** It went well: says so where it was in trouble before. */
  over(event: string, fields: Omit<Trouble, 'event'>, message: string, kind = ''): void {
    const key = `${event} ${kind}`;
    const ongoing = this.#ongoing.get(key);
    if (ongoing === undefined) return;
    this.#ongoing.delete(key);
    const lastedMs = Math.round(this.#clock.monotonicMs() - ongoing.sinceMs);
    this.#log.info({ event: `${event}_over`, ...fields, times: ongoing.total, lasted_ms: lastedMs }, message);
  }
}
