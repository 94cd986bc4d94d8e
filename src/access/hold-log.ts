import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf } from '../base/errors.ts';
import { GatheredLines, MAX_NAMED } from '../base/gathered-lines.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import type { HoldDifference } from './access-state.ts';

/** `proved`: the platform accepts values again. `unused`: no values or tags use the hold. */
export type ReleaseCause = 'proved' | 'unused';

const HELD_HINT = 'Grant can_read and can_update to the technical user. Until then, the agent retries periodically.';

/** Logs added and released holds. Changes with the same cause within a few seconds are combined into one line. */
export class HoldLog {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #repeats = new Repeats();
  readonly #gathered: GatheredLines<number>;

  constructor(clock: Clock, logger: Logger) {
    this.#clock = clock;
    this.#logger = logger;
    this.#gathered = new GatheredLines(clock);
  }

  changed({ held, released }: HoldDifference, why: ReleaseCause): void {
    for (const { kind, id, cause } of held) {
      this.#gathered.note(`held ${kind} ${cause}`, id, (ids) => {
        const facts = { event: 'access.held', ...named(kind, ids), cause, hint: HELD_HINT };
        this.#logger.warn(facts, 'access lost, values held');
      });
    }
    for (const { kind, id } of released) {
      this.#gathered.note(`released ${kind} ${why}`, id, (ids) => {
        const facts = named(kind, ids);
        if (why === 'proved') this.#logger.info({ event: 'access.released', ...facts }, 'access restored');
        else this.#logger.info({ event: 'access.unused', ...facts }, 'unused hold removed');
      });
    }
  }

  unsaved(error: unknown): void {
    const count = this.#repeats.note('unsaved', this.#clock.monotonicMs());
    const fields = { event: 'access.unsaved', code: codeOf(error), error: messageOf(error), count };
    this.#logger[count === undefined ? 'debug' : 'warn'](fields, 'failed to store a hold');
  }
}

/** Log fields: the ID of one object, or the first IDs and the total number of several objects. */
function named(kind: 'asset' | 'instrumentation', ids: readonly number[]): Record<string, unknown> {
  if (ids.length === 1) return { [kind]: ids[0] };
  return { [`${kind}s`]: ids.slice(0, MAX_NAMED), objects: ids.length };
}
