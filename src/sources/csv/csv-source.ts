/**
 * A folder to which a data logger or another machine writes files. A complete file has not changed for `settle`; it is
 * read and moved. With `tail`, growing files are read as lines are appended, across rotations.
 *
 *   listed ── settled ──► read ──► on disk ──► moved to done/ or failed/ ── settled ──► checked again
 *   listed ── changed ──► read ──► listed again, or renamed: read to the end before its successor
 *
 * The progress of each file is a note in the commit of its values, so that a crash neither duplicates nor loses rows.
 * Many small files share a commit: files are read until the gate is full, and are moved when their values are on disk. If
 * the folder or the store fails, all state in memory is discarded and reading resumes from the notes on disk. After a
 * crash before a commit, the rows of that commit are read again. After a crash following the commit, only the move of the
 * file remains. Positions of files that are no longer listed are kept, because their share may be mounted again.
 */

import { createHash } from 'node:crypto';
import { counted } from '../../base/amounts.ts';
import { type Clock, raced } from '../../base/clock.ts';
import { codeOf, StoreError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Note } from '../../buffer/client/notes.ts';
import type { Reading } from '../intake/gate.ts';
import { formatFor, missingOffset, missingZoneOfRow, TimeReader, UNITS } from '../intake/logger-time.ts';
import { UnreadableValues } from '../intake/problem-list.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';
import {
  type CsvSpec,
  type CsvValue,
  type FileProgress,
  initialProgress,
  RowReader,
  reportText,
  textOfUnused,
} from './columns.ts';
import { BYTES_BEFORE, CsvReader } from './csv.ts';
import { FileReports } from './file-reports.ts';
import { type FolderFile, isSameFile, originalNameOf } from './folder.ts';
import { CHUNK_BYTES, type Folder, FolderFailure, Folders } from './folders.ts';

const MAX_SCAN_MS = 5_000;
const TAIL_SCAN_MS = 1_000;
const MIN_SCAN_MS = 50;
/** Minimum retry delay after a failure. */
const MIN_RETRY_MS = 1_000;
const CLEAN_UP_EVERY_MS = 3_600_000;
/** Maximum number of positions in files that are no longer listed: as many as files are listed. */
const MAX_VANISHED = 10_000;
/** Maximum length of a header that is kept until a file is checked again, because thousands of files can be waiting. */
const MAX_KEPT_HEADER = 4_096;
/** Maximum number of files that are read before the first one is moved. Limits the memory used by headers. */
const MAX_UNMOVED = 1_000;
/** Size assumed for an unlisted file, so that the file is read to its end. */
const TO_THE_END = Number.MAX_SAFE_INTEGER;
const NOTE = 'file/';
const CARRIED = 'carried';

/** Name below the folder, and the position up to which the file is read. */
type ListedFile = Pick<FolderFile, 'name' | 'size'>;

interface KnownFile {
  progress: FileProgress;
  /** Monotonic time of the latest change. */
  changedMs: number;
}

export class CsvSource implements RunningSource {
  readonly #context: SourceContext<CsvSpec, CsvValue>;
  readonly #clock: Clock;
  readonly #spec: CsvSpec;
  /** Settings that determine how a file is split into cells. */
  readonly #format: string;
  readonly #time: TimeReader;
  readonly #rows: RowReader;
  readonly #stopping = new AbortController();
  readonly #folder: Folder;
  readonly #reports: FileReports;
  #running: Promise<void> | undefined;
  /** Files by identity. */
  readonly #files = new Map<string, KnownFile>();
  /** Time of the final row in the previous complete file, which resolves ambiguous times. Also stored in a note. */
  #carriedMs: number | undefined;
  /** Whether the notes on disk have been read. */
  #isResumed = false;
  #cleanUpAtMs = 0;

  constructor(context: SourceContext<CsvSpec, CsvValue>) {
    const { source, points, gate, clock, log, shared, status } = context;
    const { spec } = source;
    this.#context = context;
    this.#clock = clock;
    this.#spec = spec;
    this.#format = JSON.stringify([spec.separator, spec.encoding, spec.skipLines, spec.hasHeader, spec.unitsRow]);
    this.#time = new TimeReader(spec.time);
    const msOfUnit = UNITS[spec.time.format ?? ''];
    const problemOfTime = (timeMs: number) => gate.problemOfTime(timeMs, msOfUnit, formatFor);
    this.#rows = new RowReader(spec, this.#time, points, problemOfTime);
    this.#folder = shared.get('csv', () => new Folders(clock)).open(spec.folder, this.#stopping.signal);
    this.#reports = new FileReports(status, spec.folder, clock, log);
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
    const { files, readOnly } = await this.#folder.call('list', '', pattern, tail);
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
      if (!note.startsWith(NOTE)) continue;
      const progress = JSON.parse(text) as FileProgress;
      this.#files.set(progress.identity, { progress, changedMs: this.#clock.monotonicMs() });
    }
    this.#isResumed = true;
  }

  #forgetVanished(listed: readonly FolderFile[]): void {
    const identities = new Set(listed.map(({ identity }) => identity));
    const vanished = [...this.#files.values()].filter(({ progress }) => !identities.has(progress.identity));
    vanished.sort((one, other) => one.progress.mtimeMs - other.progress.mtimeMs);
    for (const file of vanished.slice(0, -MAX_VANISHED)) this.#forget(file);
  }

  /** Reads the files that have not changed for `settle` until the gate is full, and then moves them together. */
  async #readComplete(listed: readonly FolderFile[]): Promise<void> {
    const read: KnownFile[] = [];
    for (const file of listed) {
      const known = this.#remember(file);
      if (!this.#isSettled(known)) continue;
      await this.#isolate(file.name, async () => {
        await this.#readWhole(known);
        read.push(known);
      });
      if (read.length >= MAX_UNMOVED || this.#context.gate.isFull) await this.#moveAll(read.splice(0));
    }
    await this.#moveAll(read);
    for (const file of [...this.#files.values()]) {
      if (file.progress.movedTo !== undefined && this.#isSettled(file)) await this.#checkMovedFile(file);
    }
    await this.#cleanUp();
  }

  async #readWhole(file: KnownFile): Promise<void> {
    if (file.progress.isRead) return;
    try {
      await this.#readRows(file, file.progress, true);
      const { names, unused, values, refused } = file.progress;
      if (names === undefined) throw new UnreadableValues('the file is empty');
      if (unused !== undefined && values + refused === 0) throw new UnreadableValues(textOfUnused(unused));
    } catch (error) {
      if (!(error instanceof UnreadableValues)) throw error;
      file.progress.failure = error.message;
      this.#context.status.reject(plain(`${file.progress.name}: ${error.message}`));
    }
    const { progress } = file;
    progress.isRead = true;
    if (progress.names !== undefined && progress.names.join().length > MAX_KEPT_HEADER) {
      // Without the header, the file would have to be read from its beginning.
      delete progress.names;
      progress.mark = '';
    }
    this.#carriedMs = progress.afterMs;
    const carried = { name: this.#nameOf(CARRIED), text: progress.afterMs?.toString() };
    this.#context.gate.record([], [this.#noteOf(progress), carried]);
  }

  /** Moves files when their values are on disk. */
  async #moveAll(read: readonly KnownFile[]): Promise<void> {
    if (read.length > 0) await raced(this.#context.gate.write([]), this.#stopping.signal);
    for (const file of read) {
      const { progress } = file;
      const isRejected = progress.failure !== undefined || (progress.values === 0 && progress.refused > 0);
      const report = reportText(progress, this.#spec.time.zone);
      try {
        const movedTo = await this.#folder.call('move', progress, isRejected ? 'failed' : 'done', report);
        // The file was changed or removed, or its share is no longer mounted. The next scan detects the case.
        if (movedTo === undefined) continue;
        progress.movedTo = movedTo;
        this.#reports.finished({ ...progress, movedTo });
        file.changedMs = this.#clock.monotonicMs();
        this.#context.gate.record([], [this.#noteOf(progress)]);
      } catch (error) {
        if (!isOfFile(error)) throw error;
        this.#reports.notMoved(progress, error);
      }
    }
  }

  /** Reads rows that a writer appended after the file was moved, because the writer kept the file open. */
  async #checkMovedFile(file: KnownFile): Promise<void> {
    const { position, line, movedTo = '' } = file.progress;
    try {
      const added = await this.#readRows(file, { name: movedTo, size: TO_THE_END }, false);
      if (file.progress.position === position) return this.#forget(file);
      file.changedMs = this.#clock.monotonicMs();
      this.#context.status.errors += added.refused;
      const message = 'file grew after it was moved, added rows read';
      this.#reports.warn(movedTo, { event: 'csv.grown', line, ...added }, message);
      const text = `Added after the file was moved: ${counted(added.rows, 'row')}, ${counted(added.values, 'value')} stored.\n`;
      await this.#folder.call('appendToReport', movedTo, text);
    } catch (error) {
      if (!isOfFile(error)) throw error;
      this.#forget(file);
    }
  }

  /** Deletes expired files, and reports files that have grown since they were checked. */
  async #cleanUp(): Promise<void> {
    const { keepMs } = this.#spec;
    const nowMs = this.#clock.monotonicMs();
    if (nowMs < this.#cleanUpAtMs) return;
    const expiredMs = keepMs === 0 ? 0 : this.#clock.wallMs() - keepMs;
    const unchecked = [...this.#files.values()].flatMap(({ progress }) => progress.movedTo ?? []);
    try {
      const { isComplete, grown } = await this.#folder.call('cleanUp', expiredMs, unchecked);
      for (const name of grown) this.#reports.missed(name);
      if (isComplete) this.#cleanUpAtMs = nowMs + CLEAN_UP_EVERY_MS;
    } catch (error) {
      // If `done/` is inaccessible, the next failed move to it is reported.
      if (!isOfFile(error)) throw error;
      this.#cleanUpAtMs = nowMs + CLEAN_UP_EVERY_MS;
    }
  }

  /** `listed`: growing files, and those whose names result from a rotation. */
  async #readGrowing(listed: readonly FolderFile[]): Promise<void> {
    const current = listed.filter(({ isRotated }) => !isRotated);
    for (const { name, identity } of current) {
      const known = this.#files.get(identity);
      if (known) known.progress.name = name;
    }
    for (const file of current) await this.#isolate(file.name, () => this.#follow(file, listed));
  }

  async #follow(file: FolderFile, listed: readonly FolderFile[]): Promise<void> {
    const isNew = !this.#files.has(file.identity);
    const rotated = [...this.#files.values()].filter(
      ({ progress }) => progress.name === file.name && progress.identity !== file.identity,
    );
    if (isNew && rotated.length > 0) rotated.push(...this.#rotatedMeanwhile(file.name, rotated, listed));
    for (const each of rotated) await this.#readRotated(each, listed);
    const known = this.#remember(file);
    if (isNew) {
      known.progress.afterMs = rotated.at(-1)?.progress.afterMs;
      // After a crash, the note of each file is used to find the files that were rotated after it. Therefore, write the
      // note of this file before the notes of its predecessors are deleted.
      this.#context.gate.record([], [this.#noteOf(known.progress)]);
    }
    if (known.progress.isRead) return;
    await this.#readLines(known, file, false);
    known.progress.isRead = true;
  }

  /** Returns the files that were created and rotated while the agent was stopped, oldest first. */
  #rotatedMeanwhile(name: string, rotated: readonly KnownFile[], listed: readonly FolderFile[]): KnownFile[] {
    const sinceMs = Math.min(...rotated.map(({ progress }) => progress.mtimeMs));
    for (const file of rotated) file.changedMs = this.#clock.monotonicMs();
    return listed
      .filter((file) => file.isRotated && originalNameOf(file.name) === name && file.mtimeMs > sinceMs)
      .filter(({ identity }) => !this.#files.has(identity))
      .map((file) => this.#remember({ ...file, name }));
  }

  /**
   * Reads a rotated file to its end, until it has not grown for `settle`, because the writer may keep a renamed file
   * open.
   */
  async #readRotated(file: KnownFile, listed: readonly FolderFile[]): Promise<void> {
    const { position, identity, name, line } = file.progress;
    const found = listed.find((each) => each.identity === identity);
    const isSettled = this.#isSettled(file);
    try {
      await this.#readLines(file, found ?? { name, size: TO_THE_END }, isSettled);
      if (file.progress.position > position) file.changedMs = this.#clock.monotonicMs();
      else if (isSettled) this.#forget(file);
    } catch (error) {
      // The next scan finds a file that was renamed after it was listed.
      if (codeOf(error) === 'ENOENT' && found) throw error;
      const message = 'rotated file was removed, any rows from this line on are lost';
      if (codeOf(error) === 'ENOENT') this.#reports.warn(name, { event: 'csv.rotated_away', line }, message);
      else if (error instanceof UnreadableValues) this.#reports.unreadable(name, error);
      else throw error;
      this.#forget(file);
    }
  }

  /** Like `#readRows`. With `isFinal`, a last line without a line feed is not going to be completed. */
  async #readLines(file: KnownFile, listed: ListedFile, isFinal: boolean): Promise<void> {
    const { refused } = await this.#readRows(file, listed, isFinal);
    if (refused > 0) this.#reports.refused(file.progress, refused);
    file.progress.problems = [];
  }

  /**
   * Passes all rows from the position to the end of the listed file to the gate, and reads no further while the gate is
   * full. With `isFinal`, includes a final row without a line feed. A rewritten file is read from its beginning. Returns
   * the numbers of rows, values and rejections.
   */
  async #readRows(file: KnownFile, listed: ListedFile, isFinal: boolean) {
    const { gate, source, status, isTest } = this.#context;
    const spec = this.#spec;
    const { position: start, mark, format, name, line, movedTo, identity } = file.progress;
    const opened = { name: listed.name, identity, isKept: spec.tail && !isTest };
    const length = Math.min(start, BYTES_BEFORE);
    let before = length === 0 ? new Uint8Array() : await this.#folder.call('read', opened, start - length, length);
    if (mark !== undefined && (mark !== markOf(before) || format !== this.#format)) {
      if (movedTo !== undefined) throw new UnreadableValues('the file was rewritten after it was moved');
      this.#reports.warn(name, { event: 'csv.cut', line }, 'file or its format changed, reading it from the beginning');
      file.progress = restarted(file.progress, this.#format);
      before = new Uint8Array();
    }
    const { progress } = file;
    const { rows, values, refused } = progress;
    if (progress.position === 0 && !spec.tail) {
      // If the file is read again, ambiguous times are resolved as in the first pass.
      if (progress.carriedMs === undefined) progress.carriedMs = this.#carriedMs ?? null;
      progress.afterMs = progress.carriedMs ?? undefined;
    }
    const reader = new CsvReader({ ...progress, ...spec, separator: spec.separator ?? progress.separator, before });
    const chunks = this.#folder.chunks(opened, progress.position, listed.size);
    for await (const records of reader.batches(chunks, isFinal)) {
      const readings: Reading[] = [];
      for (const record of records) {
        const problem = this.#rows.read(record, progress, readings);
        if (problem !== undefined) status.reject(plain(`${progress.name}: line ${record.line}: ${problem}`));
      }
      const { latest } = progress;
      if (isTest && latest && source.timeFrom === 'source' && this.#time.isLocal(latest.text)) {
        const first = readings.find((reading) => 'raw' in reading);
        if (first) first.warning = missingOffset(latest.text, 'is read as UTC');
      }
      for (const reading of readings) {
        if (!('failure' in reading)) continue;
        status.recordRejected(plain(`${progress.name}: ${reading.point.name}: ${reading.failure}`));
      }
      if (reader.position !== progress.position) {
        const { position, line, isInside, separator, before } = reader;
        Object.assign(progress, { position, line, isInside, separator, mark: markOf(before), format: this.#format });
        gate.record(readings, [this.#noteOf(progress)]);
      }
      this.#stopping.signal.throwIfAborted();
      if (gate.isFull) await raced(gate.untilRoom(), this.#stopping.signal);
    }
    if (!isTest) this.#checkZone(progress);
    return { rows: progress.rows - rows, values: progress.values - values, refused: progress.refused - refused };
  }

  /** Reports times that are probably local although the source has no time zone, or that do not exist in its zone. */
  #checkZone(progress: FileProgress): void {
    const { latest, nonexistent, mtimeMs } = progress;
    progress.latest = undefined;
    progress.nonexistent = undefined;
    if (nonexistent !== undefined) {
      const offset = this.#time.offsetText(nonexistent.timeMs);
      const problem = `timestamp ${JSON.stringify(nonexistent.text)} does not exist in ${this.#spec.time.zone}`;
      const fix = `if the sender does not change to daylight saving time, set zone: "${offset}"`;
      this.#context.gate.status.warn('zoneWrong', plain(`${problem}: ${fix}`));
    }
    if (latest === undefined || !this.#time.isLocal(latest.text)) return;
    const problem = missingZoneOfRow(latest.text, latest.timeMs, mtimeMs);
    if (problem !== undefined) this.#context.gate.reportMissingZone(problem);
  }

  /** Reads the beginning of the newest file, for a test. */
  async #readNewest(): Promise<void> {
    const { status } = this.#context;
    try {
      const file = await this.#folder.newest(this.#spec.pattern);
      const size = Math.min(file.size, CHUNK_BYTES);
      const progress = initialProgress(file);
      await this.#readRows({ progress, changedMs: 0 }, { name: file.name, size }, size === file.size);
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
      if (!isOfFile(error)) throw error;
      // A file that was removed or replaced after it was listed is not a problem.
      if (codeOf(error) !== 'ENOENT') this.#reports.unreadable(name, error);
    }
  }

  #isSettled({ changedMs }: KnownFile): boolean {
    return this.#clock.monotonicMs() - changedMs >= this.#spec.settleMs;
  }

  /** Returns a listed file. A file that was moved back to the folder is read again. */
  #remember(listed: FolderFile): KnownFile {
    const { name, size, mtimeMs, identity } = listed;
    const changedMs = this.#clock.monotonicMs();
    let known = this.#files.get(identity);
    if (known === undefined || known.progress.movedTo !== undefined) {
      known = { progress: initialProgress({ ...listed, carriedMs: known?.progress.carriedMs }), changedMs };
      this.#files.set(identity, known);
    } else if (!isSameFile(known.progress, listed)) {
      known.changedMs = changedMs;
      Object.assign(known.progress, { size, mtimeMs, isRead: false, failure: undefined });
    }
    known.progress.name = name;
    return known;
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

/** Returns whether an error concerns one file. Other errors concern the folder or the store. */
function isOfFile(error: unknown): boolean {
  return error instanceof UnreadableValues || (error instanceof FolderFailure && !error.isLost);
}

/** Returns the progress of a file that was rewritten. */
function restarted(progress: FileProgress, format: string): FileProgress {
  const hasColumns = progress.headerProblem === undefined && progress.format === format;
  return { ...initialProgress(progress), previousNames: hasColumns ? progress.names : undefined };
}

function markOf(bytesBefore: Uint8Array): string {
  return createHash('sha256').update(bytesBefore).digest('base64');
}
