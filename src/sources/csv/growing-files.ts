/**
 * Follows growing files: each scan reads new complete lines, including across rotations. A renamed file is read to the
 * end before its successor. Positions are stored with the values and identify the files after a restart or a folder
 * failure.
 */
import { createHash } from 'node:crypto';
import { UnreadableValues } from '../intake/problem-list.ts';
import { committed, type FileProgress, initialProgress, type ReadingContext, readRows } from './file-reading.ts';
import type { FileReports } from './file-reports.ts';
import { FolderFailure, type OpenFile } from './folder-client.ts';
import type { FolderFile } from './folder-protocol.ts';

const HEAD_BYTES = 256;
const COMPRESSED = /\.(gz|xz|bz2|zst)$/;

interface FollowedFile {
  name: string;
  file: OpenFile;
  progress: FileProgress;
}

export class GrowingFiles {
  readonly #context: ReadingContext;
  readonly #reports: FileReports;
  /** Progress of files that are not open yet, by file name. */
  readonly #known: Map<string, FileProgress>;
  readonly #open = new Map<string, FollowedFile>();

  constructor(context: ReadingContext, reports: FileReports, known: Map<string, FileProgress>) {
    this.#context = context;
    this.#reports = reports;
    this.#known = known;
  }

  /** Reads appended lines. Rejects if the folder becomes unavailable or the store fails permanently. */
  async process(files: readonly FolderFile[]): Promise<void> {
    for (const file of files) await this.#isolate(file.name, () => this.#follow(file));
    const names = new Set(files.map(({ name }) => name));
    // Lines may still be appended to a renamed file without a successor.
    for (const [name, followed] of this.#open) {
      if (!names.has(name)) await this.#isolate(name, () => this.#readNew(followed, false));
    }
    await committed(this.#context);
  }

  /** Reports a problem with one file instead of throwing, so that other files are not affected. */
  async #isolate(name: string, work: () => Promise<void>): Promise<void> {
    this.#context.signal.throwIfAborted();
    try {
      await work();
      this.#reports.readable(name);
    } catch (error) {
      if (!(error instanceof UnreadableValues) && (!(error instanceof FolderFailure) || error.isLost)) throw error;
      this.#reports.unreadable(name, error);
    }
  }

  async #follow({ name, identity }: FolderFile): Promise<void> {
    const current = this.#open.get(name);
    if (current && current.file.identity !== identity) {
      this.#open.delete(name);
      await this.#readRest(current);
    }
    if (!this.#open.has(name)) {
      const known = this.#known.get(name);
      if (known && known.identity !== identity) await this.#readRotated(name, identity, known);
      const followed = await this.#openFile(name, name, known);
      this.#known.delete(name);
      this.#open.set(name, followed);
    }
    await this.#readNew(this.#open.get(name)!, false);
  }

  /** `known` is used only if the file is still the same. */
  async #openFile(name: string, currentName: string, known: FileProgress | undefined): Promise<FollowedFile> {
    const file = await this.#context.folder.open('', currentName);
    const isSame = known?.identity === file.identity && known.position <= file.size && (await hasHead(file, known));
    return { name, file, progress: isSame ? known : initialProgress(file) };
  }

  /** Reads files that were rotated while the agent was not running, before their successor. */
  async #readRotated(name: string, current: string, known: FileProgress): Promise<void> {
    const { files } = await this.#context.folder.list('', '*');
    const others = files.filter((file) => file.name !== name && !COMPRESSED.test(file.name));
    const old = others.find(({ identity, size }) => identity === known.identity && size >= known.position);
    if (!old) {
      this.#reports.rotatedAway(name, known);
      return;
    }
    const stem = name.replace(/\.[^.]*$/, '');
    const later = others.filter(
      (other) =>
        other !== old && other.identity !== current && other.name.startsWith(stem) && other.mtimeMs > old.mtimeMs,
    );
    for (const rotated of [old, ...later]) await this.#readRest(await this.#openFile(name, rotated.name, known));
  }

  async #readRest(followed: FollowedFile): Promise<void> {
    try {
      await this.#readNew(followed, true);
    } finally {
      await followed.file.close();
    }
  }

  /** With `isFinal`, also reads a final line without a line feed, because the line will not be completed. */
  async #readNew(followed: FollowedFile, isFinal: boolean): Promise<void> {
    const { name, file } = followed;
    const size = await file.currentSize();
    if (size < followed.progress.position || !(await hasHead(file, followed.progress))) {
      this.#reports.cut(name, followed.progress);
      followed.progress = initialProgress({ size, mtimeMs: 0, identity: file.identity });
    }
    const { progress } = followed;
    if (size === progress.position) return;
    const bytes = await file.read(0, Math.min(HEAD_BYTES, size));
    progress.head = hashOf(bytes);
    progress.headBytes = bytes.length;
    const { refused } = progress;
    await readRows(this.#context, followed, progress, size, isFinal);
    if (progress.refused > refused) this.#reports.refused(name, progress, progress.refused - refused);
  }
}

async function hasHead(file: OpenFile, { head, headBytes = 0 }: FileProgress): Promise<boolean> {
  return head === undefined || hashOf(await file.read(0, headBytes)) === head;
}

function hashOf(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex').slice(0, 32);
}
