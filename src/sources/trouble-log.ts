import type { Clock } from '../base/clock.ts';
import { GatheredLines, MAX_NAMED } from '../base/gathered-lines.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';

/** What stands in a line of trouble: a stable `event` and fields. */
export interface Trouble {
  event: string;
  [field: string]: unknown;
}

/** A line that is ready to be written: its fields, without `event`, and the name that tells it from others of its event. */
interface Ready {
  fields: Record<string, unknown>;
  kind: string;
}

/** Lines about the trouble of a source, in the rhythm of all repeats, and one when it is over. */
export class TroubleLog {
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #repeats = new Repeats();
  readonly #gathered: GatheredLines<Ready> | undefined;
  readonly #plural: string;

  /** `gatherAs`: kinds are many, and mostly have one cause: further ones are told together, under this name. */
  constructor(log: Logger, clock: Clock, gatherAs?: string) {
    this.#log = log;
    this.#clock = clock;
    this.#plural = gatherAs ?? '';
    this.#gathered = gatherAs === undefined ? undefined : new GatheredLines(clock);
  }

  /** It happened (again). `kind` tells troubles apart that have the same event: a register, a status. */
  again(trouble: Trouble, message: string, kind = ''): void {
    const count = this.#repeats.note(`${trouble.event} ${kind}`, this.#clock.monotonicMs());
    if (count !== undefined) this.#say('warn', { ...trouble, count }, message, kind);
  }

  /** It went well: says so where it was in trouble before. */
  over(event: string, fields: Omit<Trouble, 'event'>, message: string, kind = ''): void {
    const trouble = this.#repeats.over(`${event} ${kind}`, this.#clock.monotonicMs());
    if (trouble !== undefined) this.#say('info', { event: `${event}_over`, ...fields, ...trouble }, message, kind);
  }

  #say(level: 'warn' | 'info', { event, ...fields }: Trouble, message: string, kind: string): void {
    const write = (ready: readonly Ready[]) => this.#log[level]({ event, ...this.#fieldsOf(ready) }, message);
    if (this.#gathered) this.#gathered.note(event, { fields, kind }, write);
    else write([{ fields, kind }]);
  }

  /** Of several what all of them say, and their names; of causes that differ the first. */
  #fieldsOf(ready: readonly Ready[]): Record<string, unknown> {
    const { fields } = ready[0]!;
    if (ready.length === 1) return fields;
    const shared = Object.entries(fields).filter(
      ([name, value]) => name === 'error' || ready.every((one) => one.fields[name] === value),
    );
    const named = ready.slice(0, MAX_NAMED).map((one) => one.kind);
    return { ...Object.fromEntries(shared), [this.#plural]: named, objects: ready.length };
  }
}
