/**
 * A folder that a data logger or a share fills. Files that are complete are read, oldest first, and moved to `done/` or `failed/`;
 * with `tail` files that grow are followed. How far each file was read goes to the disk with its values.
 */
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { join } from 'node:path';
import { codeOf, messageOf } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Point } from '../points.ts';
import { UnreadableValues } from '../problem-list.ts';
import type { RunningSource, ScanStep, SourceContext, SourceState, TestedValue } from '../source-kind.ts';
import { TroubleLog } from '../trouble-log.ts';
import { scanCsv, testCsv } from './csv-look.ts';
import type { CsvSpec, CsvValue } from './csv-spec.ts';
import { FileColumns } from './file-columns.ts';
import { headOf } from './file-head.ts';
import { type FileProgress, freshProgress, noteProblem, parseProgress, reportText } from './file-progress.ts';
import { readRows } from './file-reading.ts';
import { type Finished, forgetDone, moveFinished } from './finished-files.ts';
import { type FolderFile, filesOf, openFile, patternOf } from './folder-files.ts';
import { folderProblem } from './folder-problem.ts';
import { FollowedFile, rotatedSince } from './followed-file.ts';
import { committed, type ReadingContext } from './reading-context.ts';

const MAX_LOOK_MS = 5_000;
const TAIL_LOOK_MS = 1_000;
const MIN_LOOK_MS = 50;
const FORGET_EVERY_MS = 3_600_000;
const NOTE = 'file/';

export class CsvSource implements RunningSource {
  readonly #context: SourceContext<CsvSpec, CsvValue>;
  readonly #spec: CsvSpec;
  readonly #points: readonly Point<CsvValue>[];
  readonly #trouble: TroubleLog;
  readonly #fits: (name: string) => boolean;
  readonly #stopping = new AbortController();
  readonly #reading: ReadingContext;
  #running: Promise<void> | undefined;
  /** By name: how far it was read. */
  #known = new Map<string, FileProgress>();
  /** By name: since when (monotonic) it is as it is. */
  #seen = new Map<string, FolderFile & { sinceMs: number }>();
  readonly #followed = new Map<string, FollowedFile>();
  #forgetAtMs = 0;
  #connected = false;
  #changedMs: number;
  #problem: { problem: string; hint?: string } | undefined;
  #errors = 0;

  constructor(context: SourceContext<CsvSpec, CsvValue>) {
    const { source, points, gate, clock, log } = context;
    this.#context = context;
    this.#spec = source.spec;
    this.#points = points;
    this.#trouble = new TroubleLog(log, clock);
    this.#fits = patternOf(source.spec.pattern);
    this.#changedMs = clock.monotonicMs();
    this.#reading = {
      spec: source.spec,
      points,
      gate,
      signal: this.#stopping.signal,
      noteOf: (name, progress) => ({
        name: `source/${source.name}/${NOTE}${name}`,
        text: progress === undefined ? undefined : JSON.stringify(progress),
      }),
      sayRefused: (name, progress, refused) => this.#sayRefused(name, progress, refused),
      sayCut: (name, { line }) => {
        log.warn(
          { event: 'csv.cut', source: source.name, file: plain(name), line },
          'a file that grows was written anew; it is read from its beginning',
        );
      },
    };
  }

  start(): void {
    this.#running ??= this.#run(this.#stopping.signal);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
    for (const file of this.#followed.values()) await file.close();
    this.#followed.clear();
  }

  state(): SourceState {
    return {
      connected: this.#connected,
      sinceMs: this.#changedMs,
      ...this.#problem,
      errors: this.#errors,
      pollsLate: 0,
    };
  }

  test(): Promise<TestedValue[]> {
    return testCsv(this.#spec, this.#points);
  }

  scan(): AsyncIterable<ScanStep> {
    return scanCsv(this.#spec);
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { clock } = this.#context;
    const { settleMs, tail } = this.#spec;
    const lookMs = tail ? TAIL_LOOK_MS : Math.max(MIN_LOOK_MS, Math.min(MAX_LOOK_MS, settleMs / 2));
    for (const [name, text] of await this.#context.notes()) {
      const progress = name.startsWith(NOTE) ? parseProgress(text) : undefined;
      if (progress) this.#known.set(name.slice(NOTE.length), progress);
    }
    while (!signal.aborted) {
      try {
        const files = await filesOf(this.#spec.folder, this.#fits);
        this.#setConnected(true);
        if (tail) await this.#follow(files);
        else {
          await this.#demandWritable();
          await this.#takeComplete(files, signal);
        }
      } catch (error) {
        if (signal.aborted) return;
        this.#sayFolder(error);
      }
      await clock.sleep(lookMs, signal).catch(() => {});
    }
  }

  /** Said before the first file is there; files are taken in any case. */
  async #demandWritable(): Promise<void> {
    const { folder } = this.#spec;
    this.#problem = await access(folder, constants.W_OK).then(
      () => undefined,
      (error: unknown) => folderProblem(folder, error),
    );
  }

  async #takeComplete(files: readonly FolderFile[], signal: AbortSignal): Promise<void> {
    const { clock, gate } = this.#context;
    const { folder, settleMs, keepMs } = this.#spec;
    const nowMs = clock.monotonicMs();
    const seen = new Map<string, FolderFile & { sinceMs: number }>();
    const complete: FolderFile[] = [];
    for (const file of files) {
      const before = this.#seen.get(file.name);
      const isSame = before?.size === file.size && before.mtimeMs === file.mtimeMs && before.identity === file.identity;
      const sinceMs = isSame ? before.sinceMs : nowMs;
      seen.set(file.name, { ...file, sinceMs });
      if (nowMs - sinceMs >= settleMs) complete.push(file);
    }
    this.#seen = seen;
    for (const file of complete) {
      signal.throwIfAborted();
      await this.#takeFile(file);
    }
    // What was read and then taken away by others.
    const gone = [...this.#known.keys()].filter((name) => !seen.has(name));
    for (const name of gone) this.#known.delete(name);
    if (gone.length > 0) {
      gate.note(...gone.map((name) => this.#reading.noteOf(name)));
      await committed(this.#reading);
    }
    if (keepMs > 0 && nowMs >= this.#forgetAtMs) {
      this.#forgetAtMs = nowMs + FORGET_EVERY_MS;
      await forgetDone(folder, keepMs, clock.wallMs());
    }
  }

  async #takeFile(found: FolderFile): Promise<void> {
    const known = this.#known.get(found.name);
    const isSame = known?.identity === found.identity && known.size === found.size && known.mtimeMs === found.mtimeMs;
    const progress = isSame ? known : freshProgress(found);
    this.#known.set(found.name, progress);
    let failure: string | undefined;
    if (!progress.isRead) {
      try {
        await this.#readWhole(found, progress);
      } catch (error) {
        if (!(error instanceof UnreadableValues)) throw error;
        failure = error.message;
      }
    }
    await this.#finish(found.name, progress, failure);
  }

  async #readWhole({ name, size }: FolderFile, progress: FileProgress): Promise<void> {
    const { gate } = this.#context;
    const { spec, signal, noteOf } = this.#reading;
    const file = await openFile(join(spec.folder, name));
    try {
      const head = await headOf(file, spec, size, true);
      if (!head) throw new UnreadableValues('the file is empty');
      const columns = new FileColumns(spec, this.#points, head.first);
      if (progress.position < head.rows.position) {
        Object.assign(progress, head.rows);
        for (const missing of columns.missing) noteProblem(progress, 1, `there is no column of ${missing}`);
      }
      await readRows({
        file,
        columns,
        encoding: spec.encoding,
        progress,
        end: size,
        takesRest: true,
        gate,
        noteOf: () => noteOf(name, progress),
        signal,
      });
      progress.isRead = true;
      gate.note(noteOf(name, progress));
      await committed(this.#reading);
    } finally {
      await file.close();
    }
  }

  async #finish(name: string, progress: FileProgress, failure: string | undefined): Promise<void> {
    const { source, gate, log } = this.#context;
    const { rows, values, refused, problems } = progress;
    const to: Finished = failure !== undefined || (values === 0 && refused > 0) ? 'failed' : 'done';
    const fields = { source: source.name, file: plain(name), rows, values, refused };
    const error = plain(failure ?? problems[0] ?? '');
    const { folder, time } = this.#spec;
    let movedTo: string;
    try {
      movedTo = await moveFinished(folder, name, to, reportText(name, progress, failure, time.zone));
      this.#trouble.over('csv.not_moved', { source: source.name }, 'files that were read can be moved again');
    } catch (moving) {
      // Its values are safe; it stays known as read until somebody moves it.
      progress.isRead = true;
      this.#problem = folderProblem(folder, moving);
      const trouble = {
        event: 'csv.not_moved',
        ...fields,
        code: codeOf(moving),
        ...this.#problem,
        error: messageOf(moving),
      };
      this.#trouble.again(trouble, 'a file that was read cannot be moved');
      return;
    }
    this.#errors += refused + (failure === undefined ? 0 : 1);
    this.#known.delete(name);
    this.#seen.delete(name);
    const says = { ...fields, moved_to: plain(movedTo) };
    if (to === 'failed') log.warn({ event: 'csv.failed', ...says, error }, 'a file could not be taken');
    else if (refused > 0) log.warn({ event: 'csv.taken', ...says, error }, 'a file was taken, but for some of it');
    else log.info({ event: 'csv.taken', ...says }, 'a file was taken');
    gate.note(this.#reading.noteOf(name));
    await committed(this.#reading);
  }

  async #follow(files: readonly FolderFile[]): Promise<void> {
    for (const found of files) {
      const followed = this.#followed.get(found.name);
      if (followed && followed.identity !== found.identity) {
        await this.#readOn(found.name, followed, true);
        await this.#forget(found.name, followed);
      }
      if (!this.#followed.has(found.name)) await this.#begin(found);
      await this.#readOn(found.name, this.#followed.get(found.name)!, false);
    }
    // Renamed, and nothing new in its place yet: whoever wrote it may still do so.
    for (const [name, followed] of this.#followed) {
      if (!files.some((file) => file.name === name)) await this.#readOn(name, followed, false);
    }
  }

  async #begin(found: FolderFile): Promise<void> {
    const known = this.#known.get(found.name);
    this.#known.delete(found.name);
    if (known && known.identity !== found.identity) await this.#readRotated(found, known);
    this.#followed.set(found.name, await FollowedFile.open(this.#reading, found, known));
  }

  /** It was rotated while nobody looked: what stands in the old ones comes first. */
  async #readRotated({ name, identity }: FolderFile, known: FileProgress): Promise<void> {
    const { source, log } = this.#context;
    const rotated = await rotatedSince(this.#spec.folder, name, known, identity);
    if (rotated === undefined) {
      const fields = { source: source.name, file: plain(name), line: known.line };
      log.warn({ event: 'csv.rotated_away', ...fields }, 'a rotated file is gone; what stood behind this line is lost');
    }
    for (const old of rotated ?? []) {
      const file = await FollowedFile.open(this.#reading, { ...old, name }, known, old.name);
      try {
        await this.#readOn(old.name, file, true);
      } finally {
        await file.close();
      }
    }
  }

  /** What is wrong with one file is no matter of the others. */
  async #readOn(name: string, followed: FollowedFile, isOver: boolean): Promise<void> {
    const { source } = this.#context;
    const fields = { source: source.name, file: plain(name) };
    try {
      await followed.read(isOver);
      this.#trouble.over('csv.unreadable', fields, 'a file can be read on', name);
    } catch (error) {
      if (!(error instanceof UnreadableValues)) throw error;
      this.#errors++;
      this.#trouble.again(
        { event: 'csv.unreadable', ...fields, error: plain(error.message) },
        'a file cannot be read on',
        name,
      );
    }
  }

  async #forget(name: string, followed: FollowedFile): Promise<void> {
    this.#followed.delete(name);
    await followed.close();
  }

  #sayRefused(name: string, { problems }: FileProgress, refused: number): void {
    this.#errors += refused;
    const fields = {
      source: this.#context.source.name,
      file: plain(name),
      refused,
      error: plain(problems.at(-1) ?? ''),
    };
    this.#trouble.again({ event: 'csv.refused', ...fields }, 'rows of a file cannot be taken', name);
  }

  #sayFolder(error: unknown): void {
    const { source } = this.#context;
    this.#setConnected(false);
    this.#problem = folderProblem(this.#spec.folder, error);
    const fields = { source: source.name, folder: this.#spec.folder, code: codeOf(error), ...this.#problem };
    this.#errors++;
    this.#trouble.again(
      { event: 'csv.folder', ...fields, error: messageOf(error) },
      'the folder of a source cannot be used',
    );
  }

  #setConnected(connected: boolean): void {
    if (connected && !this.#connected) {
      this.#problem = undefined;
      this.#trouble.over(
        'csv.folder',
        { source: this.#context.source.name },
        'the folder of a source can be used again',
      );
    }
    if (connected === this.#connected) return;
    this.#connected = connected;
    this.#changedMs = this.#context.clock.monotonicMs();
  }
}
