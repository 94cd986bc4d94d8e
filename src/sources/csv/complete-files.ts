/**
 * Processes complete files: files that have not changed for `settle`. Files are read in groups, oldest first. One
 * commit stores the values of a group; the files of the group are then moved to `done/` or `failed/`.
 *
 *   listed ── settled ──► read ── committed ──► moved ──► forgotten
 *
 * After a crash before the commit, reading continues from the position on disk. After a crash following the commit,
 * files are marked as read and only have to be moved.
 */
import type { Clock } from '../../base/clock.ts';
import { plain } from '../../base/foreign-text.ts';
import { UnreadableValues } from '../intake/problem-list.ts';
import {
  committed,
  type FileProgress,
  initialProgress,
  type ReadingContext,
  readRows,
  reportText,
} from './file-reading.ts';
import type { FileReports } from './file-reports.ts';
import { FolderFailure } from './folder-client.ts';
import { type FolderFile, isSameFile } from './folder-protocol.ts';

const CLEAN_UP_EVERY_MS = 3_600_000;
const GROUP_FILES = 500;
const GROUP_ROWS = 20_000;

/** A file that was read, and the failure if it was not read to the end. */
interface ReadFile {
  file: FolderFile;
  progress: FileProgress;
  failure?: string;
}

export class CompleteFiles {
  readonly #context: ReadingContext;
  readonly #reports: FileReports;
  readonly #clock: Clock;
  /** Progress by file name. */
  readonly #known: Map<string, FileProgress>;
  /** Listed files by name, with the monotonic time since which each file has been unchanged. */
  #seen = new Map<string, FolderFile & { sinceMs: number }>();
  #cleanUpAtMs = 0;

  constructor(context: ReadingContext, reports: FileReports, clock: Clock, known: Map<string, FileProgress>) {
    this.#context = context;
    this.#reports = reports;
    this.#clock = clock;
    this.#known = known;
  }

  /** Reads and moves complete files. Rejects if the folder becomes unavailable or the store fails permanently. */
  async process(files: readonly FolderFile[]): Promise<void> {
    let group: ReadFile[] = [];
    let rows = 0;
    for (const file of this.#settled(files)) {
      this.#context.signal.throwIfAborted();
      const read = await this.#read(file);
      if (!read) continue;
      group.push(read);
      rows += read.progress.rows;
      if (group.length < GROUP_FILES && rows < GROUP_ROWS) continue;
      await this.#move(group);
      group = [];
      rows = 0;
    }
    await this.#move(group);
    this.#forgetRemoved();
    await this.#deleteExpired();
  }

  #settled(files: readonly FolderFile[]): FolderFile[] {
    const nowMs = this.#clock.monotonicMs();
    const seen = new Map<string, FolderFile & { sinceMs: number }>();
    for (const file of files) {
      const before = this.#seen.get(file.name);
      seen.set(file.name, { ...file, sinceMs: before && isSameFile(before, file) ? before.sinceMs : nowMs });
    }
    this.#seen = seen;
    return files.filter(({ name }) => nowMs - seen.get(name)!.sinceMs >= this.#context.spec.settleMs);
  }

  /** Returns `undefined` if the file is currently unreadable. */
  async #read(file: FolderFile): Promise<ReadFile | undefined> {
    const known = this.#known.get(file.name);
    const progress = known && isSameFile(known, file) ? known : initialProgress(file);
    this.#known.set(file.name, progress);
    try {
      if (!progress.isRead) await this.#readWhole(file, progress);
      this.#reports.readable(file.name);
      return { file, progress };
    } catch (error) {
      if (error instanceof UnreadableValues) {
        this.#context.gate.status.reject(`${plain(file.name)}: ${error.message}`);
        return { file, progress, failure: error.message };
      }
      if (!(error instanceof FolderFailure) || error.isLost) throw error;
      this.#reports.unreadable(file.name, error);
      return undefined;
    }
  }

  async #readWhole({ name, size }: FolderFile, progress: FileProgress): Promise<void> {
    const { gate, folder, noteOf } = this.#context;
    const file = await folder.open('', name);
    try {
      const hasRows = await readRows(this.#context, { file, name }, progress, size, true);
      if (!hasRows) throw new UnreadableValues('the file is empty');
      progress.isRead = true;
      gate.note(noteOf(name, progress));
    } finally {
      await file.close();
    }
  }

  async #move(group: readonly ReadFile[]): Promise<void> {
    if (group.length === 0) return;
    const { spec, folder, gate, noteOf, signal } = this.#context;
    await committed(this.#context);
    for (const { file, progress, failure } of group) {
      signal.throwIfAborted();
      const { name } = file;
      const to = failure !== undefined || (progress.values === 0 && progress.refused > 0) ? 'failed' : 'done';
      try {
        const movedTo = await folder.finish(file, to, reportText(name, progress, failure, spec.time.zone));
        if (movedTo !== undefined) this.#reports.finished(name, progress, failure, movedTo);
      } catch (error) {
        if (!(error instanceof FolderFailure) || error.isLost) throw error;
        // The values are stored, so the file is not read again even if it cannot be moved.
        progress.isRead = true;
        this.#reports.notMoved(name, progress, error);
        continue;
      }
      this.#known.delete(name);
      this.#seen.delete(name);
      // The note is removed from disk with the next commit. After a restart before that commit, the note refers to a
      // missing file.
      gate.note(noteOf(name));
    }
  }

  /** Discards the progress of files that other users removed or moved. */
  #forgetRemoved(): void {
    const removed = [...this.#known.keys()].filter((name) => !this.#seen.has(name));
    for (const name of removed) this.#known.delete(name);
    this.#context.gate.note(...removed.map((name) => this.#context.noteOf(name)));
  }

  async #deleteExpired(): Promise<void> {
    const { spec, folder } = this.#context;
    const nowMs = this.#clock.monotonicMs();
    if (spec.keepMs === 0 || nowMs < this.#cleanUpAtMs) return;
    const isComplete = await folder.deleteExpired(spec.keepMs, this.#clock.wallMs()).catch((error: unknown) => {
      // If `done/` is inaccessible, the next failed move to it is reported.
      if (!(error instanceof FolderFailure) || error.isLost) throw error;
      return true;
    });
    if (isComplete) this.#cleanUpAtMs = nowMs + CLEAN_UP_EVERY_MS;
  }
}
