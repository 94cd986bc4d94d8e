import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';

/** What stands in a line of trouble: a stable `event` and fields. */
export interface Trouble {
  event: string;
  [field: string]: unknown;
}

/** Lines about the trouble of a source, in the rhythm of all repeats, and one when it is over. */
export class TroubleLog {
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #repeats = new Repeats();

  constructor(log: Logger, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  /** It happened (again). `kind` tells troubles apart that have the same event: a register, a status. */
  again(trouble: Trouble, message: string, kind = ''): void {
    const count = this.#repeats.note(`${trouble.event} ${kind}`, this.#clock.monotonicMs());
    if (count !== undefined) this.#log.warn({ ...trouble, count }, message);
  }

  /** It went well: says so where it was in trouble before. */
  over(event: string, fields: Omit<Trouble, 'event'>, message: string, kind = ''): void {
    const trouble = this.#repeats.over(`${event} ${kind}`, this.#clock.monotonicMs());
    if (trouble !== undefined) this.#log.info({ event: `${event}_over`, ...fields, ...trouble }, message);
  }
}
