/**
 * The age that retention counts by: the time that this store has been in use, by the monotonic clock. It runs on across
 * restarts within one boot of the machine and stands still while the machine is off, so a boot in 1970 or an NTP jump
 * expires nothing, and what is to be kept for six months is kept for at least six months.
 */
export interface SavedAge {
  ageMs: number;
  /** Boot id of the machine (`/proc/sys/kernel/random/boot_id`). */
  boot: string;
  /** The monotonic clock when it was saved. */
  monotonicMs: number;
}

/** An age as it was saved, or `undefined` where that cannot be read. */
export function parseAge(text: string | undefined): SavedAge | undefined {
  if (text === undefined) return undefined;
  try {
    const { ageMs, boot, monotonicMs } = JSON.parse(text) as Partial<SavedAge>;
    if (typeof boot !== 'string' || !Number.isFinite(ageMs) || !Number.isFinite(monotonicMs)) return undefined;
    return { ageMs: ageMs!, boot, monotonicMs: monotonicMs! };
  } catch {
    return undefined;
  }
}

/** What is put away on disk at most; a crash makes everything look younger by so much. */
export const SAVE_AGE_EVERY_MS = 10 * 60_000;

export class RunningAge {
  readonly #boot: string;
  readonly #startAgeMs: number;
  readonly #startMonotonicMs: number;

  /** `lowestMs`: what was stamped with an age before proves that it is no less. */
  constructor(saved: SavedAge | undefined, boot: string, monotonicMs: number, lowestMs = 0) {
    const sameBoot = saved?.boot === boot && monotonicMs >= saved.monotonicMs;
    this.#boot = boot;
    const ageMs = (saved?.ageMs ?? 0) + (saved && sameBoot ? monotonicMs - saved.monotonicMs : 0);
    this.#startAgeMs = Math.max(ageMs, lowestMs);
    this.#startMonotonicMs = monotonicMs;
  }

  at(monotonicMs: number): number {
    return Math.floor(this.#startAgeMs + Math.max(0, monotonicMs - this.#startMonotonicMs));
  }

  save(monotonicMs: number): SavedAge {
    return { ageMs: this.at(monotonicMs), boot: this.#boot, monotonicMs };
  }
}
