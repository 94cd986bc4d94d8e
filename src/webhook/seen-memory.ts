import type { Database } from '../base/database.ts';

/**
 * What was ever seen, for longer than the six months in which the platform may send it again (docs/architecture.md, must always hold 7):
 * one row of a digest and the number of its event, some 30 bytes on disk. An event has several names: its identity, and one
 * for each delivery record; by its number all of them are forgotten together.
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
  readonly #forget;
  #epochs: Set<number>;
  #find: (digest: Uint8Array) => number | undefined;

  constructor(database: Database) {
    this.#database = database;
    this.#add = database.prepare<[number, Uint8Array, number]>('INSERT OR IGNORE INTO inbox_seen VALUES (?, ?, ?)');
    this.#drop = database.prepare<[number, number]>(
      'DELETE FROM inbox_seen WHERE (epoch, digest) IN (SELECT epoch, digest FROM inbox_seen WHERE epoch < ? LIMIT ?)',
    );
    this.#forget = database.prepare<[number]>('DELETE FROM inbox_seen WHERE event = ?');
    this.#epochs = this.#readEpochs();
    this.#find = this.#prepare();
  }

  /** The age that the newest entry proves. */
  get newestAgeMs(): number {
    return Math.max(0, ...this.#epochs) * EPOCH_MS;
  }

  has(digest: Uint8Array): boolean {
    return this.#find(digest) !== undefined;
  }

  /** The event that is known by this digest. */
  find(digest: Uint8Array): number | undefined {
    return this.#find(digest);
  }

  /** Remembers another name of an event. Part of the caller's transaction. */
  see(digest: Uint8Array, event: number, ageMs: number): void {
    const epoch = Math.floor(ageMs / EPOCH_MS);
    this.#add.run(epoch, digest, event);
    if (this.#epochs.has(epoch)) return;
    this.#epochs.add(epoch);
    this.#find = this.#prepare();
  }

  /** Forgets an event under all its names. Reads the whole table: for what was found damaged. */
  forget(event: number): void {
    this.#forget.run(event);
  }

  /** Forgets up to `maxRows` of what is older than any resend. Gives how many. */
  prune(ageMs: number, maxRows: number): number {
    const changes = this.#drop.run(Math.floor(ageMs / EPOCH_MS) - EPOCHS_KEPT, maxRows).changes;
    if (changes > 0) {
      this.#epochs = this.#readEpochs();
      this.#find = this.#prepare();
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

  #prepare(): (digest: Uint8Array) => number | undefined {
    const among = [...this.#epochs].join(', ');
    const statement = this.#database
      .prepare<[Uint8Array], number>(`SELECT event FROM inbox_seen WHERE epoch IN (${among}) AND digest = ?`)
      .pluck();
    return (digest) => statement.get(digest);
  }
}
