import type { Clock } from '../base/clock.ts';
import type { Journal } from './journal.ts';

/**
 * Which reactions rest, for which object. Counted by the monotonic clock while the daemon runs, and by the inbox's running
 * time across restarts. An end further away than the rule's whole cooldown is damage, or of a rule that was changed, and
 * does not count: it must not silence an alarm.
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

  async rests(reaction: string, object: string, cooldownMs: number): Promise<boolean> {
    if (cooldownMs <= 0) return false;
    const known = this.#untilMs.get(keyOf(reaction, object));
    if (known !== undefined) {
      const left = known - this.#clock.monotonicMs();
      return left > 0 && left <= cooldownMs;
    }
    const left = (await this.#journal.cooldown(reaction, object)) ?? 0;
    return left > 0 && left <= cooldownMs;
  }

  /** The reaction has begun at `beganMs` (monotonic). */
  async begin(reaction: string, object: string, cooldownMs: number, beganMs: number): Promise<void> {
    if (cooldownMs <= 0) return;
    if (this.#untilMs.size >= MAX_REMEMBERED) this.#forgetEnded();
    this.#untilMs.set(keyOf(reaction, object), beganMs + cooldownMs);
    await this.#journal.setCooldown(reaction, object, beganMs + cooldownMs - this.#clock.monotonicMs());
  }

  /** Those that ended can be asked of the journal again; if all still run, the journal knows them as well. */
  #forgetEnded(): void {
    const nowMs = this.#clock.monotonicMs();
    for (const [key, untilMs] of this.#untilMs) if (untilMs <= nowMs) this.#untilMs.delete(key);
    if (this.#untilMs.size >= MAX_REMEMBERED) this.#untilMs.clear();
  }
}

function keyOf(reaction: string, object: string): string {
  return `${reaction}\n${object}`;
}
