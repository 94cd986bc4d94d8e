/**
 * Files that grow: each look reads their new complete lines, through rotations. A renamed file is read to its end before its successor.
 * The position is stored with the values. After a restart, or after the folder was lost, files are found again by it.
 */
import { createHash } from 'node:crypto';
import { UnreadableValues } from '../problem-list.ts';
import { FileColumns } from './file-columns.ts';
import { type FileProgress, freshProgress, noteProblem } from './file-progress.ts';
import { committed, headOf, type ReadingContext, readRows } from './file-reading.ts';
import type { FileReports } from './file-reports.ts';
import { FolderFailure, type OpenFile } from './folder-client.ts';
import type { FolderFile } from './folder-protocol.ts';

const HEAD_BYTES = 256;
const COMPRESSED = /\.(gz|xz|bz2|zst)$/;

interface OpenedFile {
  name: string;
  file: OpenFile;
  progress: FileProgress;
  columns?: FileColumns;
}

export class GrowingFiles {
  readonly #context: ReadingContext;
  readonly #reports: FileReports;
  /** Progress of files that are not opened yet, by file name. */
  readonly #known: Map<string, FileProgress>;
  readonly #open = new Map<string, OpenedFile>();

  constructor(context: ReadingContext, reports: FileReports, known: Map<string, FileProgress>) {
    this.#context = context;
    this.#reports = reports;
    this.#known = known;
  }

  /** Reads what was appended. Rejects if the folder is lost or the store fails for good. */
  async process(files: readonly FolderFile[]): Promise<void> {
    for (const found of files) await this.#guarded(found.name, () => this.#follow(found));
    const names = new Set(files.map(({ name }) => name));
    // Renamed, without a successor yet: its writer may still append to it.
    for (const [name, opened] of this.#open) {
      if (!names.has(name)) await this.#guarded(name, () => this.#readOn(opened, false));
    }
    await committed(this.#context);
  }

  /** A problem of one file does not concern the others. */
  async #guarded(name: string, work: () => Promise<void>): Promise<void> {
    this.#context.signal.throwIfAborted();
    try {
      await work();
      this.#reports.readable(name);
    } catch (error) {
      if (!(error instanceof UnreadableValues) && (!(error instanceof FolderFailure) || error.isLost)) throw error;
      this.#reports.unreadable(name, error);
    }
  }

  async #follow(found: FolderFile): Promise<void> {
    const { name, identity } = found;
    const before = this.#open.get(name);
    if (before && before.file.identity !== identity) {
      this.#open.delete(name);
      await this.#readToEnd(before);
    }
    if (!this.#open.has(name)) await this.#begin(found);
    await this.#readOn(this.#open.get(name)!, false);
  }

  async #begin({ name, identity }: FolderFile): Promise<void> {
    const known = this.#known.get(name);
    if (known && known.identity !== identity) await this.#readRotated(name, identity, known);
    const opened = await this.#openFile(name, name, known);
    this.#known.delete(name);
    this.#open.set(name, opened);
  }

  /** `known` applies only if the file is still the same. */
  async #openFile(name: string, currentName: string, known: FileProgress | undefined): Promise<OpenedFile> {
    const file = await this.#context.folder.open('', currentName);
    const isSame = known?.identity === file.identity && known.position <= file.size && (await hasHead(file, known));
    return { name, file, progress: isSame ? known : freshProgress(file) };
  }

  /** Reads the files that rotations left while the agent was not running, before their successor. */
  async #readRotated(name: string, current: string, known: FileProgress): Promise<void> {
    const { files } = await this.#context.folder.list('', '*');
    const others = files.filter((file) => file.name !== name && !COMPRESSED.test(file.name));
    const old = others.find(({ identity, size }) => identity === known.identity && size >= known.position);
    if (!old) {
      this.#reports.rotatedAway(name, known);
      return;
    }
    const beginning = name.replace(/\.[^.]*$/, '');
    const between = others.filter(
      (other) =>
        other !== old && other.identity !== current && other.name.startsWith(beginning) && other.mtimeMs > old.mtimeMs,
    );
    for (const rotated of [old, ...between]) {
      await this.#readToEnd(await this.#openFile(name, rotated.name, known));
    }
  }

  async #readToEnd(opened: OpenedFile): Promise<void> {
    try {
      await this.#readOn(opened, true);
    } finally {
      await opened.file.close();
    }
  }

  /** With `isOver`, also a last line without a line feed: nobody will complete it. */
  async #readOn(opened: OpenedFile, isOver: boolean): Promise<void> {
    const { spec, points } = this.#context;
    const { name, file } = opened;
    const size = await file.currentSize();
    if (size < opened.progress.position || !(await hasHead(file, opened.progress))) {
      this.#reports.cut(name, opened.progress);
      opened.progress = freshProgress({ size, mtimeMs: 0, identity: file.identity });
      delete opened.columns;
    }
    const { progress } = opened;
    if (size === progress.position) return;
    const head = await headOf(file, spec, size, isOver);
    if (!head) return;
    opened.columns ??= new FileColumns(spec, points, head.first);
    const { refused } = progress;
    if (progress.position < head.rows.position) {
      Object.assign(progress, head.rows);
      for (const missing of opened.columns.missing) noteProblem(progress, 1, `there is no column of ${missing}`);
    }
    const bytes = await file.read(0, Math.min(HEAD_BYTES, size));
    progress.head = hashOf(bytes);
    progress.headBytes = bytes.length;
    await readRows(this.#context, { file, columns: opened.columns, name }, progress, size, isOver);
    if (progress.refused > refused) this.#reports.refused(name, progress, progress.refused - refused);
  }
}

async function hasHead(file: OpenFile, { head, headBytes = 0 }: FileProgress): Promise<boolean> {
  return head === undefined || hashOf(await file.read(0, headBytes)) === head;
}

function hashOf(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex').slice(0, 32);
}
