/**
 * A folder to which a data logger or another machine writes files. A complete file has not changed for `settle`; it is
 * read and moved. With `tail`, growing files are read as lines are appended, across rotations.
 *
 *   listed ── settled ──► read ──► on disk ──► moved to done/ or failed/ ── settled ──► checked again
 *   listed ── changed ──► read ──► listed again, or renamed: read to the end before its successor
 *
 * The position in each file is a note in the commit of its values, so that a crash neither duplicates nor loses rows.
 * Many small files share a commit: files are read until the gate is full, and are moved when their values are on disk. If
 * the folder or the store fails, all state in memory is discarded and reading resumes from the notes on disk. After a
 * crash before a commit, the rows of that commit are read again. After a crash following the commit, only the move of the
 * file remains. Positions of files that are no longer listed are kept, because their share may be mounted again.
 */
import { createHash } from 'node:crypto';
import { parse } from 'node:path';
import { type Clock, raced } from '../../base/clock.ts';
import { codeOf, StoreError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Note } from '../../buffer/client/notes.ts';
import type { Reading } from '../intake/gate.ts';
import { formatFor, missingOffset, missingZoneOfRow, TimeReader, UNITS } from '../intake/logger-time.ts';
import { UnreadableValues } from '../intake/problem-list.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';
import {
  addProblem,
  type CsvSpec,
  type CsvValue,
  FileColumns,
  type FileProgress,
  initialProgress,
  parseProgress,
  readColumns,
  reportText,
  textOfUnused,
} from './columns.ts';
import { BYTES_BEFORE, CsvReader } from './csv.ts';
import { FileReports } from './file-reports.ts';
import { type FolderFile, isSameFile, type OpenedFile } from './folder.ts';
import { CHUNK_BYTES, type Folder, FolderFailure, Folders } from './folders.ts';

const MAX_SCAN_MS = 5_000;
const TAIL_SCAN_MS = 1_000;
const MIN_SCAN_MS = 50;
/** Minimum retry delay after a failure. */
const MIN_RETRY_MS = 1_000;
const CLEAN_UP_EVERY_MS = 3_600_000;
/** Maximum number of files that are read before the first of them is moved. */
const MAX_UNMOVED = 1_000;
/** Maximum number of positions in files that are no longer listed: as many as files are listed. */
const MAX_VANISHED = 10_000;
/** Text that a rotation adds to a name. Files with other additions belong to other sources. */
const ROTATION = /^[._-](?:old|bak|\d[\dTZ:+._-]*)$/;
const NOTE = 'file/';
const CARRIED = 'carried';

interface KnownFile {
  progress: FileProgress;
  /** Monotonic time since which a complete file has not changed. */
  sinceMs: number;
  /** Set once the header has been read. */
  columns?: FileColumns;
  /** Resolves when all accepted rows are on disk. */
  stored?: Promise<void>;
  /** Attributes of a growing file when it was last read. */
  seen?: FolderFile;
  /** Columns of a growing file before it was truncated. */
  previous?: FileColumns | undefined;
}

export class CsvSource implements RunningSource {
  readonly #context: SourceContext<CsvSpec, CsvValue>;
  readonly #clock: Clock;
  readonly #spec: CsvSpec;
  readonly #time: TimeReader;
  readonly #stopping = new AbortController();
  readonly #folder: Folder;
  readonly #reports: FileReports;
  #running: Promise<void> | undefined;
  /** Files by identity. */
  readonly #files = new Map<string, KnownFile>();
  /** Time of the last row of the previous complete file, if it is ambiguous (DST change). Also stored in a note. */
  #carriedMs: number | undefined;
  /** Whether the notes on disk have been read. */
  #isResumed = false;
  #cleanUpAtMs = 0;

  constructor(context: SourceContext<CsvSpec, CsvValue>) {
    const { source, clock, log, shared, status } = context;
    this.#context = context;
    this.#clock = clock;
    this.#spec = source.spec;
    this.#time = new TimeReader(source.spec.time);
    this.#folder = shared.get('csv', () => new Folders(clock)).open(source.spec.folder, this.#stopping.signal);
    this.#reports = new FileReports(status, source.spec.folder, clock, log);
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
    const { pattern, tail } = this.#spec;
    const { files, readOnly } = await this.#folder.call('list', '', pattern);
    if (!this.#isResumed) await this.#resume();
    // Files that no value reads stay where they are, so that a source can be added and scanned first.
    if (this.#context.points.length > 0) {
      await (tail ? this.#readGrowing(files) : this.#readComplete(files));
      this.#forgetVanished(files);
    }
    // A folder that is read-only is reported before the first file has to be moved.
    this.#reports.folderRead(new Set(files.map(({ name }) => name)), tail ? undefined : readOnly);
  }

  /** Resumes from the positions on disk. */
  async #resume(): Promise<void> {
    const { signal } = this.#stopping;
    await raced(this.#context.gate.write([]), signal).catch(() => signal.throwIfAborted());
    this.#files.clear();
    this.#carriedMs = undefined;
    for (const [note, text] of await this.#context.notes()) {
      if (note === CARRIED) this.#carriedMs = Number(text);
      const progress = note.startsWith(NOTE) ? parseProgress(text) : undefined;
      if (progress) this.#files.set(progress.identity, { progress, sinceMs: this.#clock.monotonicMs() });
    }
    this.#isResumed = true;
  }

  #forgetVanished(listed: readonly FolderFile[]): void {
    const identities = new Set(listed.map(({ identity }) => identity));
    const vanished = [...this.#files.values()].filter(({ progress }) => !identities.has(progress.identity));
    vanished.sort((one, other) => one.progress.mtimeMs - other.progress.mtimeMs);
    for (const file of vanished) delete file.columns;
    for (const file of vanished.slice(0, -MAX_VANISHED)) this.#forget(file);
  }

  /** Reads the files that have not changed for `settle` until the gate is full, and then moves them together. */
  async #readComplete(listed: readonly FolderFile[]): Promise<void> {
    const nowMs = this.#clock.monotonicMs();
    let read: KnownFile[] = [];
    for (const file of listed) {
      let known = this.#files.get(file.identity);
      const isKnown = known && isSameFile(known.progress, file) && known.progress.movedTo === undefined;
      if (known === undefined || !isKnown) known = this.#remember(file);
      known.progress.name = file.name;
      if (nowMs - known.sinceMs < this.#spec.settleMs) continue;
      const settled = known;
      await this.#isolate(file.name, async () => {
        await this.#readWhole(settled);
        read.push(settled);
      });
      if (read.length < MAX_UNMOVED && !this.#context.gate.isFull) continue;
      await this.#moveAll(read);
      read = [];
    }
    await this.#moveAll(read);
    for (const file of [...this.#files.values()]) {
      if (file.progress.movedTo !== undefined && nowMs - file.sinceMs >= this.#spec.settleMs)
        await this.#checkMovedFile(file);
    }
    await this.#deleteExpired();
  }

  /** Reads rows that a writer appended after the file was moved, because the writer kept the file open. */
  async #checkMovedFile(file: KnownFile): Promise<void> {
    const { progress } = file;
    const { movedTo = '', size, position, line, rows, values, refused } = progress;
    const where = movedTo.startsWith('done/') ? 'done' : 'failed';
    const moved = { ...progress, name: movedTo.slice(where.length + 1), where } as const;
    try {
      const added = this.#folder.chunks(moved, size, Number.MAX_SAFE_INTEGER);
      for await (const chunk of added) progress.size += chunk.length;
      if (progress.size === size) return this.#forget(file);
      file.sinceMs = this.#clock.monotonicMs();
      await this.#readRows(file, { ...moved, size: progress.size }, false);
      if (progress.position === position) return;
      const found = {
        rows: progress.rows - rows,
        values: progress.values - values,
        refused: progress.refused - refused,
      };
      this.#reports.grown(movedTo, line, found);
    } catch (error) {
      if (error instanceof FolderFailure && error.isLost) throw error;
      if (!(error instanceof FolderFailure || error instanceof UnreadableValues)) throw error;
      this.#forget(file);
    }
  }

  async #readWhole(file: KnownFile): Promise<void> {
    const { progress } = file;
    if (progress.isRead) return;
    if (progress.position === 0) {
      // If the file is read again, ambiguous times are resolved as in the first pass.
      if (progress.carriedMs === undefined) progress.carriedMs = this.#carriedMs ?? null;
      progress.afterMs = progress.carriedMs ?? undefined;
    }
    try {
      await this.#readRows(file, progress, true);
      if (file.columns === undefined) throw new UnreadableValues('the file is empty');
      this.#checkZone(file.columns, progress.mtimeMs);
      const { unused, values, refused } = progress;
      if (unused !== undefined && values + refused === 0) throw new UnreadableValues(textOfUnused(unused));
    } catch (error) {
      if (!(error instanceof UnreadableValues)) throw error;
      progress.failure = error.message;
      this.#context.status.reject(plain(`${progress.name}: ${error.message}`));
    }
    progress.isRead = true;
    delete file.columns;
    file.stored = this.#context.gate.write([], [this.#noteOf(progress), ...this.#carry(progress.afterMs)]);
  }

  /** Stores the time of the last row for the next file. Returns the note, if it changed. */
  #carry(afterMs: number | undefined): Note[] {
    const carriedMs = afterMs !== undefined && this.#time.isRepeated(afterMs) ? afterMs : undefined;
    if (carriedMs === this.#carriedMs) return [];
    this.#carriedMs = carriedMs;
    return [{ name: this.#nameOf(CARRIED), text: carriedMs === undefined ? undefined : String(carriedMs) }];
  }

  async #moveAll(read: readonly KnownFile[]): Promise<void> {
    for (const file of read) {
      const { progress, stored } = file;
      if (stored) await raced(stored, this.#stopping.signal);
      const isRejected = progress.failure !== undefined || (progress.values === 0 && progress.refused > 0);
      const report = reportText(progress, this.#spec.time.zone);
      try {
        const to = isRejected ? 'failed' : 'done';
        const movedTo = await this.#folder.call('move', progress, to, report);
        // The file was changed or removed, or its share is no longer mounted. The next scan detects the case.
        if (movedTo === undefined) continue;
        this.#reports.finished(progress, movedTo);
        progress.movedTo = movedTo;
        file.sinceMs = this.#clock.monotonicMs();
        this.#context.gate.record([], [this.#noteOf(progress)]);
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
    const deleting = this.#folder.call('deleteExpired', this.#clock.wallMs() - keepMs);
    const isComplete = await deleting.catch((error: unknown) => {
      // If `done/` is inaccessible, the next failed move to it is reported.
      if (!(error instanceof FolderFailure) || error.isLost) throw error;
      return true;
    });
    if (isComplete) this.#cleanUpAtMs = nowMs + CLEAN_UP_EVERY_MS;
  }

  async #readGrowing(listed: readonly FolderFile[]): Promise<void> {
    for (const { name, identity } of listed) {
      const known = this.#files.get(identity);
      if (known) known.progress.name = name;
    }
    for (const file of listed) await this.#isolate(file.name, () => this.#follow(file, listed));
  }

  async #follow(file: FolderFile, listed: readonly FolderFile[]): Promise<void> {
    let known = this.#files.get(file.identity);
    const isNew = known === undefined;
    const rotated = [...this.#files.values()].filter(
      ({ progress }) => progress.name === file.name && progress.identity !== file.identity,
    );
    if (rotated.length > 0) await this.#readRotated(file.name, rotated, isNew ? listed : undefined);
    if (known === undefined) {
      known = this.#remember(file);
      known.progress.afterMs = rotated.at(-1)?.progress.afterMs;
      // After a crash, the note of each file is used to find the files that were rotated after it. Therefore, write the
      // note of this file before the notes of its predecessors are deleted.
      this.#context.gate.record([], [this.#noteOf(known.progress)]);
    }
    if (known.seen && isSameFile(known.seen, file)) return;
    if (!(await this.#readLines(known, file, false))) {
      this.#reports.rewritten(known.progress);
      const { columns, progress } = known;
      known = this.#remember(file);
      if (progress.headerProblem === undefined) known.previous = columns;
      await this.#readLines(known, file, false);
    }
    if (known.columns) this.#checkZone(known.columns, file.mtimeMs);
    known.seen = file;
  }

  /** Reports times that are probably local although the source has no time zone. */
  #checkZone(columns: FileColumns, writtenMs: number): void {
    const { latest } = columns;
    columns.latest = undefined;
    if (latest === undefined || !this.#time.isLocal(latest.text)) return;
    const problem = missingZoneOfRow(latest.text, latest.timeMs, writtenMs);
    if (problem !== undefined) this.#context.gate.reportMissingZone(problem);
  }

  /**
   * Reads rotated files to their end, until they have not grown for `settle`, because the writer may keep a renamed
   * file open. `listed` is set if a new file with this name appeared. In this case, files that were rotated while the
   * agent was stopped are also read.
   */
  async #readRotated(name: string, old: KnownFile[], listed: readonly FolderFile[] | undefined): Promise<void> {
    const nowMs = this.#clock.monotonicMs();
    const { files } = await this.#folder.call('list', '', '*');
    if (listed) {
      for (const file of old) file.sinceMs = nowMs;
      const sinceMs = Math.min(...old.map(({ progress }) => progress.mtimeMs));
      for (const file of files) {
        const isRotated = isRotatedName(file.name, name) && file.mtimeMs > sinceMs;
        const isOther = this.#files.has(file.identity) || listed.some(({ identity }) => identity === file.identity);
        if (isRotated && !isOther) old.push(this.#remember({ ...file, name }));
      }
    }
    for (const known of old) {
      const { progress } = known;
      const { position } = progress;
      const found = files.find(({ identity }) => identity === progress.identity);
      const isSettled = nowMs - known.sinceMs >= this.#spec.settleMs;
      try {
        const file = found ?? { ...progress, size: Number.MAX_SAFE_INTEGER };
        const isComplete = await this.#readLines(known, file, isSettled);
        if (!isComplete) this.#reports.rotatedAway(progress);
        if (progress.position > position) known.sinceMs = nowMs;
        else if (isSettled || !isComplete) this.#forget(known);
      } catch (error) {
        // The next scan finds a file that was renamed after it was listed.
        if (codeOf(error) === 'ENOENT' && found) throw error;
        if (codeOf(error) === 'ENOENT') this.#reports.rotatedAway(progress);
        else if (error instanceof UnreadableValues) this.#reports.unreadable(name, error);
        else throw error;
        this.#forget(known);
      }
    }
  }

  /** Like `#readRows`. With `isFinal`, a last line without a line feed is not going to be completed. */
  async #readLines(known: KnownFile, file: FolderFile, isFinal: boolean): Promise<boolean> {
    const { progress } = known;
    const { refused } = progress;
    progress.mtimeMs = Math.max(progress.mtimeMs, file.mtimeMs);
    const isRead = await this.#readRows(known, file, isFinal);
    if (progress.refused > refused) this.#reports.refused(progress, progress.refused - refused);
    progress.problems = [];
    return isRead;
  }

  /**
   * Passes all rows from the position to the end of the listed file to the gate, and reads no further while the gate is
   * full. With `isFinal`, includes a last row without a line feed. Returns `false` if a growing file no longer contains
   * what was read before.
   */
  async #readRows(file: KnownFile, listed: FolderFile & Pick<OpenedFile, 'where'>, isFinal: boolean): Promise<boolean> {
    const { gate, source, status, isTest } = this.#context;
    const spec = this.#spec;
    const { progress } = file;
    const { position } = progress;
    const isKept = spec.tail && !isTest;
    const chunks = (from: number, end: number) => this.#folder.chunks({ ...listed, isKept }, from, end);
    if (listed.size < position) return false;
    let first: Uint8Array = new Uint8Array();
    let before = first;
    if (spec.tail) {
      for await (const chunk of chunks(0, Math.min(BYTES_BEFORE, listed.size))) first = chunk;
      for await (const chunk of chunks(Math.max(0, position - BYTES_BEFORE), position)) before = chunk;
      if (progress.mark !== undefined && progress.mark !== markOf(first, before, position)) return false;
    }
    if (file.columns === undefined) {
      const columns = await this.#columnsOf(file, chunks(0, listed.size), isFinal);
      if (columns === undefined) return true;
      file.columns = columns;
      if (position === 0) for (const problem of columns.missing) addProblem(progress, 1, problem);
    }
    const { columns } = file;
    if (position === 0) progress.rowsToSkip = spec.hasHeader && progress.header === undefined ? 1 + spec.unitsRow : 0;
    const reader = new CsvReader({ ...spec, ...progress, separator: columns.separator, before });
    const msOfUnit = UNITS[spec.time.format ?? ''];
    const problemOfTime = (timeMs: number) => gate.problemOfTime(timeMs, msOfUnit, formatFor);
    const accept = (chunk?: Uint8Array) => {
      const readings: Reading[] = [];
      for (const record of reader.read(chunk)) {
        const problem = columns.read(record, progress, readings, problemOfTime);
        if (problem !== undefined) status.reject(plain(`${progress.name}: line ${record.line}: ${problem}`));
      }
      const { latest } = columns;
      if (isTest && latest && source.timeFrom === 'source' && this.#time.isLocal(latest.text)) {
        warnOfZone(readings, latest.text);
      }
      for (const reading of readings) {
        if (!('failure' in reading)) continue;
        status.recordRejected(plain(`${progress.name}: ${reading.point.name}: ${reading.failure}`));
      }
      if (reader.position === progress.position) return;
      progress.position = reader.position;
      progress.line = reader.line;
      progress.isInside = reader.isInside || undefined;
      if (spec.tail) progress.mark = markOf(first, reader.before, reader.position);
      file.stored = gate.write(readings, [this.#noteOf(progress)]);
    };
    for await (const chunk of chunks(position, listed.size)) {
      accept(chunk);
      this.#stopping.signal.throwIfAborted();
      if (gate.isFull) await raced(gate.untilRoom(), this.#stopping.signal);
    }
    if (isFinal) accept();
    return true;
  }

  async #columnsOf(
    { progress, previous }: KnownFile,
    chunks: AsyncIterable<Uint8Array>,
    isComplete: boolean,
  ): Promise<FileColumns | undefined> {
    const { points } = this.#context;
    const { header } = progress;
    if (header) return new FileColumns(this.#spec, this.#time, points, header.names, header.separator);
    const columns = await readColumns(this.#spec, this.#time, points, chunks, isComplete, previous);
    if (columns && columns === previous) progress.header = { names: columns.names, separator: columns.separator };
    return columns;
  }

  /** Reads the beginning of the newest file, for a test. */
  async #readNewest(): Promise<void> {
    const { status } = this.#context;
    try {
      const file = await this.#folder.newest(this.#spec.pattern);
      const size = Math.min(file.size, CHUNK_BYTES);
      const progress = initialProgress(file);
      await this.#readRows({ progress, sinceMs: 0 }, { ...file, size }, size === file.size);
      status.connect();
      const { problems, unused } = progress;
      const missing = unused === undefined ? 'the value is not in the first rows' : textOfUnused(unused);
      status.problem = plain(`${file.name}: ${problems[0] ?? missing}`);
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

  #remember(file: FolderFile): KnownFile {
    const remembered = { progress: initialProgress(file), sinceMs: this.#clock.monotonicMs() };
    const { carriedMs } = this.#files.get(file.identity)?.progress ?? {};
    if (carriedMs !== undefined) remembered.progress.carriedMs = carriedMs;
    this.#files.set(file.identity, remembered);
    return remembered;
  }

  /** Deletes the note of a file with the next commit. Before that commit, the note refers to a missing file. */
  #forget({ progress }: KnownFile): void {
    const { identity } = progress;
    this.#files.delete(identity);
    this.#context.gate.record([], [{ ...this.#noteOf(progress), text: undefined }]);
    if (this.#spec.tail) this.#folder.call('release', identity).catch(() => {});
  }

  #noteOf(progress: FileProgress): Note {
    return { name: this.#nameOf(`${NOTE}${progress.identity}`), text: JSON.stringify(progress) };
  }

  #nameOf(note: string): string {
    return `source/${this.#context.source.name}/${note}`;
  }
}

/** Adds a warning to the first value that a test reads. */
function warnOfZone(readings: readonly Reading[], text: string): void {
  const first = readings.find((reading) => 'raw' in reading);
  if (first) first.warning = missingOffset(text, 'is read as UTC');
}

/** Returns whether a file was renamed from `name` to `other`: `a.csv.1`, `a.csv.old`, `a-20261128.csv` or `a.1.csv`. */
function isRotatedName(other: string, name: string): boolean {
  if (other.startsWith(name)) return ROTATION.test(other.slice(name.length));
  const { name: stem, ext } = parse(name);
  return other.startsWith(stem) && other.endsWith(ext) && ROTATION.test(other.slice(stem.length, -ext.length));
}

/** Returns a hash of the first bytes of a file and those before a position. */
function markOf(first: Uint8Array, before: Uint8Array, position: number): string {
  return createHash('sha256').update(first.subarray(0, position)).update(before).digest('base64');
}
