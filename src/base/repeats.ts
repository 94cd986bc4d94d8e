/**
 * The one rhythm in which the log tells of trouble that goes on: at once, whenever its number has doubled, and every ten minutes; then
 * that it is over. 150,000 equal lines have filled disks before. Troubles are told apart by a key.
 */
const QUIET_MS = 10 * 60_000;
const MAX_KEYS = 1_000;

interface Seen {
  count: number;
  loggedCount: number;
  loggedMs: number;
  sinceMs: number;
}

export class Repeats {
  readonly #seen = new Map<string, Seen>();

  /** It happened (again): gives the count where it is worth a line. */
  note(key: string, nowMs: number): number | undefined {
    const seen = this.#seen.get(key);
    if (!seen) {
      if (this.#seen.size >= MAX_KEYS) this.#seen.delete(this.#seen.keys().next().value!);
      this.#seen.set(key, { count: 1, loggedCount: 1, loggedMs: nowMs, sinceMs: nowMs });
      return 1;
    }
    seen.count++;
    if (seen.count < seen.loggedCount * 2 && nowMs - seen.loggedMs < QUIET_MS) return undefined;
    seen.loggedCount = seen.count;
    seen.loggedMs = nowMs;
    return seen.count;
  }

  /** It went well: how often it had not, and for how long; nothing where there was no trouble. */
  over(key: string, nowMs: number): { count: number; lastedMs: number } | undefined {
    const seen = this.#seen.get(key);
    if (!seen) return undefined;
    this.#seen.delete(key);
    return { count: seen.count, lastedMs: Math.round(nowMs - seen.sinceMs) };
  }

  /** All of a kind are over: the next one is a first one again. */
  end(prefix: string): void {
    for (const key of this.#seen.keys()) if (key.startsWith(prefix)) this.#seen.delete(key);
  }
}
