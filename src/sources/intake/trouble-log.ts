import type { Clock } from '../../base/clock.ts';
import { GatheredLines, MAX_NAMED } from '../../base/gathered-lines.ts';
import type { Logger } from '../../base/logger.ts';
import { Repeats } from '../../base/repeats.ts';

/** Content of a failure log entry: a stable `event` and fields. */
export interface Trouble {
  event: string;
  [field: string]: unknown;
}

/**
 * Log entry that is ready to be written: its fields without `event`, and the kind that identifies it among entries with
 * the same event.
 */
interface Ready {
  fields: Record<string, unknown>;
  kind: string;
}

/** Time after which a value or topic is considered usable again, in milliseconds. */
export const USABLE_MS = 60_000;

/** Logs source failures at the repeat interval, and their recovery once. */
export class TroubleLog {
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #repeats = new Repeats();
  readonly #gathered: GatheredLines<Ready> | undefined;
  readonly #plural: string;

  /**
   * `gatherAs`: plural noun under which many kinds are combined in one entry. Used if failures of many kinds usually
   * have the same cause.
   */
  constructor(log: Logger, clock: Clock, gatherAs?: string) {
    this.#log = log;
    this.#clock = clock;
    this.#plural = gatherAs ?? '';
    this.#gathered = gatherAs === undefined ? undefined : new GatheredLines(clock);
  }

  /** Reports a failure. `kind` distinguishes failures with the same event, for example by register or topic. */
  report(trouble: Trouble, message: string, kind = ''): void {
    const count = this.#repeats.note(`${trouble.event} ${kind}`, this.#clock.monotonicMs());
    if (count !== undefined) this.#write('warn', { ...trouble, count }, message, kind);
  }

  /**
   * Logs the recovery if a failure was reported before. `quietMs`: minimum time since the latest failure, for failures
   * that alternate with successes. Returns whether the recovery was logged.
   */
  recovered(event: string, fields: Omit<Trouble, 'event'>, message: string, kind = '', quietMs = 0): boolean {
    if (this.#repeats.isEmpty) return false;
    const trouble = this.#repeats.over(`${event} ${kind}`, this.#clock.monotonicMs(), quietMs);
    if (trouble !== undefined) this.#write('info', { event: `${event}_over`, ...fields, ...trouble }, message, kind);
    return trouble !== undefined;
  }

  #write(level: 'warn' | 'info', { event, ...fields }: Trouble, message: string, kind: string): void {
    const write = (ready: readonly Ready[]) => this.#log[level]({ event, ...this.#fieldsOf(ready) }, message);
    // An entry about the end of a failure must not precede the entry about the failure.
    const subject = event.replace(/_over$/, '');
    if (this.#gathered) this.#gathered.note(event, { fields, kind }, write, { subject, object: kind });
    else write([{ fields, kind }]);
  }

  /** Returns the fields that are equal in all entries, the first error, and the kinds of the entries. */
  #fieldsOf(ready: readonly Ready[]): Record<string, unknown> {
    const { fields } = ready[0]!;
    if (ready.length === 1) return fields;
    const shared = Object.entries(fields).filter(
      ([name, value]) => name === 'error' || ready.every((one) => one.fields[name] === value),
    );
    const kinds = [...new Set(ready.map(({ kind }) => kind))].filter((kind) => kind !== '');
    if (kinds.length === 0) return Object.fromEntries(shared);
    const named = kinds.slice(0, MAX_NAMED);
    return { ...Object.fromEntries(shared), [this.#plural]: named, objects: kinds.length };
  }
}
