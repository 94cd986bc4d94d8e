import type { Database } from '../database.ts';

/**
 * What was ever seen, for longer than the six months in which the platform may send it again (DESIGN.md, must always hold 7):
 * one row of a digest and a few bytes for each event or delivery, some 30 bytes on disk.
 *
 * Entries lie in epochs of 30 days of running time. The epoch stands first in the key, so that forgetting one is one range of
 * the tree and no row needs a time of its own; a look-up costs one probe for each epoch, nine at most.
 */
const EPOCH_MS = 30 * 86_400_000;
/** The current one and seven whole ones before it: 210 days at least, of running time, which is never longer than real time. */
const EPOCHS_KEPT = 7;

export class SeenMemory {
  readonly #database: Database;
  readonly #add;
  readonly #drop;
  #epochs: Set<number>;
  #has!: (digest: Uint8Array) => boolean;
  #forget!: (digest: Uint8Array) => void;

  constructor(database: Database) {
    this.#database = database;
    this.#add = database.prepare<[number, Uint8Array]>('INSERT OR IGNORE INTO inbox_seen VALUES (?, ?)');
    this.#drop = database.prepare<[number, number]>(
      'DELETE FROM inbox_seen WHERE (epoch, digest) IN (SELECT epoch, digest FROM inbox_seen WHERE epoch < ? LIMIT ?)',
    );
    this.#epochs = this.#readEpochs();
    this.#prepare();
  }

  has(digest: Uint8Array): boolean {
    return this.#has(digest);
  }

  /** Remembers a digest; `true` where it was known. Part of the caller's transaction. */
  see(digest: Uint8Array, ageMs: number): boolean {
    if (this.#has(digest)) return true;
    const epoch = Math.floor(ageMs / EPOCH_MS);
    this.#add.run(epoch, digest);
    if (!this.#epochs.has(epoch)) {
      this.#epochs.add(epoch);
      this.#prepare();
    }
    return false;
  }

  forget(digest: Uint8Array): void {
    this.#forget(digest);
  }

  /** Forgets up to `mostRows` of what is older than any resend. Gives how many. */
  prune(ageMs: number, mostRows: number): number {
    const changes = this.#drop.run(Math.floor(ageMs / EPOCH_MS) - EPOCHS_KEPT, mostRows).changes;
    if (changes > 0) {
      this.#epochs = this.#readEpochs();
      this.#prepare();
    }
    return changes;
  }

  /** First to last, by two probes: naming them one by one would read the whole table at every start. */
  #readEpochs(): Set<number> {
    const { first, last } = this.#database
      .prepare<[], { first: number | null; last: number | null }>(
        'SELECT (SELECT min(epoch) FROM inbox_seen) AS first, (SELECT max(epoch) FROM inbox_seen) AS last',
      )
      .get()!;
    const epochs = new Set<number>();
    if (first !== null && last !== null) for (let epoch = first; epoch <= last; epoch++) epochs.add(epoch);
    return epochs;
  }

  #prepare(): void {
    const among = [...this.#epochs].join(', ');
    const statement = this.#database
      .prepare<[Uint8Array], number>(`SELECT 1 FROM inbox_seen WHERE epoch IN (${among}) AND digest = ?`)
      .pluck();
    this.#has = (digest) => statement.get(digest) !== undefined;
    const forget = this.#database.prepare<[Uint8Array]>(
      `DELETE FROM inbox_seen WHERE epoch IN (${among}) AND digest = ?`,
    );
    this.#forget = (digest) => void forget.run(digest);
  }
}
