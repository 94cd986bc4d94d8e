/** One file that grows: read to its last whole line at each look, through its rotation. */
import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { FileColumns } from './file-columns.ts';
import { headOf } from './file-head.ts';
import { type FileProgress, freshProgress, noteProblem } from './file-progress.ts';
import { readRows } from './file-reading.ts';
import { type FolderFile, filesOf, openFile } from './folder-files.ts';
import type { ReadingContext } from './reading-context.ts';

const HEAD_BYTES = 256;

export class FollowedFile {
  readonly #context: ReadingContext;
  readonly #name: string;
  readonly #file: FileHandle;
  readonly identity: string;
  #progress: FileProgress;
  #columns: FileColumns | undefined;

  private constructor(
    context: ReadingContext,
    file: FileHandle,
    { name, identity }: FolderFile,
    progress: FileProgress,
  ) {
    this.#context = context;
    this.#name = name;
    this.#file = file;
    this.identity = identity;
    this.#progress = progress;
  }

  /** `known`: how far it was read by an earlier process; it counts only where the file is still the same. */
  static async open(
    context: ReadingContext,
    found: FolderFile,
    known?: FileProgress,
    /** Where it stands, when it is remembered under the name that it had before its rotation. */
    standsAs = found.name,
  ): Promise<FollowedFile> {
    const file = await openFile(join(context.spec.folder, standsAs));
    const isSame = known?.identity === found.identity && known.position <= found.size && (await isHead(file, known));
    return new FollowedFile(context, file, found, isSame ? known : freshProgress(found));
  }

  /** Takes what was written since; with `isOver` a last line without its end too: nobody writes on there. */
  async read(isOver = false): Promise<void> {
    const { spec, points, gate, signal } = this.#context;
    const { size } = await this.#file.stat();
    if (size < this.#progress.position || !(await isHead(this.#file, this.#progress))) {
      this.#context.sayCut(this.#name, this.#progress);
      this.#progress = { ...freshProgress({ name: this.#name, size, mtimeMs: 0, identity: this.identity }) };
      this.#columns = undefined;
    }
    if (size === this.#progress.position) return;
    const head = await headOf(this.#file, spec, size, isOver);
    if (!head) return;
    const progress = this.#progress;
    const { refused } = progress;
    this.#columns ??= new FileColumns(spec, points, head.first);
    if (progress.position < head.rows.position) {
      Object.assign(progress, head.rows);
      for (const missing of this.#columns.missing) noteProblem(progress, 1, `there is no column of ${missing}`);
    }
    const bytes = Buffer.alloc(Math.min(HEAD_BYTES, size));
    await this.#file.read(bytes, 0, bytes.length, 0);
    progress.head = hashOf(bytes);
    progress.headBytes = bytes.length;
    const noteOf = () => this.#context.noteOf(this.#name, progress);
    const { encoding } = spec;
    const columns = this.#columns;
    await readRows({
      file: this.#file,
      columns,
      encoding,
      progress,
      end: size,
      takesRest: isOver,
      gate,
      noteOf,
      signal,
    });
    if (progress.refused > refused) this.#context.sayRefused(this.#name, progress, progress.refused - refused);
  }

  async close(): Promise<void> {
    await this.#file.close();
  }
}

/** The files that a rotation left of `name` since `known` was read, the oldest first; `undefined` where that one is gone. */
export async function rotatedSince(
  folder: string,
  name: string,
  known: FileProgress,
  current: string,
): Promise<FolderFile[] | undefined> {
  const others = await filesOf(folder, (other) => other !== name && !/\.(gz|xz|bz2|zst)$/.test(other));
  const old = others.find(({ identity, size }) => identity === known.identity && size >= known.position);
  if (!old) return undefined;
  const beginning = name.replace(/\.[^.]*$/, '');
  const between = others.filter(
    (other) =>
      other !== old && other.identity !== current && other.name.startsWith(beginning) && other.mtimeMs > old.mtimeMs,
  );
  return [old, ...between];
}

async function isHead(file: FileHandle, { head, headBytes = 0 }: FileProgress): Promise<boolean> {
  if (head === undefined) return true;
  const bytes = Buffer.alloc(headBytes);
  const { bytesRead } = await file.read(bytes, 0, headBytes, 0);
  return hashOf(bytes.subarray(0, bytesRead)) === head;
}

function hashOf(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex').slice(0, 32);
}
