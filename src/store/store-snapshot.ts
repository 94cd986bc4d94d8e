/**
 * Copies a consistent snapshot of several databases from another process, while the agent is writing. As in litestream,
 * a read transaction on each database prevents SQLite from checkpointing later commits and from restarting the WAL. The
 * file and the WAL frames up to that instant make up the database, so no copy on disk is required, unlike with SQLite's
 * backup API.
 *
 * If the first database changed before the second transaction started, both are started again. Raw files are closed
 * last, because closing any descriptor of a file releases all locks that the process holds on it. A crash leaves no files
 * behind.
 */
import { closeSync, existsSync, fstatSync, openSync, readSync } from 'node:fs';
import { type Database, openDatabase } from '../base/database.ts';
import { StoreError } from '../base/errors.ts';

interface SnapshotFile {
  /** Suffix of the database name. */
  ending: '' | '-wal';
  bytes: number;
  /** Reads the contents in chunks. */
  read(): Iterable<Buffer>;
}

export interface DatabaseSnapshot {
  path: string;
  /** `user_version`. */
  format: number;
  database: Database;
  files: SnapshotFile[];
}

const PIECE_BYTES = 256 * 1024;
const MAX_TRIES = 1_000;
const WAL_HEADER = 32;
const FRAME_HEADER = 24;

/** Header of SQLite's WAL index. It is stored twice, so a half-written header is detected. */
interface WalIndex {
  head: Buffer;
  frames: number;
  inDatabase: number;
}

/**
 * Passes snapshots of the databases, in the order of `paths`, to `work`, and releases them afterwards. Rejects with
 * SQLite errors, and with `store.busy` if no common instant was found.
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
        throw new StoreError('no consistent snapshot: the stores are changing too fast', {
          code: 'store.busy',
          retryable: true,
        });
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

  /** Starts the read transaction. */
  begin(): void {
    this.database.exec('BEGIN');
    this.database.prepare('SELECT count(*) FROM sqlite_schema').get();
    this.index = this.readIndex();
  }

  end(): void {
    this.database.exec('ROLLBACK');
  }

  /** Returns `undefined` if no process has the WAL open. The WAL is then empty. */
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
    throw new StoreError(`no consistent snapshot: ${this.#path}-shm is changing too fast`, {
      code: 'store.busy',
      retryable: true,
    });
  }

  snapshot(): DatabaseSnapshot {
    const pageBytes = this.database.pragma('page_size', { simple: true }) as number;
    const pages = this.database.pragma('page_count', { simple: true }) as number;
    const format = this.database.pragma('user_version', { simple: true }) as number;
    const main = this.#open('')!;
    // Pages that are only in the WAL can be beyond the end of the file.
    const files = [this.#file('', main, Math.min(fstatSync(main).size, pages * pageBytes))];
    const { frames = 0, inDatabase = 0 } = this.index ?? {};
    // A WAL that is fully checkpointed must not be copied, because it can restart in the meantime.
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
          if (length === 0)
            throw new StoreError(`${path} was truncated while it was read`, { code: 'store.unavailable' });
          at += length;
          yield piece.subarray(0, length);
        }
      },
    };
  }
}
