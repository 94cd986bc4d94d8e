/**
 * Work in a folder that other users can write to. Every path is opened relative to a directory handle (`/proc/self/fd/N/name`), links
 * are never followed, and files are only created, never overwritten. All calls block: they run in a process of their own.
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
import { codeOf } from '../../base/errors.ts';
import {
  type FolderFile,
  type FolderOperation,
  type FolderRequests,
  isSameFile,
  type Listing,
  type Where,
} from './folder-protocol.ts';

type Operations = {
  [Name in FolderOperation]: (request: FolderRequests[Name]['request']) => FolderRequests[Name]['result'];
};

const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW, O_DIRECTORY, O_NONBLOCK, O_NOCTTY } = constants;
const REPORT = '.report.txt';
/** Further names are listed later, when these have been moved. */
const MAX_FILES = 10_000;
const MAX_COPIES = 10_000;
const ROOT = 0;

export class ForeignFolder implements Operations {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  list({ where, pattern }: FolderRequests['list']['request']): Listing {
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

  open({ where, name }: FolderRequests['open']['request']): FolderRequests['open']['result'] {
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

  read({ handle, position, length }: FolderRequests['read']['request']): Uint8Array {
    const bytes = Buffer.allocUnsafeSlow(length);
    return bytes.subarray(0, readSync(handle, bytes, 0, length, position));
  }

  size({ handle }: FolderRequests['size']['request']): number {
    return fstatSync(handle).size;
  }

  close({ handle }: FolderRequests['close']['request']): undefined {
    closeSync(handle);
  }

  finish({ file, to, report }: FolderRequests['finish']['request']): string | undefined {
    return this.#within('', (folder) => {
      const source = below(folder, bytesOf(file.name));
      const stats = lstatSync(source, { bigint: true, throwIfNoEntry: false });
      if (!stats?.isFile() || !isSameFile(fileOf(file.name, stats), file)) return undefined;
      createFolder(below(folder, Buffer.from(to)), fstatSync(folder).mode);
      const subfolder = asOwner(() => openSubfolder(folder, to));
      return within(subfolder, (target) => {
        demandOwn(target);
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

  forget({ keepMs, nowMs }: FolderRequests['forget']['request']): undefined {
    try {
      this.#within('done', (folder) => {
        let names = 0;
        for (const bytes of namesIn(folder)) {
          const name = textOf(bytes);
          if (!name.endsWith(REPORT) || isThere(below(folder, bytesOf(name + REPORT)))) continue;
          if (++names > MAX_FILES) break;
          // The report is written when the file is moved. A data file that is named like a report has a report of its own.
          const stats = lstatSync(below(folder, bytes), { throwIfNoEntry: false });
          if (stats === undefined || nowMs - stats.mtimeMs < keepMs) continue;
          unlinkIfThere(below(folder, bytesOf(name.slice(0, -REPORT.length))));
          unlinkIfThere(below(folder, bytes));
        }
      });
    } catch (error) {
      if (codeOf(error) !== 'ENOENT') throw error;
    }
  }

  /** The folder is opened for each request: a share may be mounted over it at any time. */
  #within<Result>(where: Where, work: (folder: number) => Result): Result {
    return within(openSync(this.#path, O_RDONLY | O_DIRECTORY), (folder) =>
      where === '' ? work(folder) : within(openSubfolder(folder, where), work),
    );
  }
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
 * Users of the parent folder can use the new folder in the same way. The kernel passes on the setgid bit. The sticky bit is copied,
 * because without it users could remove each other's files.
 */
function createFolder(path: Buffer, parentMode: number): void {
  try {
    mkdirSync(path, 0o700 | (parentMode & 0o1777));
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
  }
}

function* namesIn(folder: number): Generator<Buffer> {
  // The type of `opendirSync` does not know that names can be bytes.
  const directory = opendirSync(`/proc/self/fd/${folder}`, { encoding: 'buffer' as BufferEncoding });
  try {
    for (let entry = directory.readSync(); entry !== null; entry = directory.readSync()) {
      yield entry.name as unknown as Buffer;
    }
  } finally {
    directory.closeSync();
  }
}

/** A logger that reuses its names must not replace an earlier file or report. Data files can be named like reports. */
function freeName(folder: number, name: string): string {
  const isFree = (one: string) => !isThere(below(folder, bytesOf(one)));
  for (let copy = 1; copy <= MAX_COPIES; copy++) {
    const free = copy === 1 ? name : `${name}.${copy}`;
    if (isFree(free) && isFree(free + REPORT)) return free;
  }
  throw failure('EEXIST', `more than ${MAX_COPIES} finished files are named ${name}`);
}

/**
 * Throws `EOWNER` if a folder belongs to another user, who could watch and replace what is written there. Some shares assign one owner
 * to everything: a new file shows which.
 */
function demandOwn(folder: number): void {
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

/** Throws `EOWNER` where the permissions of a subfolder keep the service out. */
function asOwner<Result>(work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    const code = codeOf(error);
    throw code === 'EACCES' || code === 'EPERM' ? failure('EOWNER', 'the folder belongs to another user') : error;
  }
}

/** The sticky bit of a folder keeps its users from moving the files of others. */
function isSticky(folder: number, file: BigIntStats): boolean {
  return (fstatSync(folder).mode & 0o1000) !== 0 && Number(file.uid) !== process.geteuid!();
}

/** Users who can read the dropped file can read its report. */
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
  try {
    unlinkSync(path);
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error;
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

/** `*` matches any characters, `?` matches one. Names that begin with a dot are hidden: they belong to files still being written. */
function matcherOf(pattern: string): (name: string) => boolean {
  const escaped = pattern
    .replaceAll(/[.+^${}()|[\]\\]/g, '\\$&')
    .replaceAll('*', '.*')
    .replaceAll('?', '.');
  const expression = new RegExp(`^${escaped}$`, 's');
  return (name) => !name.startsWith('.') && expression.test(name);
}

/** A name as text: see `folder-protocol.ts`. */
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
