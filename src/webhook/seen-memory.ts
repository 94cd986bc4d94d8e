import type { Database } from '../base/database.ts';
import { type EventRow, type SeenRow, seenSum, sumFits } from './inbox-tables.ts';

/**
 * Stores the identities of events and deliveries for longer than the six months in which the platform may send them
 * again. A row contains a digest, an event ID and a checksum, and uses about 35 bytes on disk. An event has its own
 * identity and one identity per delivery.
 *
 * Rows with an incorrect checksum are ignored. If no row is valid, the event itself is found by its identity while it
 * is in the inbox.
 *
 * The key starts with an epoch of 30 days of running time, so that an epoch can be deleted as a range and a lookup
 * reads at most nine rows.
 */
const EPOCH_MS = 30 * 86_400_000;
/** Number of complete epochs retained in addition to the current epoch: at least 210 days of running time. */
const EPOCHS_KEPT = 7;

export class SeenMemory {
  readonly #database: Database;
  readonly #add;
  readonly #drop;
  readonly #forget;
  #epochs: Set<number>;
  #rowsOf: (digest: Uint8Array) => SeenRow[];
  readonly #eventsOf;

  constructor(database: Database) {
    this.#database = database;
    this.#add = database.prepare<[number, Uint8Array, number, number]>(
      'INSERT OR REPLACE INTO inbox_seen (epoch, digest, event, sum) VALUES (?, ?, ?, ?)',
    );
    this.#eventsOf = database.prepare<[Uint8Array], EventRow>('SELECT * FROM inbox_event WHERE identity = ?');
    this.#drop = database.prepare<[number, number]>(
      'DELETE FROM inbox_seen WHERE (epoch, digest) IN (SELECT epoch, digest FROM inbox_seen WHERE epoch < ? LIMIT ?)',
    );
    this.#forget = database.prepare<[number, Uint8Array]>('DELETE FROM inbox_seen WHERE epoch = ? AND digest = ?');
    this.#epochs = this.#readEpochs();
    this.#rowsOf = this.#prepare();
  }

  /** Minimum age of the inbox in running time, derived from the newest entry. */
  get newestAgeMs(): number {
    return Math.max(0, ...this.#epochs) * EPOCH_MS;
  }

  has(digest: Uint8Array): boolean {
    return this.find(digest) !== undefined;
  }

  /** Returns the ID of the event with this identity. */
  find(digest: Uint8Array): number | undefined {
    return this.#rowsOf(digest).find(rowFits)?.event ?? this.#eventsOf.all(digest).find(sumFits)?.id;
  }

  /** Stores an identity of an event within the caller's transaction. */
  see(digest: Uint8Array, event: number, ageMs: number): void {
    if (this.#rowsOf(digest).some(rowFits)) return;
    const epoch = Math.floor(ageMs / EPOCH_MS);
    this.#add.run(epoch, digest, event, seenSum({ epoch, digest, event }));
    if (this.#epochs.has(epoch)) return;
    this.#epochs.add(epoch);
    this.#rowsOf = this.#prepare();
  }

  /**
   * Deletes all identities of a damaged event, and all damaged rows, because they may belong to this event. Reads the
   * whole table.
   */
  forget(event: number): void {
    const gone: SeenRow[] = [];
    for (const row of this.#database.prepare<[], SeenRow>('SELECT * FROM inbox_seen').iterate()) {
      if (row.event === event || !rowFits(row)) gone.push(row);
    }
    for (const { epoch, digest } of gone) this.#forget.run(epoch, digest);
  }

  /** Deletes up to `maxRows` expired rows. Returns the number of deleted rows. */
  prune(ageMs: number, maxRows: number): number {
    const changes = this.#drop.run(Math.floor(ageMs / EPOCH_MS) - EPOCHS_KEPT, maxRows).changes;
    if (changes > 0) {
      this.#epochs = this.#readEpochs();
      this.#rowsOf = this.#prepare();
    }
    return changes;
  }

  /** Returns all epochs between the first and the last, because a distinct query would read the whole table. */
  #readEpochs(): Set<number> {
    const [first, last] = [this.#endmost('ASC'), this.#endmost('DESC')];
    const epochs = new Set<number>();
    if (first !== undefined && last !== undefined) for (let epoch = first; epoch <= last; epoch++) epochs.add(epoch);
    return epochs;
  }

  /** Returns the first or last epoch. Skips damaged rows, whose epoch may be wrong. */
  #endmost(order: 'ASC' | 'DESC'): number | undefined {
    const rows = this.#database.prepare<[], SeenRow>(
      `SELECT * FROM inbox_seen ORDER BY epoch ${order}, digest ${order}`,
    );
    for (const row of rows.iterate()) if (rowFits(row)) return row.epoch;
    return undefined;
  }

  #prepare(): (digest: Uint8Array) => SeenRow[] {
    const among = [...this.#epochs].join(', ');
    const statement = this.#database.prepare<[Uint8Array], SeenRow>(
      `SELECT * FROM inbox_seen WHERE epoch IN (${among}) AND digest = ?`,
    );
    return (digest) => statement.all(digest);
  }
}

const rowFits = (row: SeenRow) => row.sum === seenSum(row);
