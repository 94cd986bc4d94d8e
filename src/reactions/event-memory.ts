import { MemoryBudget } from '../base/inbound/memory-budget.ts';
import { memoryOf } from '../contract/events/event-text.ts';

/**
 * Memory of open events. They share one budget, in which small events find room beside large ones. A rule gets at most half of what large
 * events may take, so that a receiver that does not respond leaves room for large events of another rule.
 */
const PER_RULE = 3 / 8;
/** A single event counts for no more, so that an event of any size runs at all, also beside small ones of its rule. */
const PER_EVENT = 1 / 4;

export class EventMemory {
  readonly #maxBytes: number;
  readonly #budget: MemoryBudget;
  readonly #byRule = new Map<string, number>();

  /** `events`: number of events that may be open at once. */
  constructor(maxBytes: number, events: number) {
    this.#maxBytes = maxBytes;
    this.#budget = new MemoryBudget({ maxBytes, bodies: events });
  }

  /** Reserves memory for an event that `rule` opens. Returns the function that releases it, or `undefined` if there is no room. */
  reserve(rule: string, payload: string): (() => void) | undefined {
    const bytes = Math.min(memoryOf(payload), this.#maxBytes * PER_EVENT);
    const used = this.#byRule.get(rule) ?? 0;
    if (used + bytes > this.#maxBytes * PER_RULE) return undefined;
    const reservation = this.#budget.reserve();
    if (!reservation.grow(bytes)) return undefined;
    this.#byRule.set(rule, used + bytes);
    return () => {
      reservation.set(0);
      const left = (this.#byRule.get(rule) ?? 0) - bytes;
      if (left > 0) this.#byRule.set(rule, left);
      else this.#byRule.delete(rule);
    };
  }
}
