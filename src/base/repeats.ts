/**
 * Limits repeated log lines for ongoing problems: logs the first occurrence, each doubling of the count, a reminder
 * every ten minutes, and the end. Each key is a separate problem. Unlimited repetition has filled disks before.
 */
const QUIET_MS = 10 * 60_000;
const MAX_KEYS = 1_000;

interface Seen {
  count: number;
  loggedCount: number;
  loggedMs: number;
  sinceMs: number;
  latestMs: number;
}

export class Repeats {
  readonly #seen = new Map<string, Seen>();

  /** Whether no problem is ongoing. */
  get isEmpty(): boolean {
    return this.#seen.size === 0;
  }

  /** Counts an occurrence. Returns the count if it should be logged. */
  note(key: string, nowMs: number): number | undefined {
    const seen = this.#seen.get(key);
    if (!seen) {
      if (this.#seen.size >= MAX_KEYS) this.#seen.delete(this.#seen.keys().next().value!);
      this.#seen.set(key, { count: 1, loggedCount: 1, loggedMs: nowMs, sinceMs: nowMs, latestMs: nowMs });
      return 1;
    }
    seen.count++;
    seen.latestMs = nowMs;
    if (seen.count < seen.loggedCount * 2 && nowMs - seen.loggedMs < QUIET_MS) return undefined;
    seen.loggedCount = seen.count;
    seen.loggedMs = nowMs;
    return seen.count;
  }

  /**
   * Ends a problem that has not occurred for `quietMs`. Returns its count and duration, or `undefined` if there was none
   * or it continues.
   */
  over(key: string, nowMs: number, quietMs = 0): { count: number; lastedMs: number } | undefined {
    const seen = this.#seen.get(key);
    if (!seen || nowMs - seen.latestMs < quietMs) return undefined;
    this.#seen.delete(key);
    return { count: seen.count, lastedMs: Math.round(nowMs - seen.sinceMs) };
  }

  /** Ends all problems whose key starts with the prefix. */
  end(prefix: string): void {
    for (const key of this.#seen.keys()) if (key.startsWith(prefix)) this.#seen.delete(key);
  }
}
