/**
 * Operations on folders to which other users can write. Every path is opened relative to a directory handle
 * (`/proc/self/fd/N/name`), links are never followed, and files are only created, never overwritten. All calls are
 * blocking, so `folder-program.ts` runs them in a separate process, which can be killed and restarted at any time.
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
  writeFileSync,
} from 'node:fs';
import { systemClock } from '../../base/clock.ts';
import { codeOf, messageOf } from '../../base/errors.ts';

/** Location of a file: the folder itself, or the subfolder for finished files. */
export type Where = '' | 'done';

export interface FolderFile {
  /** File name. Backslashes and non-UTF-8 bytes are written as `\xNN`. */
  name: string;
  size: number;
  mtimeMs: number;
  /** Inode number, which distinguishes a file from a later file with the same name. */
  identity: string;
}

export interface Listing {
  /** Matching regular files, oldest first. */
  files: FolderFile[];
  /** Error code if the folder is not writable. */
  readOnly?: string;
}

export interface ReadRequest {
  folder: string;
  where: Where;
  name: string;
  identity: string;
  position: number;
  length: number;
  /** Whether the file stays open, so that it can be read after it has been renamed or removed. */
  isKept: boolean;
}

interface MoveRequest {
  folder: string;
  file: FolderFile;
  to: 'done' | 'failed';
  report: string;
}

export type Operation = 'list' | 'read' | 'release' | 'move' | 'deleteExpired';
export type RequestOf<Name extends Operation> = Parameters<ForeignFolders[Name]>[0];
export type ResultOf<Name extends Operation> = ReturnType<ForeignFolders[Name]>;

export interface FolderRequest {
  operation: Operation;
  request: unknown;
}

export type FolderReply = { result: unknown } | { error: { code: string; message: string } };

/** Runs an operation. Returns its result or error. */
export function perform(folders: ForeignFolders, { operation, request }: FolderRequest): FolderReply {
  try {
    return { result: (folders[operation] as (request: unknown) => unknown).call(folders, request) };
  } catch (error) {
    return { error: { code: codeOf(error) ?? 'unknown', message: messageOf(error) } };
  }
}

/** Returns whether a file was neither changed nor replaced. */
export function isSameFile(one: Omit<FolderFile, 'name'>, other: Omit<FolderFile, 'name'>): boolean {
  return one.identity === other.identity && one.size === other.size && one.mtimeMs === other.mtimeMs;
}

const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW, O_DIRECTORY, O_NONBLOCK, O_NOCTTY } = constants;
const REPORT = '.report.txt';
/** Maximum number of listed names. Remaining names are listed once these files have been moved. */
const MAX_FILES = 10_000;
/** Maximum number of files that stay open. */
const MAX_KEPT = 100;
/** Maximum duration of one request that deletes files, in milliseconds. */
const MAX_DELETING_MS = 1_000;
const MAX_COPIES = 10_000;
const ROOT = 0;

/** The operations. Each one throws errors with a code. */
export class ForeignFolders {
  /** Handles of files that stay open, least recently read first. */
  readonly #kept = new Map<string, number>();
  /** Names in the `done/` of a folder that `deleteExpired` has not reached yet. */
  readonly #finishedNames = new Map<string, Iterator<Buffer>>();

  /** Lists regular files, oldest first. `pattern` may contain the shell wildcards `*` and `?`. */
  list({ folder: path, where, pattern }: { folder: string; where: Where; pattern: string }): Listing {
    const matches = matcherOf(pattern);
    return inFolder(path, where, (folder) => {
      const files: FolderFile[] = [];
      for (const bytes of namesIn(folder)) {
        const name = textOf(bytes);
        if (matches(name)) files.push(...statusOf(folder, bytes, name));
        if (files.length >= MAX_FILES) break;
      }
      files.sort((one, other) => one.mtimeMs - other.mtimeMs || (one.name < other.name ? -1 : 1));
      const readOnly = accessFailure(folder);
      return { files, ...(readOnly === undefined ? {} : { readOnly }) };
    });
  }

  /** Reads at most `length` bytes; none at the end of the file. Throws `ENOENT` if the name denotes another file. */
  read({ folder, where, name, identity, position, length, ...request }: ReadRequest): Uint8Array {
    const key = keptKey(folder, identity);
    const kept = this.#kept.get(key);
    const isKept = request.isKept || kept !== undefined;
    const file = kept ?? inFolder(folder, where, (parent) => openFile(parent, name, identity));
    if (kept === undefined && isKept && this.#kept.size >= MAX_KEPT) this.#close(this.#kept.keys().next().value!);
    this.#kept.delete(key);
    if (isKept) this.#kept.set(key, file);
    try {
      const bytes = Buffer.allocUnsafeSlow(length);
      return bytes.subarray(0, readSync(file, bytes, 0, length, position));
    } catch (error) {
      // The handle is stale if the share was mounted again.
      if (isKept) this.#close(key);
      throw error;
    } finally {
      if (!isKept) closeSync(file);
    }
  }

  /** Closes one open file of a folder, or all of them. */
  release({ folder, identity }: { folder: string; identity?: string }): void {
    const key = keptKey(folder, identity ?? '');
    const isReleased = (one: string) => (identity === undefined ? one.startsWith(key) : one === key);
    for (const one of [...this.#kept.keys()].filter(isReleased)) this.#close(one);
  }

  #close(key: string): void {
    closeSync(this.#kept.get(key)!);
    this.#kept.delete(key);
  }

  /**
   * Moves a file to `done/` or `failed/` and writes its report. Returns the new path relative to the folder, or
   * `undefined` if the file was removed or changed.
   */
  move({ folder: path, file, to, report }: MoveRequest): string | undefined {
    return inFolder(path, '', (folder) => {
      const source = below(folder, bytesOf(file.name));
      const stats = lstatSync(source, { bigint: true, throwIfNoEntry: false });
      if (!stats?.isFile() || !isSameFile(fileOf(file.name, stats), file)) return undefined;
      createFolder(below(folder, Buffer.from(to)), fstatSync(folder).mode);
      const subfolder = asOwner(() => openSubfolder(folder, to));
      return within(subfolder, (target) => {
        assertOwn(target);
        const name = freeName(target, file.name);
        const reportPath = below(target, bytesOf(name + REPORT));
        asOwner(() => createFile(reportPath, report, Number(stats.mode)));
        try {
          renameSync(source, below(target, bytesOf(name)));
        } catch (error) {
          unlinkIfThere(reportPath);
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
  deleteExpired({ folder: path, keepMs, nowMs }: { folder: string; keepMs: number; nowMs: number }): boolean {
    const endMs = systemClock.monotonicMs() + MAX_DELETING_MS;
    return inFolder(path, 'done', (folder) => {
      const names = this.#finishedNames.get(path) ?? namesIn(folder);
      this.#finishedNames.delete(path);
      for (let next = names.next(); !next.done; next = names.next()) {
        deleteIfExpired(folder, textOf(next.value), nowMs - keepMs);
        if (systemClock.monotonicMs() < endMs) continue;
        this.#finishedNames.set(path, names);
        return false;
      }
      return true;
    });
  }
}

const keptKey = (folder: string, identity: string) => `${folder}\0${identity}`;

/** The folder is opened for each request, because a share may be mounted over it at any time. */
function inFolder<Result>(path: string, where: Where, work: (folder: number) => Result): Result {
  return within(openSync(path, O_RDONLY | O_DIRECTORY), (folder) =>
    where === '' ? work(folder) : within(openSubfolder(folder, where), work),
  );
}

/** Returns a regular file; nothing for other names. If its attributes cannot be read, reading the file reports why. */
function statusOf(folder: number, bytes: Buffer, name: string): FolderFile[] {
  try {
    const stats = lstatSync(below(folder, bytes), { bigint: true });
    return stats.isFile() ? [fileOf(name, stats)] : [];
  } catch (error) {
    return codeOf(error) === 'ENOENT' ? [] : [{ name, size: 1, mtimeMs: 0, identity: `unknown ${name}` }];
  }
}

function openFile(folder: number, name: string, identity: string): number {
  const file = openSync(below(folder, bytesOf(name)), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  try {
    const stats = fstatSync(file, { bigint: true });
    if (!stats.isFile()) throw failure('ENOTREG', `${name} is not a regular file`);
    if (String(stats.ino) !== identity) throw failure('ENOENT', `${name} was replaced`);
    return file;
  } catch (error) {
    closeSync(file);
    throw error;
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
  const flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
  within(openSync(path, flags, 0o600 | (droppedMode & 0o444)), (file) => writeFileSync(file, text));
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
