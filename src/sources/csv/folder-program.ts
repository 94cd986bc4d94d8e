/**
 * Program that accesses a folder to which other users can write. Every path is opened relative to a directory handle
 * (`/proc/self/fd/N/name`), links are never followed, and files are only created, never overwritten. All file system
 * calls are blocking, so each folder has its own process. The agent sends one request at a time over the IPC channel.
 * The process has no state other than open files, so it can be killed and restarted at any time.
 */
import { randomUUID } from 'node:crypto';
import {
  accessSync,
  type BigIntStats,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  opendirSync,
  openSync,
  readSync,
  renameSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { systemClock } from '../../base/clock.ts';
import { codeOf, messageOf } from '../../base/errors.ts';
import {
  type FolderFile,
  type FolderReply,
  type FolderRequest,
  isSameFile,
  type Listing,
  type Where,
} from './folder-protocol.ts';

const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW, O_DIRECTORY, O_NONBLOCK, O_NOCTTY } = constants;
const REPORT = '.report.txt';
/** Maximum number of listed names. Remaining names are listed once these files have been moved. */
const MAX_FILES = 10_000;
/** Maximum duration of one request that deletes files, in milliseconds. */
const MAX_DELETING_MS = 1_000;
const MAX_COPIES = 10_000;
const ROOT = 0;

/** Operations provided by the program. Each accepts one object and throws errors with a code. */
export class ForeignFolder {
  readonly #path: string;
  /** Names of `done/` that `deleteExpired` has not reached yet. */
  #finishedNames: Iterator<Buffer> | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  /** Lists regular files, oldest first. `pattern` may contain the shell wildcards `*` and `?`. */
  list({ where, pattern }: { where: Where; pattern: string }): Listing {
    const matches = matcherOf(pattern);
    return this.#within(where, (folder) => {
      const files: FolderFile[] = [];
      const unreadable: Listing['unreadable'] = [];
      for (const bytes of namesIn(folder)) {
        const name = textOf(bytes);
        if (!matches(name)) continue;
        if (files.length + unreadable.length >= MAX_FILES) break;
        try {
          const stats = lstatSync(below(folder, bytes), { bigint: true });
          if (stats.isFile()) files.push(fileOf(name, stats));
        } catch (error) {
          const code = codeOf(error) ?? 'unknown';
          if (code !== 'ENOENT') unreadable.push({ name, code });
        }
      }
      files.sort((one, other) => one.mtimeMs - other.mtimeMs || (one.name < other.name ? -1 : 1));
      const readOnly = accessFailure(folder);
      return { files, unreadable, ...(readOnly === undefined ? {} : { readOnly }) };
    });
  }

  open({ where, name }: { where: Where; name: string }): FolderFile & { handle: number } {
    return this.#within(where, (folder) => {
      const handle = openSync(below(folder, bytesOf(name)), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
      try {
        const stats = fstatSync(handle, { bigint: true });
        if (!stats.isFile()) throw failure('ENOTREG', `${name} is not a regular file`);
        return { ...fileOf(name, stats), handle };
      } catch (error) {
        closeSync(handle);
        throw error;
      }
    });
  }

  /** Reads at most `length` bytes. Returns an empty buffer at the end of the file. */
  read({ handle, position, length }: { handle: number; position: number; length: number }): Uint8Array {
    const bytes = Buffer.allocUnsafeSlow(length);
    return bytes.subarray(0, readSync(handle, bytes, 0, length, position));
  }

  size({ handle }: { handle: number }): number {
    return fstatSync(handle).size;
  }

  close({ handle }: { handle: number }): void {
    closeSync(handle);
  }

  /**
   * Moves a file and writes its report. Returns the new path relative to the folder, or `undefined` if the file was
   * removed or changed.
   */
  finish({ file, to, report }: { file: FolderFile; to: 'done' | 'failed'; report: string }): string | undefined {
    return this.#within('', (folder) => {
      const source = below(folder, bytesOf(file.name));
      const stats = lstatSync(source, { bigint: true, throwIfNoEntry: false });
      if (!stats?.isFile() || !isSameFile(fileOf(file.name, stats), file)) return undefined;
      createFolder(below(folder, Buffer.from(to)), fstatSync(folder).mode);
      const subfolder = asOwner(() => openSubfolder(folder, to));
      return within(subfolder, (target) => {
        assertOwn(target);
        const name = freeName(target, file.name);
        const path = below(target, bytesOf(name + REPORT));
        asOwner(() => createFile(path, report, Number(stats.mode)));
        try {
          renameSync(source, below(target, bytesOf(name)));
        } catch (error) {
          unlinkIfThere(path);
          throw isSticky(folder, stats) ? failure('ESTICKY', 'the file belongs to another user') : error;
        }
        return `${to}/${name}`;
      });
    });
  }

  /**
   * Deletes files in `done/` whose report is older than `keepMs`. Returns after a second at the latest, and continues
   * with the next request. Returns whether all files were checked.
   */
  deleteExpired({ keepMs, nowMs }: { keepMs: number; nowMs: number }): boolean {
    let isComplete = true;
    ignoring('ENOENT', () =>
      this.#within('done', (folder) => {
        const endMs = systemClock.monotonicMs() + MAX_DELETING_MS;
        const names = this.#finishedNames ?? namesIn(folder);
        this.#finishedNames = undefined;
        for (let next = names.next(); !next.done; next = names.next()) {
          deleteIfExpired(folder, textOf(next.value), nowMs - keepMs);
          if (systemClock.monotonicMs() < endMs) continue;
          this.#finishedNames = names;
          isComplete = false;
          return;
        }
      }),
    );
    return isComplete;
  }

  /** The folder is opened for each request, because a share may be mounted over it at any time. */
  #within<Result>(where: Where, work: (folder: number) => Result): Result {
    return within(openSync(this.#path, O_RDONLY | O_DIRECTORY), (folder) =>
      where === '' ? work(folder) : within(openSubfolder(folder, where), work),
    );
  }
}

/** `name`: name of a report. Data files that are named like a report have their own report. */
function deleteIfExpired(folder: number, name: string, expiredMs: number): void {
  if (!name.endsWith(REPORT) || isThere(below(folder, bytesOf(name + REPORT)))) return;
  const report = below(folder, bytesOf(name));
  // The report is written when the file is moved.
  const stats = lstatSync(report, { throwIfNoEntry: false });
  if (stats === undefined || stats.mtimeMs > expiredMs) return;
  unlinkIfThere(below(folder, bytesOf(name.slice(0, -REPORT.length))));
  unlinkIfThere(report);
}

function within<Result>(descriptor: number, work: (descriptor: number) => Result): Result {
  try {
    return work(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function below(folder: number, name: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`/proc/self/fd/${folder}/`), name]);
}

function openSubfolder(folder: number, name: string): number {
  return openSync(below(folder, Buffer.from(name)), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

/**
 * Creates a folder with the same access as its parent folder. The kernel copies the setgid bit. This function copies
 * the sticky bit, because without it users could remove each other's files.
 */
function createFolder(path: Buffer, parentMode: number): void {
  ignoring('EEXIST', () => mkdirSync(path, 0o700 | (parentMode & 0o1777)));
}

function* namesIn(folder: number): Generator<Buffer> {
  // The type declaration of `opendirSync` does not cover names returned as bytes.
  const directory = opendirSync(`/proc/self/fd/${folder}`, { encoding: 'buffer' as BufferEncoding });
  try {
    for (let entry = directory.readSync(); entry !== null; entry = directory.readSync()) {
      yield entry.name as unknown as Buffer;
    }
  } finally {
    directory.closeSync();
  }
}

/** Returns a name that is not used by a file or a report yet, because loggers reuse names. */
function freeName(folder: number, name: string): string {
  const isFree = (one: string) => !isThere(below(folder, bytesOf(one)));
  for (let copy = 1; copy <= MAX_COPIES; copy++) {
    const free = copy === 1 ? name : `${name}.${copy}`;
    if (isFree(free) && isFree(free + REPORT)) return free;
  }
  throw failure('EEXIST', `more than ${MAX_COPIES} finished files are named ${name}`);
}

/**
 * Throws `EOWNER` if a folder belongs to another user, who could read and replace files in it. Some shares report the
 * same owner for every file, so the folder owner is compared with the owner of a new file.
 */
function assertOwn(folder: number): void {
  const { uid } = fstatSync(folder);
  if (uid === process.geteuid!() || uid === ROOT) return;
  const probe = below(folder, Buffer.from(`.tagferry-${randomUUID()}`));
  const file = asOwner(() => openSync(probe, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600));
  try {
    if (fstatSync(file).uid !== uid) throw failure('EOWNER', 'the folder belongs to another user');
  } finally {
    closeSync(file);
    unlinkIfThere(probe);
  }
}

/** Throws `EOWNER` if the service has no access to a subfolder. */
function asOwner<Result>(work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    const code = codeOf(error);
    throw code === 'EACCES' || code === 'EPERM' ? failure('EOWNER', 'the folder belongs to another user') : error;
  }
}

/** Returns whether the sticky bit of a folder prevents moving other users' files. */
function isSticky(folder: number, file: BigIntStats): boolean {
  return (fstatSync(folder).mode & 0o1000) !== 0 && Number(file.uid) !== process.geteuid!();
}

/** Creates a report that is readable by all users who can read the data file. */
function createFile(path: Buffer, text: string, droppedMode: number): void {
  within(openSync(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600 | (droppedMode & 0o444)), (file) => {
    const bytes = Buffer.from(text);
    for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at);
  });
}

function isThere(path: Buffer): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}

function unlinkIfThere(path: Buffer): void {
  ignoring('ENOENT', () => unlinkSync(path));
}

function ignoring(code: string, work: () => void): void {
  try {
    work();
  } catch (error) {
    if (codeOf(error) !== code) throw error;
  }
}

function accessFailure(folder: number): string | undefined {
  try {
    accessSync(`/proc/self/fd/${folder}`, constants.W_OK);
    return undefined;
  } catch (error) {
    return codeOf(error) ?? 'unknown';
  }
}

function fileOf(name: string, { size, mtimeNs, ino }: BigIntStats): FolderFile {
  return { name, size: Number(size), mtimeMs: Number(mtimeNs / 1_000n) / 1_000, identity: String(ino) };
}

function failure(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}

/**
 * Returns a function that matches names. Hidden names never match, because they belong to files that are still being
 * written.
 */
function matcherOf(pattern: string): (name: string) => boolean {
  const escaped = pattern
    .replaceAll(/[.+^${}()|[\]\\]/g, '\\$&')
    .replaceAll('*', '.*')
    .replaceAll('?', '.');
  const expression = new RegExp(`^${escaped}$`, 's');
  return (name) => !name.startsWith('.') && expression.test(name);
}

/** Escapes backslashes and non-UTF-8 bytes as `\xNN`, so that each name has exactly one spelling. */
function textOf(bytes: Buffer): string {
  const text = bytes.toString();
  const isText = Buffer.from(text).equals(bytes);
  if (isText) return text.replaceAll('\\', '\\x5c');
  return bytes.toString('latin1').replaceAll(/[\\\x80-\xff]/g, (letter) => `\\x${letter.charCodeAt(0).toString(16)}`);
}

function bytesOf(name: string): Buffer {
  const parts = name.split(/\\x([0-9a-f]{2})/);
  return Buffer.concat(parts.map((part, at) => (at % 2 === 0 ? Buffer.from(part) : Buffer.from(part, 'hex'))));
}

const folder = new ForeignFolder(process.argv[2]!);
// The unit's umask must not restrict the modes of new files and folders.
process.umask(0);
process.on('disconnect', () => process.exit());
process.on('message', ({ operation, request }: FolderRequest) => {
  const perform = folder[operation] as (request: unknown) => unknown;
  let reply: FolderReply;
  try {
    reply = { result: perform.call(folder, request) };
  } catch (error) {
    reply = { error: { code: codeOf(error) ?? 'unknown', message: messageOf(error) } };
  }
  process.send!(reply);
});
