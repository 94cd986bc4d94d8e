/**
 * Requests to the process that works in a foreign folder, one at a time, over its IPC channel. The process has no state beyond open
 * files, so it can be killed and started again at any moment.
 *
 *   agent ── list, open, read, size, close, finish, forget ──► folder process ──► file system
 *   agent ◄── result, or the code of the error ────────────────┘
 *
 * A file name is text. Bytes that are not UTF-8, and backslashes, are written as `\xNN`, so each name has exactly one spelling.
 */

/** Where a file is: in the folder itself, or in the subfolder of finished files. */
export type Where = '' | 'done';

export interface FolderFile {
  name: string;
  size: number;
  mtimeMs: number;
  /** Inode number: distinguishes a file from a later one with the same name. */
  identity: string;
}

export interface Listing {
  /** Regular files that match, oldest first. */
  files: FolderFile[];
  /** Matching names whose attributes cannot be read. */
  unreadable: { name: string; code: string }[];
  /** Error code if the folder is not writable. */
  readOnly?: string;
}

export interface FolderRequests {
  /** `pattern`: `*` and `?` as in a shell. */
  list: { request: { where: Where; pattern: string }; result: Listing };
  open: { request: { where: Where; name: string }; result: FolderFile & { handle: number } };
  /** At most `length` bytes; none at the end of the file. */
  read: { request: { handle: number; position: number; length: number }; result: Uint8Array };
  size: { request: { handle: number }; result: number };
  close: { request: { handle: number }; result: undefined };
  /** Moves a file with a report. The result is its new path below the folder, or `undefined` if the file is gone or has changed. */
  finish: { request: { file: FolderFile; to: 'done' | 'failed'; report: string }; result: string | undefined };
  /** Deletes files of `done/` whose report is older than `keepMs`. */
  forget: { request: { keepMs: number; nowMs: number }; result: undefined };
}

export type FolderOperation = keyof FolderRequests;

export type FolderRequest = {
  [Name in FolderOperation]: { operation: Name; request: FolderRequests[Name]['request'] };
}[FolderOperation];

export type FolderReply = { result: unknown } | { error: { code: string; message: string } };

/** Whether a file was neither changed nor replaced. */
export function isSameFile(one: Omit<FolderFile, 'name'>, other: Omit<FolderFile, 'name'>): boolean {
  return one.identity === other.identity && one.size === other.size && one.mtimeMs === other.mtimeMs;
}
