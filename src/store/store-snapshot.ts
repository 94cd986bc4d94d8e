/**
 * Copies of databases as they all stand at one instant, read by another process while the daemon goes on writing. As litestream does it:
 * a read transaction on each keeps SQLite from moving what was committed later into the file, and from beginning the WAL anew; so the
 * file's bytes and the WAL's frames up to that instant are together the database, however long the reading takes, and no copy of it
 * has to fit on the disk first. SQLite's own backup would need one: it writes only to files.
 *
 * That both are of one instant is seen, not enforced: where the first changed before the second stood still, both are begun anew.
 *
 * Invariants: the raw files are closed last, for closing any descriptor of a file lets go of all locks that the process has on it. A
 * crash leaves nothing: the locks end with the process.
 */
import { closeSync, existsSync, fstatSync, openSync, readSync } from 'node:fs';
import { type Database, openDatabase } from '../base/database.ts';
import { StoreError } from '../base/errors.ts';

interface SnapshotFile {
  /** Beside the database's own name: `''`, or `-wal`. */
  ending: '' | '-wal';
  bytes: number;
  /** Its bytes, a piece at a time. */
  read(): Iterable<Buffer>;
}

export interface DatabaseSnapshot {
  path: string;
  /** `user_version`. */
  format: number;
  /** For looking into what is copied. */
  database: Database;
  files: SnapshotFile[];
}

const PIECE_BYTES = 256 * 1024;
/** A commit a second leaves room for the two that have to fall between. */
const MAX_TRIES = 1_000;
const WAL_HEADER = 32;
const FRAME_HEADER = 24;

/** What SQLite's index beside the WAL says: it stands there twice, so that a half-written one is noticed. */
interface WalIndex {
  head: Buffer;
  frames: number;
  inDatabase: number;
}

/**
 * Gives snapshots of the databases, in the order of `paths`, to `work`, and lets go of them when that has ended. Throws what SQLite says of a
 * database that it cannot read, and `store.busy` where no common instant was found.
 */
export async function withSnapshot<Result>(
  paths: readonly string[],
  work: (snapshots: DatabaseSnapshot[]) => Promise<Result>,
): Promise<Result> {
  const opened: OpenFile[] = [];
  try {
    for (const path of paths) opened.push(new OpenFile(path));
    for (let tries = 0; ; tries++) {
      for (const one of opened) one.begin();
      const heads = opened.map((one) => one.index?.head);
      const isOneInstant = opened.every((one, i) => sameBytes(one.readIndex()?.head, heads[i]));
      if (isOneInstant) break;
      if (tries === MAX_TRIES)
        throw new StoreError('the stores never stand still', { code: 'store.busy', retryable: true });
      for (const one of opened) one.end();
    }
    return await work(opened.map((one) => one.snapshot()));
  } finally {
    for (const one of opened) one.database.close();
    for (const one of opened) one.closeFiles();
  }
}

const sameBytes = (one: Buffer | undefined, other: Buffer | undefined) =>
  one === undefined || other === undefined ? one === other : one.equals(other);

class OpenFile {
  readonly #path: string;
  readonly #descriptors = new Map<string, number>();
  readonly database: Database;
  index: WalIndex | undefined;

  constructor(path: string) {
    this.#path = path;
    this.database = openDatabase(path, { readonly: true });
  }

  /** The instant: what is committed after it is in none of the files. */
  begin(): void {
    this.database.exec('BEGIN');
    this.database.prepare('SELECT count(*) FROM sqlite_schema').get();
    this.index = this.readIndex();
  }

  end(): void {
    this.database.exec('ROLLBACK');
  }

  /** `undefined` where no process has the WAL open: then nothing stands in it. */
  readIndex(): WalIndex | undefined {
    const descriptor = this.#open('-shm');
    if (descriptor === undefined) return undefined;
    const bytes = Buffer.alloc(136);
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      readSync(descriptor, bytes, 0, bytes.length, 0);
      if (!bytes.subarray(0, 48).equals(bytes.subarray(48, 96))) continue;
      return {
        head: Buffer.from(bytes.subarray(0, 48)),
        frames: bytes.readUInt32LE(16),
        inDatabase: bytes.readUInt32LE(96),
      };
    }
    throw new StoreError(`${this.#path}-shm never stands still`, { code: 'store.busy', retryable: true });
  }

  snapshot(): DatabaseSnapshot {
    const pageBytes = this.database.pragma('page_size', { simple: true }) as number;
    const pages = this.database.pragma('page_count', { simple: true }) as number;
    const format = this.database.pragma('user_version', { simple: true }) as number;
    const main = this.#open('')!;
    // Pages that stand in the WAL alone may lie beyond the file's end; behind the last page there is nothing of the database.
    const files = [this.#file('', main, Math.min(fstatSync(main).size, pages * pageBytes))];
    const { frames = 0, inDatabase = 0 } = this.index ?? {};
    // What is in the database altogether must not be carried beside it: such a WAL may be begun anew under our eyes.
    if (frames > inDatabase) {
      files.push(this.#file('-wal', this.#open('-wal')!, WAL_HEADER + frames * (FRAME_HEADER + pageBytes)));
    }
    return { path: this.#path, format, database: this.database, files };
  }

  closeFiles(): void {
    for (const descriptor of this.#descriptors.values()) closeSync(descriptor);
  }

  #open(ending: '' | '-wal' | '-shm'): number | undefined {
    const known = this.#descriptors.get(ending);
    if (known !== undefined) return known;
    const path = `${this.#path}${ending}`;
    if (!existsSync(path)) return undefined;
    const descriptor = openSync(path, 'r');
    this.#descriptors.set(ending, descriptor);
    return descriptor;
  }

  #file(ending: '' | '-wal', descriptor: number, bytes: number): SnapshotFile {
    const path = `${this.#path}${ending}`;
    return {
      ending,
      bytes,
      *read() {
        const piece = Buffer.alloc(PIECE_BYTES);
        for (let at = 0; at < bytes; ) {
          const length = readSync(descriptor, piece, 0, Math.min(piece.length, bytes - at), at);
          if (length === 0) throw new StoreError(`${path} is shorter than it was`, { code: 'store.unavailable' });
          at += length;
          yield piece.subarray(0, length);
        }
      },
    };
  }
}
