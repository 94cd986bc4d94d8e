import type { Database } from '../base/database.ts';
import { type EventRow, type SeenRow, seenSum, sumFits } from './inbox-tables.ts';

/**
 * What was ever seen, for longer than the six months in which the platform may send it again (docs/architecture.md, must always hold 7):
 * one row of a digest and the number of its event, some 35 bytes on disk. An event has several names: its identity, and one
 * for each delivery record; by its number all of them are forgotten together.
 *
 * Each row has a checksum: one that does not fit it says nothing, so that a flipped bit hides no event. Nor does it bring one back while
 * the inbox keeps the event: what no row says is asked of the event itself, by its identity and under its own checksum.
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

  /** The age that the newest entry proves. */
  get newestAgeMs(): number {
    return Math.max(0, ...this.#epochs) * EPOCH_MS;
  }

  has(digest: Uint8Array): boolean {
    return this.find(digest) !== undefined;
  }

  /** The event that is known by this digest. */
  find(digest: Uint8Array): number | undefined {
    return this.#rowsOf(digest).find(rowFits)?.event ?? this.#eventsOf.all(digest).find(sumFits)?.id;
  }

  /** Remembers a name of an event, unless it is remembered. Part of the caller's transaction. */
  see(digest: Uint8Array, event: number, ageMs: number): void {
    if (this.#rowsOf(digest).some(rowFits)) return;
    const epoch = Math.floor(ageMs / EPOCH_MS);
    this.#add.run(epoch, digest, event, seenSum({ epoch, digest, event }));
    if (this.#epochs.has(epoch)) return;
    this.#epochs.add(epoch);
    this.#rowsOf = this.#prepare();
  }

  /**
   * Forgets an event under all its names, and every row of which nobody knows what it said: it may have been one of them. Reads the
   * whole table: for what was found damaged.
   */
  forget(event: number): void {
    const gone: SeenRow[] = [];
    for (const row of this.#database.prepare<[], SeenRow>('SELECT * FROM inbox_seen').iterate()) {
      if (row.event === event || !rowFits(row)) gone.push(row);
    }
    for (const { epoch, digest } of gone) this.#forget.run(epoch, digest);
  }

  /** Forgets up to `maxRows` of what is older than any resend. Gives how many. */
  prune(ageMs: number, maxRows: number): number {
    const changes = this.#drop.run(Math.floor(ageMs / EPOCH_MS) - EPOCHS_KEPT, maxRows).changes;
    if (changes > 0) {
      this.#epochs = this.#readEpochs();
      this.#rowsOf = this.#prepare();
    }
    return changes;
  }

  /** First to last, by two probes: naming them one by one would read the whole table at every start. */
  #readEpochs(): Set<number> {
    const [first, last] = [this.#endmost('ASC'), this.#endmost('DESC')];
    const epochs = new Set<number>();
    if (first !== undefined && last !== undefined) for (let epoch = first; epoch <= last; epoch++) epochs.add(epoch);
    return epochs;
  }

  /** A flipped bit may have moved a row a million epochs away. */
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
