import type { Database } from '../base/database.ts';

/** Longer than the platform has anything to send again. */
const KEPT_MS = 210 * 86_400_000;

/** Which deliveries the platform was asked to send again, how often, and when by running time. Part of the inbox. */
export class AskedMemory {
  readonly #database: Database;
  readonly #find;
  readonly #set;
  readonly #drop;

  constructor(database: Database) {
    this.#database = database;
    this.#find = database.prepare<[Uint8Array], { times: number; age_ms: number }>(
      'SELECT times, age_ms FROM inbox_asked WHERE digest = ?',
    );
    this.#set = database.prepare<[Uint8Array, number, number]>('INSERT OR REPLACE INTO inbox_asked VALUES (?, ?, ?)');
    this.#drop = database.prepare<[number]>('DELETE FROM inbox_asked WHERE age_ms < ?');
  }

  find(deliveries: readonly Uint8Array[], ageMs: number): { times: number; agoMs: number }[] {
    return deliveries.map((delivery) => {
      const row = this.#find.get(delivery);
      return row ? { times: row.times, agoMs: ageMs - row.age_ms } : { times: 0, agoMs: Number.MAX_SAFE_INTEGER };
    });
  }

  mark(deliveries: readonly Uint8Array[], ageMs: number): void {
    this.#database.transaction(() => {
      for (const delivery of deliveries) this.#set.run(delivery, (this.#find.get(delivery)?.times ?? 0) + 1, ageMs);
    })();
  }

  prune(ageMs: number): void {
    this.#drop.run(ageMs - KEPT_MS);
  }
}
