import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';

/** Logs the problems of one broker. The repetitions of a problem are logged at a decreasing rate. */
export class BrokerLog {
  readonly #broker: string;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #repeats = new Repeats();

  constructor({ name, clock, logger }: { name: string; clock: Clock; logger: Logger }) {
    this.#broker = name;
    this.#clock = clock;
    this.#logger = logger;
  }

  /** `key`: identifies the problem, by default its event. Returns whether this repetition was logged. */
  report(
    fields: { event: string } & Readonly<Record<string, unknown>>,
    message: string,
    { key = fields.event, level = 'warn' as 'warn' | 'error' } = {},
  ): boolean {
    const count = this.#repeats.note(key, this.#clock.monotonicMs());
    const isLogged = count !== undefined;
    this.#logger[isLogged ? level : 'debug']({ ...fields, broker: this.#broker, count }, message);
    return isLogged;
  }

  /** Ends a problem, so that its next occurrence is logged. */
  end(key: string): void {
    this.#repeats.end(key);
  }

  info(fields: { event: string } & Readonly<Record<string, unknown>>, message: string): void {
    this.#logger.info({ ...fields, broker: this.#broker }, message);
  }
}
