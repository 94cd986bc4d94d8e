import type { Clock } from '../base/clock.ts';
import { codeOf, SourceStopped } from '../base/errors.ts';
import { plain } from '../base/foreign-text.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { BOUNDS, type ExceededBound } from './limits.ts';

const SHOWN_TOPIC = 100;

type Fields = { event: string } & Readonly<Record<string, unknown>>;

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
  report(fields: Fields, message: string, key = fields.event, level: 'warn' | 'error' = 'warn'): boolean {
    const count = this.#repeats.note(key, this.#clock.monotonicMs());
    this.#logger[count === undefined ? 'debug' : level]({ ...fields, broker: this.#broker, count }, message);
    return count !== undefined;
  }

  /** Reports a message over a size limit. `bytes`: size of the whole message. */
  reportDiscarded(topic: string, bytes: number, bound: ExceededBound): void {
    const fields = { topic: plain(topic.slice(0, SHOWN_TOPIC)), bytes, bound, max_bytes: BOUNDS[bound] };
    this.report({ event: 'broker.discarded', ...fields }, 'message too large, discarded', `discarded ${bound}`);
  }

  /** Reports that the handler of a message rejected it. Ignores rejections during a shutdown or reload. */
  reportRejected(topic: string, error: unknown): void {
    if (error instanceof SourceStopped) return;
    const code = codeOf(error);
    const fields = { event: 'broker.refused', topic, code };
    this.report(fields, 'message not stored yet, not acknowledged', `refused:${code}`);
  }

  /** Ends a problem, so that its next occurrence is logged. */
  end(key: string): void {
    this.#repeats.end(key);
  }

  info(fields: Fields, message: string): void {
    this.#logger.info({ ...fields, broker: this.#broker }, message);
  }
}
