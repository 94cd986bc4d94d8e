/**
 * Operations on folders to which other users can write. Every path is opened relative to a directory handle
 * (`/proc/self/fd/N/name`), links are never followed, and files are only created, never overwritten. All calls are
 * blocking, so `folder-program.ts` runs them in a separate process, which can be killed and restarted at any time.
 */
import {
  accessSync,
  type BigIntStats,
  closeSync,
  constants,
  fstatSync,
  futimesSync,
  lstatSync,
  mkdirSync,
  opendirSync,
  openSync,
  readSync,
  renameSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { codeOf, messageOf } from '../../base/errors.ts';

export interface FolderFile {
  /** File name. Backslashes and non-UTF-8 bytes are written as `\xNN`. */
  name: string;
  size: number;
  mtimeMs: number;
  /** Inode number, which distinguishes a file from a later file with the same name. */
  identity: string;
  /** Whether the name does not match the pattern, but results from the rotation of a matching file. */
  isRotated?: boolean;
}

/** File to read. The name of a finished file begins with its subfolder, `done/` or `failed/`. */
export interface OpenedFile extends Pick<FolderFile, 'name' | 'identity'> {
  /** Whether the file stays open, so that it can be read after it has been renamed or removed. */
  isKept?: boolean;
}

export type Operation = 'list' | 'read' | 'release' | 'move' | 'appendToReport' | 'cleanUp';
/** The first argument is the folder. */
export interface FolderRequest {
  operation: Operation;
  args: readonly unknown[];
}
export type FolderReply = { result: unknown } | { error: { code: string; message: string } };

/** Runs an operation. Returns its result or error. */
export function perform(folders: ForeignFolders, { operation, args }: FolderRequest): FolderReply {
  try {
    return { result: (folders[operation] as (...args: readonly unknown[]) => unknown).apply(folders, [...args]) };
  } catch (error) {
    return { error: { code: codeOf(error) ?? 'unknown', message: messageOf(error) } };
  }
}

/** Returns whether a file was neither changed nor replaced. */
export function isSameFile(one: Omit<FolderFile, 'name'>, other: Omit<FolderFile, 'name'>): boolean {
  return one.identity === other.identity && one.size === other.size && one.mtimeMs === other.mtimeMs;
}

const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_APPEND, O_NOFOLLOW, O_DIRECTORY, O_NONBLOCK, O_NOCTTY } = constants;
const REPORT = '.report.txt';
/** Text that a rotation adds after the name or before its extension: `a.csv.1`, `a.csv.old`, `a-20261128.csv`. */
const ROTATED = /^(.+?)[._-](?:old|bak|\d[\dTZ:+._-]*)(\.[^.\d][^.]*)?$/;
const NOT_READ = 'Rows were added after the final check. They were not read. To read them, copy them to a new file.\n';
/** Maximum number of listed names. Remaining names are listed once these files have been moved. */
const MAX_FILES = 10_000;
/** Maximum number of files that stay open. */
const MAX_KEPT = 100;
/** Maximum number of names that one request checks for expiry, so that it ends before its deadline on a slow share. */
const MAX_CHECKED = 2_500;
const MAX_COPIES = 10_000;
const ROOT = 0;

/** The operations. Each one throws errors with a code. */
export class ForeignFolders {
  /** Handles of files that stay open. */
  readonly #kept = new Map<string, number>();
  /** Names in `done/` that `cleanUp` has not reached yet, by folder. */
  readonly #unreached = new Map<string, Iterator<string, void>>();

  /**
   * Lists matching regular files, oldest first. `pattern` may contain the shell wildcards `*` and `?`. `withRotated`: also
   * lists names that result from a rotation. `readOnly`: error code if the folder is not writable.
   */
  list(path: string, where: '' | 'done/', pattern: string, withRotated = false) {
    const matches = matcherOf(pattern);
    return inFolder(path, where, (folder) => {
      const files: FolderFile[] = [];
      for (const name of namesIn(folder)) {
        const isRotated = withRotated && !matches(name) && matches(originalNameOf(name));
        if (!isRotated && !matches(name)) continue;
        const stats = lstatSync(below(folder, name), { bigint: true, throwIfNoEntry: false });
        if (stats?.isFile()) files.push(isRotated ? { ...fileOf(name, stats), isRotated } : fileOf(name, stats));
        if (files.length >= MAX_FILES) break;
      }
      files.sort((one, other) => one.mtimeMs - other.mtimeMs || (one.name < other.name ? -1 : 1));
      return { files, readOnly: codeThrownBy(() => accessSync(`/proc/self/fd/${folder}`, constants.W_OK)) };
    });
  }

  /** Reads at most `length` bytes; none at the end of the file. Throws `ENOENT` if the name denotes another file. */
  read(path: string, { name, identity, isKept }: OpenedFile, position: number, length: number): Uint8Array {
    const key = `${path}\0${identity}`;
    const kept = isKept ? this.#kept.get(key) : undefined;
    const file = kept ?? inFolder(path, name, (folder, fileName) => openFile(folder, fileName, identity));
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
      const [oldest] = this.#kept.keys();
      if (this.#kept.size > MAX_KEPT) this.#close(oldest!);
    }
  }

  /** Closes a file that stays open. */
  release(path: string, identity: string): void {
    const key = `${path}\0${identity}`;
    if (this.#kept.has(key)) this.#close(key);
  }

  #close(key: string): void {
    closeSync(this.#kept.get(key)!);
    this.#kept.delete(key);
  }

  /**
   * Moves a file to `done/` or `failed/` and writes its report. Returns the new path relative to the folder, or
   * `undefined` if the file was removed or changed.
   */
  move(path: string, file: FolderFile, to: 'done' | 'failed', report: string): string | undefined {
    return inFolder(path, '', (folder) => {
      const source = below(folder, file.name);
      const stats = lstatSync(source, { bigint: true, throwIfNoEntry: false });
      if (!stats?.isFile() || !isSameFile(fileOf(file.name, stats), file)) return undefined;
      // The kernel copies the setgid bit. Without the sticky bit, users could remove each other's files.
      const mode = 0o700 | (fstatSync(folder).mode & 0o1777);
      const code = codeThrownBy(() => mkdirSync(below(folder, to), mode));
      if (code !== undefined && code !== 'EEXIST') throw failure(code, `cannot create ${to}`);
      return within(
        asOwner(() => openSubfolder(folder, to)),
        (target) => {
          const name = unusedName(target, file.name);
          // All users who can read the data file can read its report.
          asOwner(() => createReport(target, name, report, 0o600 | (Number(stats.mode) & 0o444), file.mtimeMs));
          try {
            renameSync(source, below(target, name));
          } catch (error) {
            unlinkSync(below(target, name + REPORT));
            // The sticky bit causes EPERM, missing access EACCES.
            throw codeOf(error) === 'EPERM' ? failure('ESTICKY', 'the file belongs to another user') : error;
          }
          return `${to}/${name}`;
        },
      );
    });
  }

  /** Adds lines to the report of a moved file, which marks the file as checked. `movedTo`: the path that `move` returned. */
  appendToReport(path: string, movedTo: string, text: string): void {
    inFolder(path, movedTo, (folder, name) => {
      const mtimeMs = lstatSync(below(folder, name), { throwIfNoEntry: false })?.mtimeMs ?? 0;
      const flags = O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
      within(openSync(below(folder, name + REPORT), flags), (report) => {
        // A file with several hard links may have a name outside this folder.
        if (fstatSync(report).nlink === 1) writeReport(report, text, mtimeMs);
      });
    });
  }

  /**
   * Deletes files in `done/` whose report was written before `beforeMs`. Finds other files that have changed since
   * their report was written, except `unchecked`, and adds a note to their reports. Returns the paths of the changed
   * files, and whether all files have been reached. Otherwise, the next request continues.
   */
  cleanUp(path: string, beforeMs: number, unchecked: readonly string[]): { isComplete: boolean; grown: string[] } {
    return inFolder(path, 'done/', (folder) => {
      const grown: string[] = [];
      const names = this.#unreached.get(path) ?? namesIn(folder);
      this.#unreached.set(path, names);
      for (let checked = 0; checked < MAX_CHECKED; checked++) {
        const { value: report, done } = names.next();
        if (done) {
          this.#unreached.delete(path);
          return { isComplete: true, grown };
        }
        if (!report.endsWith(REPORT)) continue;
        const name = report.slice(0, -REPORT.length);
        const [file, written] = [name, report].map((each) => lstatSync(below(folder, each), { throwIfNoEntry: false }));
        if (written === undefined) continue;
        const movedTo = `done/${name}`;
        if (file !== undefined && file.mtimeMs > written.mtimeMs && !unchecked.includes(movedTo)) {
          // On a full disk, deleting expired files is more important.
          codeThrownBy(() => this.appendToReport(path, movedTo, NOT_READ));
          grown.push(movedTo);
        } else if (written.mtimeMs <= beforeMs) {
          for (const expired of [name, report]) {
            const code = codeThrownBy(() => unlinkSync(below(folder, expired)));
            if (code !== undefined && code !== 'ENOENT') throw failure(code, `cannot delete ${expired}`);
          }
        }
      }
      return { isComplete: false, grown };
    });
  }
}

/**
 * Calls `work` with the descriptor of the folder, or of the subfolder in `name`, and with the remaining name. The folder
 * is opened for each request, because a share may be mounted over the folder at any time.
 */
function inFolder<Result>(path: string, name: string, work: (folder: number, name: string) => Result): Result {
  const slash = name.indexOf('/');
  return within(openSync(path, O_RDONLY | O_DIRECTORY), (folder) => {
    if (slash < 0) return work(folder, name);
    const inSubfolder = (subfolder: number) => work(subfolder, name.slice(slash + 1));
    return within(openSubfolder(folder, name.slice(0, slash)), inSubfolder);
  });
}

function within<Result>(descriptor: number, work: (descriptor: number) => Result): Result {
  try {
    return work(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function openSubfolder(folder: number, name: string): number {
  return openSync(below(folder, name), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

function* namesIn(folder: number): Generator<string, void> {
  // The type declaration of `opendirSync` does not cover names returned as bytes.
  const directory = opendirSync(`/proc/self/fd/${folder}`, { encoding: 'buffer' as BufferEncoding });
  try {
    for (let entry = directory.readSync(); entry !== null; entry = directory.readSync()) {
      yield textOf(entry.name as unknown as Buffer);
    }
  } finally {
    directory.closeSync();
  }
}

function fileOf(name: string, { size, mtimeNs, ino }: BigIntStats): FolderFile {
  return { name, size: Number(size), mtimeMs: Number(mtimeNs / 1_000n) / 1_000, identity: String(ino) };
}

function openFile(folder: number, name: string, identity: string): number {
  const file = openSync(below(folder, name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
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

/** Returns a name that no file or report has, because loggers reuse names. */
function unusedName(folder: number, wanted: string): string {
  for (let copy = 1; copy <= MAX_COPIES; copy++) {
    const name = copy === 1 ? wanted : `${wanted}.${copy}`;
    const paths = [below(folder, name), below(folder, name + REPORT)];
    if (paths.every((path) => lstatSync(path, { throwIfNoEntry: false }) === undefined)) return name;
  }
  throw failure('EEXIST', `more than ${MAX_COPIES} finished files are named ${wanted}`);
}

/**
 * Creates the report of a file, which exists only if it is complete. Throws `EOWNER` if the folder belongs to another user,
 * who could replace files in it. Some shares report the same owner for every file, so the owners of the folder and of the
 * report are compared.
 */
function createReport(folder: number, name: string, text: string, mode: number, mtimeMs: number): void {
  const report = below(folder, name + REPORT);
  within(openSync(report, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode), (file) => {
    try {
      const { uid } = fstatSync(folder);
      if (uid !== ROOT && uid !== fstatSync(file).uid) throw failure('EOWNER', 'the folder belongs to another user');
      writeReport(file, text, mtimeMs);
    } catch (error) {
      unlinkSync(report);
      throw error;
    }
  });
}

/** Writes text. If the clock of the file's writer is ahead, sets the report's time to that of the file. */
function writeReport(report: number, text: string, mtimeMs: number): void {
  writeFileSync(report, text);
  const writtenMs = fstatSync(report).mtimeMs;
  const fileS = (Math.ceil(mtimeMs) + 1) / 1_000;
  if (mtimeMs > writtenMs) futimesSync(report, fileS, fileS);
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

function codeThrownBy(work: () => void): string | undefined {
  try {
    work();
    return undefined;
  } catch (error) {
    return codeOf(error) ?? 'unknown';
  }
}

function failure(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}

/**
 * Returns a function that matches names. Hidden names belong to files that are still being written. They never match, and
 * neither do names of reports.
 */
function matcherOf(pattern: string): (name: string) => boolean {
  const escaped = pattern
    .replaceAll(/[.+^${}()|[\]\\]/g, '\\$&')
    .replaceAll('*', '.*')
    .replaceAll('?', '.');
  const expression = new RegExp(`^${escaped}$`, 's');
  return (name) => !name.startsWith('.') && !name.endsWith(REPORT) && expression.test(name);
}

/** Returns the name of a file before its rotation, or the name itself. */
export function originalNameOf(name: string): string {
  return name.replace(ROTATED, '$1$2');
}

function below(folder: number, name: string): Buffer {
  return Buffer.concat([Buffer.from(`/proc/self/fd/${folder}/`), bytesOf(name)]);
}

/** Escapes backslashes and non-UTF-8 bytes as `\xNN`, so that each name has exactly one spelling. */
function textOf(bytes: Buffer): string {
  const text = bytes.toString();
  if (Buffer.from(text).equals(bytes)) return text.replaceAll('\\', '\\x5c');
  return bytes.toString('latin1').replaceAll(/[\\\x80-\xff]/g, (letter) => `\\x${letter.charCodeAt(0).toString(16)}`);
}

function bytesOf(name: string): Buffer {
  const parts = name.split(/\\x([0-9a-f]{2})/);
  return Buffer.concat(parts.map((part, at) => Buffer.from(part, at % 2 === 0 ? 'utf8' : 'hex')));
}
