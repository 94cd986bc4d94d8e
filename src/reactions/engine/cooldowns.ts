import type { Clock } from '../../base/clock.ts';
import type { Journal } from '../journal.ts';

/**
 * Tracks the cooldowns of reactions per object. Cooldowns are measured with the monotonic clock, and across restarts
 * with the running time of the inbox. A stored cooldown that is longer than the rule's cooldown is ignored, because the
 * row is damaged or the rule was changed.
 */
const MAX_REMEMBERED = 10_000;

export class Cooldowns {
  readonly #journal: Pick<Journal, 'cooldown' | 'setCooldown'>;
  readonly #clock: Clock;
  readonly #untilMs = new Map<string, number>();

  constructor(journal: Pick<Journal, 'cooldown' | 'setCooldown'>, clock: Clock) {
    this.#journal = journal;
    this.#clock = clock;
  }

  async isActive(reaction: string, object: string, cooldownMs: number): Promise<boolean> {
    if (cooldownMs <= 0) return false;
    const known = this.#untilMs.get(keyOf(reaction, object));
    if (known !== undefined) {
      const left = known - this.#clock.monotonicMs();
      return left > 0 && left <= cooldownMs;
    }
    const left = (await this.#journal.cooldown(reaction, object)) ?? 0;
    return left > 0 && left <= cooldownMs;
  }

  /** `beganMs`: monotonic start time of the reaction. */
  async begin(reaction: string, object: string, cooldownMs: number, beganMs: number): Promise<void> {
    if (cooldownMs <= 0) return;
    if (this.#untilMs.size >= MAX_REMEMBERED) this.#forgetEnded();
    this.#untilMs.set(keyOf(reaction, object), beganMs + cooldownMs);
    await this.#journal.setCooldown(reaction, object, beganMs + cooldownMs - this.#clock.monotonicMs());
  }

  /** Frees memory. Entries that are dropped here can be read from the journal. */
  #forgetEnded(): void {
    const nowMs = this.#clock.monotonicMs();
    for (const [key, untilMs] of this.#untilMs) if (untilMs <= nowMs) this.#untilMs.delete(key);
    if (this.#untilMs.size >= MAX_REMEMBERED) this.#untilMs.clear();
  }
}

function keyOf(reaction: string, object: string): string {
  return `${reaction}\n${object}`;
}
