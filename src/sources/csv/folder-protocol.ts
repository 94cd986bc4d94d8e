/** Messages between the agent and a folder process. */

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
  /** Matching file names whose attributes cannot be read. */
  unreadable: { name: string; code: string }[];
  /** Error code if the folder is not writable. */
  readOnly?: string;
}

export interface FolderRequest {
  operation: 'list' | 'open' | 'read' | 'size' | 'close' | 'finish' | 'deleteExpired';
  request: unknown;
}

export type FolderReply = { result: unknown } | { error: { code: string; message: string } };

/** Returns whether a file was neither changed nor replaced. */
export function isSameFile(one: Omit<FolderFile, 'name'>, other: Omit<FolderFile, 'name'>): boolean {
  return one.identity === other.identity && one.size === other.size && one.mtimeMs === other.mtimeMs;
}
