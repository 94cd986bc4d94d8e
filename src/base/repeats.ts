/**
 * Repeated failures in the log: the first is logged, then one line whenever their number has doubled or ten minutes
 * have passed, with the count.
 */
const QUIET_MS = 10 * 60_000;
const MAX_KEYS = 1_000;

export class Repeats {
  readonly #seen = new Map<string, { count: number; loggedCount: number; loggedMs: number }>();

  /** Gives the count where it is worth a line. */
  note(key: string, nowMs: number): number | undefined {
    const seen = this.#seen.get(key);
    if (!seen) {
      if (this.#seen.size >= MAX_KEYS) this.#seen.delete(this.#seen.keys().next().value!);
      this.#seen.set(key, { count: 1, loggedCount: 1, loggedMs: nowMs });
      return 1;
    }
    seen.count++;
    if (seen.count < seen.loggedCount * 2 && nowMs - seen.loggedMs < QUIET_MS) return undefined;
    seen.loggedCount = seen.count;
    seen.loggedMs = nowMs;
    return seen.count;
  }

  /** It is over: the next one is a first one again. */
  end(prefix: string): void {
    for (const key of this.#seen.keys()) if (key.startsWith(prefix)) this.#seen.delete(key);
  }
}
