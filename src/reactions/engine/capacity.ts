import { MemoryBudget } from '../../base/inbound/memory-budget.ts';
import { memoryOf } from '../../contract/events/event-text.ts';

/**
 * Limits the number of reactions in progress, so that an incident does not start 500 processes. A rule has at most four
 * slots, and all rules together have 16. A rule that occupies no slot always gets one, so that a slow rule cannot block
 * other rules.
 */
const PER_RULE = 4;
const TOTAL = 16;

export class Places {
  readonly #used = new Map<string, number>();
  readonly #perRule: number;
  #total = 0;

  constructor(perRule = PER_RULE) {
    this.#perRule = perRule;
  }

  hasRoom(rule: string): boolean {
    const used = this.#used.get(rule) ?? 0;
    return used === 0 || (used < this.#perRule && this.#total < TOTAL);
  }

  occupy(rule: string): void {
    this.#used.set(rule, (this.#used.get(rule) ?? 0) + 1);
    this.#total++;
  }

  release(rule: string): void {
    const left = (this.#used.get(rule) ?? 0) - 1;
    if (left > 0) this.#used.set(rule, left);
    else this.#used.delete(rule);
    this.#total--;
  }
}

/**
 * Fraction of the memory that the events of one rule may use, so that an unresponsive receiver does not prevent large
 * events of other rules.
 */
const MEMORY_PER_RULE = 3 / 8;
/** Maximum fraction of the memory counted for one event, so that an event of any size can run. */
const MEMORY_PER_EVENT = 1 / 4;

/** Memory budget for open events. */
export class EventMemory {
  readonly #maxBytes: number;
  readonly #budget: MemoryBudget;
  readonly #byRule = new Map<string, number>();

  /** `events`: maximum number of open events. */
  constructor(maxBytes: number, events: number) {
    this.#maxBytes = maxBytes;
    this.#budget = new MemoryBudget({ maxBytes, bodies: events });
  }

  /**
   * Reserves memory for an event that `rule` opens. Returns a function that releases the memory, or `undefined` if no
   * memory is available.
   */
  reserve(rule: string, payload: string): (() => void) | undefined {
    const bytes = Math.min(memoryOf(payload), this.#maxBytes * MEMORY_PER_EVENT);
    const used = this.#byRule.get(rule) ?? 0;
    if (used + bytes > this.#maxBytes * MEMORY_PER_RULE) return undefined;
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
