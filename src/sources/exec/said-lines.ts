import type { Clock } from '../../base/clock.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Logger } from '../../base/logger.ts';

const LINES = 20;
const WITHIN_MS = 60_000;

/** What a program writes on standard error, in the log: twenty lines a minute, and how many were left out. */
export class SaidLines {
  readonly #source: string;
  readonly #log: Logger;
  readonly #clock: Clock;
  #sinceMs = Number.NEGATIVE_INFINITY;
  #lines = 0;
  #unsaid = 0;

  constructor(source: string, log: Logger, clock: Clock) {
    this.#source = source;
    this.#log = log;
    this.#clock = clock;
  }

  tell(line: string): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#sinceMs >= WITHIN_MS) {
      this.#sinceMs = nowMs;
      this.#lines = 0;
    }
    if (this.#lines >= LINES) {
      this.#unsaid++;
      return;
    }
    this.#lines++;
    const unsaid = this.#unsaid > 0 ? { unsaid: this.#unsaid } : {};
    this.#unsaid = 0;
    this.#log.info({ event: 'exec.said', source: this.#source, line: plain(line), ...unsaid }, 'a program said');
  }
}
