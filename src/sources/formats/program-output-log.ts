import type { Clock } from '../../base/clock.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Logger } from '../../base/logger.ts';

const LINES = 20;
const WITHIN_MS = 60_000;

/** Logs up to twenty lines per minute of a program's standard error output, and the number of omitted lines. */
export class ProgramOutputLog {
  readonly #source: string;
  readonly #log: Logger;
  readonly #clock: Clock;
  #sinceMs = Number.NEGATIVE_INFINITY;
  #lines = 0;
  #omitted = 0;

  constructor(source: string, log: Logger, clock: Clock) {
    this.#source = source;
    this.#log = log;
    this.#clock = clock;
  }

  write(line: string): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#sinceMs >= WITHIN_MS) {
      this.#sinceMs = nowMs;
      this.#lines = 0;
    }
    if (this.#lines >= LINES) {
      this.#omitted++;
      return;
    }
    this.#lines++;
    const unsaid = this.#omitted > 0 ? { unsaid: this.#omitted } : {};
    this.#omitted = 0;
    this.#log.info({ event: 'exec.said', source: this.#source, line: plain(line), ...unsaid }, 'source program output');
  }
}
