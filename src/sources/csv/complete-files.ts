/**
 * Files that are complete once they have not changed for `settle`. They are read in groups, oldest first: one commit stores the values of a
 * group, then its files are moved to `done/` or `failed/`.
 *
 *   listed ── settled ──► read ── committed ──► moved ──► forgotten
 *
 * A crash before the commit leaves the position on disk; a crash after it leaves files that are marked as read and only have to be moved.
 */
import type { Clock } from '../../base/clock.ts';
import { plain } from '../../base/foreign-text.ts';
import { UnreadableValues } from '../problem-list.ts';
import { FileColumns } from './file-columns.ts';
import { type FileProgress, freshProgress, noteProblem, reportText } from './file-progress.ts';
import { committed, headOf, type ReadingContext, readRows } from './file-reading.ts';
import type { FileReports } from './file-reports.ts';
import { FolderFailure } from './folder-client.ts';
import { type FolderFile, isSameFile } from './folder-protocol.ts';

const FORGET_EVERY_MS = 3_600_000;
const GROUP_FILES = 500;
const GROUP_ROWS = 20_000;

/** A file that was read, and why not to its end. */
interface ReadFile {
  file: FolderFile;
  progress: FileProgress;
  failure: string | undefined;
}

export class CompleteFiles {
  readonly #context: ReadingContext;
  readonly #reports: FileReports;
  readonly #clock: Clock;
  /** Progress by file name. */
  readonly #known: Map<string, FileProgress>;
  /** By file name, with the monotonic time since which the file has not changed. */
  #seen = new Map<string, FolderFile & { sinceMs: number }>();
  #forgetAtMs = 0;

  constructor(context: ReadingContext, reports: FileReports, clock: Clock, known: Map<string, FileProgress>) {
    this.#context = context;
    this.#reports = reports;
    this.#clock = clock;
    this.#known = known;
  }

  /** Reads and moves what is complete. Rejects if the folder is lost or the store fails for good. */
  async process(files: readonly FolderFile[]): Promise<void> {
    const complete = this.#settled(files);
    let group: ReadFile[] = [];
    let rows = 0;
    for (const file of complete) {
      this.#context.signal.throwIfAborted();
      const read = await this.#read(file);
      if (!read) continue;
      group.push(read);
      rows += read.progress.rows;
      if (group.length < GROUP_FILES && rows < GROUP_ROWS) continue;
      await this.#finish(group);
      group = [];
      rows = 0;
    }
    await this.#finish(group);
    this.#forgetGone();
    await this.#forgetDone();
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

  /** `undefined` if the file cannot be read now. */
  async #read(file: FolderFile): Promise<ReadFile | undefined> {
    const known = this.#known.get(file.name);
    const progress = known && isSameFile(known, file) ? known : freshProgress(file);
    this.#known.set(file.name, progress);
    let failure: string | undefined;
    try {
      if (!progress.isRead) await this.#readWhole(file, progress);
      this.#reports.readable(file.name);
    } catch (error) {
      if (error instanceof UnreadableValues) {
        failure = error.message;
        this.#context.gate.arrivals.reject(`${plain(file.name)}: ${failure}`);
      } else if (error instanceof FolderFailure && !error.isLost) {
        this.#reports.unreadable(file.name, error);
        return undefined;
      } else throw error;
    }
    return { file, progress, failure };
  }

  async #readWhole({ name, size }: FolderFile, progress: FileProgress): Promise<void> {
    const { spec, points, gate, folder, noteOf } = this.#context;
    const file = await folder.open('', name);
    try {
      const head = await headOf(file, spec, size, true);
      if (!head) throw new UnreadableValues('the file is empty');
      const columns = new FileColumns(spec, points, head.first);
      if (progress.position < head.rows.position) {
        Object.assign(progress, head.rows);
        for (const missing of columns.missing) noteProblem(progress, 1, `there is no column of ${missing}`);
      }
      await readRows(this.#context, { file, columns, name }, progress, size, true);
      progress.isRead = true;
      gate.note(noteOf(name, progress));
    } finally {
      await file.close();
    }
  }

  async #finish(group: readonly ReadFile[]): Promise<void> {
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
        // The values are stored: the file is not read again while it cannot be moved.
        progress.isRead = true;
        this.#reports.notMoved(name, progress, error);
        continue;
      }
      this.#known.delete(name);
      this.#seen.delete(name);
      // Goes to disk with the next commit. Until then a restart finds a note of a file that is gone.
      gate.note(noteOf(name));
    }
  }

  /** Files that somebody else removed or moved. */
  #forgetGone(): void {
    const gone = [...this.#known.keys()].filter((name) => !this.#seen.has(name));
    for (const name of gone) this.#known.delete(name);
    this.#context.gate.note(...gone.map((name) => this.#context.noteOf(name)));
  }

  async #forgetDone(): Promise<void> {
    const { spec, folder } = this.#context;
    const nowMs = this.#clock.monotonicMs();
    if (spec.keepMs === 0 || nowMs < this.#forgetAtMs) return;
    this.#forgetAtMs = nowMs + FORGET_EVERY_MS;
    await folder.forget(spec.keepMs, this.#clock.wallMs()).catch((error: unknown) => {
      // If `done/` is not accessible, the next file that cannot be moved there is reported.
      if (!(error instanceof FolderFailure) || error.isLost) throw error;
    });
  }
}
