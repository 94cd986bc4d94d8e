/**
 * A folder to which a data logger or another machine writes files. A complete file has not changed for `settle`; it is
 * read and moved. With `tail`, growing files are read as lines are appended, across rotations.
 *
 *   listed ── settled ──► read ──► on disk ──► moved to done/ or failed/
 *   listed ── changed ──► read ──► listed again, or renamed: read to the end before its successor
 *
 * The position in each file is a note in the commit of its values. Many small files share a commit: files are read until
 * the gate is full, and are moved when their values are on disk. If the folder or the store fails, all state in memory is
 * discarded and reading resumes from the notes on disk. After a crash before a commit, the rows of that
 * commit are read again. After a crash following the commit, only the move of the file remains.
 */
import { createHash } from 'node:crypto';
import { type Clock, raced } from '../../base/clock.ts';
import { codeOf, StoreError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Note } from '../../buffer/client/notes.ts';
import { UnreadableValues } from '../intake/problem-list.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';
import type { CsvSpec, CsvValue } from './columns.ts';
import { FileReports } from './file-reports.ts';
import {
  type FileProgress,
  initialProgress,
  type OpenFile,
  parseProgress,
  type RowsContext,
  readRows,
  reportText,
} from './file-rows.ts';
import { type FolderFile, isSameFile } from './folder.ts';
import { CHUNK_BYTES, type Folder, FolderFailure, Folders, folderProblem } from './folders.ts';

const MAX_SCAN_MS = 5_000;
const TAIL_SCAN_MS = 1_000;
const MIN_SCAN_MS = 50;
/** Minimum retry delay after a failure. */
const MIN_RETRY_MS = 1_000;
const CLEAN_UP_EVERY_MS = 3_600_000;
/** Maximum number of files that are read before the first of them is moved. */
const MAX_UNMOVED = 1_000;
/** Maximum number of remembered files without a successor. */
const MAX_UNLISTED = 1_000;
const HEAD_BYTES = 256;
const COMPRESSED = /\.(gz|xz|bz2|zst)$/;
const NOTE = 'file/';

interface KnownFile extends OpenFile {
  /** Current name, which differs from the one in `progress` after a rotation. */
  name: string;
  /** Monotonic time since which a complete file has not changed. */
  sinceMs: number;
  /** Attributes of a growing file when it was last read. */
  seen?: FolderFile;
}

export class CsvSource implements RunningSource {
  readonly #context: SourceContext<CsvSpec, CsvValue>;
  readonly #clock: Clock;
  readonly #spec: CsvSpec;
  readonly #stopping = new AbortController();
  readonly #folder: Folder;
  readonly #reports: FileReports;
  readonly #rows: RowsContext;
  #running: Promise<void> | undefined;
  /** Files by identity. */
  readonly #files = new Map<string, KnownFile>();
  /** Whether the notes on disk have been read. */
  #isResumed = false;
  #cleanUpAtMs = 0;

  constructor(context: SourceContext<CsvSpec, CsvValue>) {
    const { source, points, gate, clock, log, shared, status } = context;
    const { signal } = this.#stopping;
    this.#context = context;
    this.#clock = clock;
    this.#spec = source.spec;
    this.#folder = shared.get('csv', () => new Folders({ clock })).open(source.spec.folder, signal);
    this.#reports = new FileReports(status, source.spec.folder, clock, log);
    this.#rows = {
      spec: source.spec,
      points,
      gate,
      signal,
      noteOf: (progress) => this.#noteOf(progress, JSON.stringify(progress)),
    };
  }

  start(): void {
    this.#running ??= this.#context.isTest ? this.#readNewest() : this.#run();
  }

  /** Does not wait for the folder. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
    this.#folder.close();
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    const { settleMs, tail } = this.#spec;
    const scanMs = tail ? TAIL_SCAN_MS : Math.max(MIN_SCAN_MS, Math.min(MAX_SCAN_MS, settleMs / 2));
    while (!signal.aborted) {
      let pauseMs = scanMs;
      try {
        await this.#scan();
      } catch (error) {
        if (signal.aborted) return;
        this.#isResumed = false;
        // The gate reports store errors.
        if (!(error instanceof StoreError)) this.#reports.folderFailed(error);
        pauseMs = Math.max(scanMs, MIN_RETRY_MS);
      }
      await this.#clock.sleep(pauseMs, signal).catch(() => {});
    }
  }

  async #scan(): Promise<void> {
    const { files, readOnly } = await this.#folder.call('list', { where: '', pattern: this.#spec.pattern });
    if (!this.#isResumed) await this.#resume();
    // Files that no value reads stay where they are, so that a source can be added and scanned first.
    if (this.#context.points.length > 0) {
      await (this.#spec.tail ? this.#readGrowing(files) : this.#readComplete(files));
    }
    // A folder that is read-only is reported before the first file has to be moved.
    const isReported = readOnly !== undefined && !this.#spec.tail;
    const found = isReported ? folderProblem(this.#spec.folder, readOnly) : undefined;
    this.#reports.folderRead(new Set(files.map(({ name }) => name)), found);
  }

  /** Resumes from the positions on disk. */
  async #resume(): Promise<void> {
    const { signal } = this.#stopping;
    await raced(this.#rows.gate.write([]), signal).catch(() => signal.throwIfAborted());
    const notes = await this.#context.notes();
    const sinceMs = this.#clock.monotonicMs();
    this.#files.clear();
    for (const [note, text] of notes) {
      const progress = note.startsWith(NOTE) ? parseProgress(text) : undefined;
      if (progress) this.#files.set(progress.identity, { name: progress.name, progress, sinceMs });
    }
    this.#isResumed = true;
  }

  /** Files are read until the gate is full, and then moved together. */
  async #readComplete(listed: readonly FolderFile[]): Promise<void> {
    let read: KnownFile[] = [];
    for (const file of this.#settled(listed)) {
      await this.#isolate(file.name, async () => {
        await this.#readWhole(file);
        read.push(file);
      });
      if (read.length < MAX_UNMOVED && !this.#rows.gate.isFull) continue;
      await this.#moveAll(read);
      read = [];
    }
    await this.#moveAll(read);
    await this.#deleteExpired();
  }

  /** Returns the files that have not changed for `settle`. Forgets files that other users removed or moved. */
  #settled(listed: readonly FolderFile[]): KnownFile[] {
    const nowMs = this.#clock.monotonicMs();
    const identities = new Set(listed.map(({ identity }) => identity));
    for (const file of this.#files.values()) if (!identities.has(file.progress.identity)) this.#forget(file);
    const present = listed.map((file) => {
      const known = this.#files.get(file.identity);
      const isSame = known !== undefined && isSameFile(known.progress, file);
      return isSame ? Object.assign(known, { name: file.name }) : this.#remember(file);
    });
    return present.filter(({ sinceMs }) => nowMs - sinceMs >= this.#spec.settleMs);
  }

  async #readWhole(file: KnownFile): Promise<void> {
    const { progress } = file;
    if (progress.isRead) return;
    try {
      await readRows(this.#rows, file, this.#bytesOf(file, progress.size), true);
      if (file.columns === undefined) throw new UnreadableValues('the file is empty');
    } catch (error) {
      if (!(error instanceof UnreadableValues)) throw error;
      progress.failure = error.message;
      this.#context.status.reject(plain(`${progress.name}: ${error.message}`));
    }
    progress.isRead = true;
    file.columns = undefined;
    file.stored = this.#rows.gate.write([], [this.#rows.noteOf(progress)]);
  }

  async #moveAll(read: readonly KnownFile[]): Promise<void> {
    for (const file of read) {
      const { progress, stored } = file;
      if (stored) await raced(stored, this.#stopping.signal);
      const isRejected = progress.failure !== undefined || (progress.values === 0 && progress.refused > 0);
      const report = reportText(progress, this.#spec.time.zone);
      try {
        const to = isRejected ? 'failed' : 'done';
        const movedTo = await this.#folder.call('move', { file: { ...progress, name: file.name }, to, report });
        if (movedTo !== undefined) this.#reports.finished(progress, movedTo);
        this.#forget(file);
      } catch (error) {
        if (!(error instanceof FolderFailure) || error.isLost) throw error;
        this.#reports.notMoved(progress, error);
      }
    }
  }

  async #deleteExpired(): Promise<void> {
    const { keepMs } = this.#spec;
    const nowMs = this.#clock.monotonicMs();
    if (keepMs === 0 || nowMs < this.#cleanUpAtMs) return;
    const request = { keepMs, nowMs: this.#clock.wallMs() };
    const isComplete = await this.#folder.call('deleteExpired', request).catch((error: unknown) => {
      // If `done/` is inaccessible, the next failed move to it is reported.
      if (!(error instanceof FolderFailure) || error.isLost) throw error;
      return true;
    });
    if (isComplete) this.#cleanUpAtMs = nowMs + CLEAN_UP_EVERY_MS;
  }

  async #readGrowing(listed: readonly FolderFile[]): Promise<void> {
    for (const { name, identity } of listed) {
      const known = this.#files.get(identity);
      if (known) known.name = known.progress.name = name;
    }
    for (const file of listed) await this.#isolate(file.name, () => this.#follow(file, listed));
    const names = new Set(listed.map(({ name }) => name));
    // A renamed or removed file is read to its end when it has a successor.
    const unlisted = [...this.#files.values()].filter(({ progress }) => !names.has(progress.name));
    for (const file of unlisted.slice(0, -MAX_UNLISTED)) this.#forget(file);
  }

  async #follow(file: FolderFile, listed: readonly FolderFile[]): Promise<void> {
    let known = this.#files.get(file.identity);
    if (known === undefined) {
      await this.#readRotated(file.name, listed);
      known = this.#remember(file);
    }
    if (known.seen && isSameFile(known.seen, file)) return;
    if (!(await this.#beginsAsBefore(known, file.size))) {
      this.#reports.cut(known.progress);
      known.progress = initialProgress(file);
      known.columns = undefined;
      await this.#beginsAsBefore(known, file.size);
    }
    known.progress.size = file.size;
    known.progress.mtimeMs = file.mtimeMs;
    await this.#readLines(known, file.size, false);
    known.seen = file;
  }

  /** Reads the files that had this name to their ends, including those that were rotated while the agent was stopped. */
  async #readRotated(name: string, listed: readonly FolderFile[]): Promise<void> {
    const old = [...this.#files.values()].filter(({ progress }) => progress.name === name);
    if (old.length === 0) return;
    const all = await this.#folder.call('list', { where: '', pattern: '*' });
    const identities = new Set(listed.map(({ identity }) => identity));
    const others = all.files.filter((file) => !identities.has(file.identity) && !COMPRESSED.test(file.name));
    const isOld = ({ identity }: FolderFile) => old.some(({ progress }) => progress.identity === identity);
    const sinceMs = others.find(isOld)?.mtimeMs ?? Math.min(...old.map(({ progress }) => progress.mtimeMs));
    const stem = name.replace(/\.[^.]*$/, '');
    const isLater = (file: FolderFile) =>
      file.mtimeMs > sinceMs && file.name.startsWith(stem) && !this.#files.has(file.identity);
    const rotated = others.filter((file) => isOld(file) || isLater(file));
    for (const file of old) {
      const isPresent = rotated.some(({ identity }) => identity === file.progress.identity);
      if (!isPresent) await this.#readToEnd(file, Number.POSITIVE_INFINITY);
    }
    for (const file of rotated) {
      const known = this.#files.get(file.identity) ?? this.#remember({ ...file, name });
      known.name = file.name;
      await this.#readToEnd(known, file.size);
    }
    for (const file of this.#files.values()) if (file.progress.name === name) this.#forget(file);
  }

  async #readToEnd(file: KnownFile, size: number): Promise<void> {
    const { progress } = file;
    try {
      if (await this.#beginsAsBefore(file, size)) await this.#readLines(file, size, true);
      else this.#reports.rotatedAway(progress);
    } catch (error) {
      if (codeOf(error) === 'ENOENT') this.#reports.rotatedAway(progress);
      else if (error instanceof UnreadableValues) this.#reports.unreadable(progress.name, error);
      else throw error;
    }
  }

  /** With `isFinal`, also reads a final line without a line feed, because the line will not be completed. */
  async #readLines(file: KnownFile, size: number, isFinal: boolean): Promise<void> {
    const { progress } = file;
    const { refused } = progress;
    await readRows(this.#rows, file, this.#bytesOf(file, size), isFinal);
    if (progress.refused > refused) this.#reports.refused(progress, progress.refused - refused);
  }

  /** Returns whether the file still begins with the bytes that were read before. */
  async #beginsAsBefore(file: KnownFile, size: number): Promise<boolean> {
    const { progress } = file;
    let first: Uint8Array = new Uint8Array();
    for await (const bytes of this.#bytesOf(file, Math.min(HEAD_BYTES, size))(0)) first = bytes;
    const isSame = progress.head === undefined || hashOf(first.subarray(0, progress.headBytes)) === progress.head;
    if (!isSame || size < progress.position) return false;
    progress.head = hashOf(first);
    progress.headBytes = first.length;
    return true;
  }

  /** Reads the beginning of the newest file, for a test. */
  async #readNewest(): Promise<void> {
    const { status } = this.#context;
    try {
      const file = await this.#folder.newest(this.#spec.pattern);
      const end = Math.min(file.size, CHUNK_BYTES);
      const progress = initialProgress(file);
      const bytes = (from: number) => this.#folder.chunks(file, from, end);
      await readRows(this.#rows, { progress }, bytes, end === file.size);
      status.connect();
      status.problem = plain(`${file.name}: ${progress.problems[0] ?? 'the value is not in the first rows'}`);
    } catch (error) {
      if (this.#stopping.signal.aborted) return;
      if (!(error instanceof UnreadableValues)) return this.#reports.folderFailed(error);
      status.connect();
      status.problem = plain(error.message);
    }
  }

  /** Reports a problem with one file instead of throwing, so that other files are not affected. */
  async #isolate(name: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
      this.#reports.readable(name);
    } catch (error) {
      const isOfFile = error instanceof UnreadableValues || (error instanceof FolderFailure && !error.isLost);
      if (!isOfFile) throw error;
      // A file that was removed or replaced after it was listed is not a problem.
      if (codeOf(error) !== 'ENOENT') this.#reports.unreadable(name, error);
    }
  }

  #bytesOf({ name, progress }: KnownFile, end: number) {
    const file = { name, identity: progress.identity, isKept: this.#spec.tail };
    return (position: number) => this.#folder.chunks(file, position, end);
  }

  #remember(file: FolderFile): KnownFile {
    const remembered = { name: file.name, progress: initialProgress(file), sinceMs: this.#clock.monotonicMs() };
    this.#files.set(file.identity, remembered);
    return remembered;
  }

  /** Deletes the note of a file with the next commit. Before that commit, the note refers to a missing file. */
  #forget({ progress }: KnownFile): void {
    this.#files.delete(progress.identity);
    if (progress.position > 0 || progress.isRead) this.#rows.gate.record([], [this.#noteOf(progress, undefined)]);
    if (!this.#spec.tail) return;
    this.#folder.call('release', { identity: progress.identity }).catch(() => {});
  }

  #noteOf({ identity }: FileProgress, text: string | undefined): Note {
    return { name: `source/${this.#context.source.name}/${NOTE}${identity}`, text };
  }
}

function hashOf(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex').slice(0, 32);
}
