/**
 * A folder to which a data logger or another machine writes files. Complete files are read and moved; with `tail`,
 * growing files are followed. The position in each file is committed together with its values. If the folder or the
 * store fails, all state in memory is discarded and reading resumes from the positions on disk.
 */
import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf, StoreError } from '../../base/errors.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';
import { CompleteFiles } from './complete-files.ts';
import type { CsvSpec, CsvValue } from './csv-spec.ts';
import { committed, type FileProgress, parseProgress, type ReadingContext } from './file-reading.ts';
import { FileReports } from './file-reports.ts';
import { FolderClient, FolderFailure, folderProblem } from './folder-client.ts';
import type { Listing } from './folder-protocol.ts';
import { GrowingFiles } from './growing-files.ts';

const MAX_SCAN_MS = 5_000;
const TAIL_SCAN_MS = 1_000;
const MIN_SCAN_MS = 50;
/** Minimum retry delay after a failure. */
const MIN_RETRY_MS = 1_000;
const NOTE = 'file/';

export class CsvSource implements RunningSource {
  readonly #context: SourceContext<CsvSpec, CsvValue>;
  readonly #clock: Clock;
  readonly #spec: CsvSpec;
  readonly #trouble: TroubleLog;
  readonly #stopping = new AbortController();
  readonly #folder: FolderClient;
  readonly #reports: FileReports;
  readonly #reading: ReadingContext;
  #running: Promise<void> | undefined;
  #files: CompleteFiles | GrowingFiles | undefined;

  constructor(context: SourceContext<CsvSpec, CsvValue>) {
    const { source, points, gate, clock, log } = context;
    this.#context = context;
    this.#clock = clock;
    this.#spec = source.spec;
    this.#trouble = new TroubleLog(log, clock);
    this.#folder = new FolderClient(source.spec.folder, clock);
    this.#reports = new FileReports(context.status, source.spec.folder, clock, log);
    this.#reading = {
      spec: source.spec,
      points,
      folder: this.#folder,
      gate,
      signal: this.#stopping.signal,
      noteOf: (name, progress) => ({
        name: `source/${source.name}/${NOTE}${name}`,
        text: progress === undefined ? undefined : JSON.stringify(progress),
      }),
    };
  }

  start(): void {
    this.#running ??= this.#run(this.#stopping.signal);
  }

  /** Kills the folder process instead of waiting for the folder. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#folder.end();
    await this.#running;
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { settleMs, tail } = this.#spec;
    const scanMs = tail ? TAIL_SCAN_MS : Math.max(MIN_SCAN_MS, Math.min(MAX_SCAN_MS, settleMs / 2));
    while (!signal.aborted) {
      let pauseMs = scanMs;
      try {
        await this.#scan();
      } catch (error) {
        if (signal.aborted) return;
        this.#fail(error);
        pauseMs = Math.max(scanMs, MIN_RETRY_MS);
      }
      await this.#clock.sleep(pauseMs, signal).catch(() => {});
    }
  }

  async #scan(): Promise<void> {
    const listing = await this.#folder.list('', this.#spec.pattern);
    this.#files ??= await this.#resume();
    this.#reports.retain(new Set([...listing.files, ...listing.unreadable].map(({ name }) => name)));
    for (const { name, code } of listing.unreadable) this.#reports.unreadable(name, { code, message: code });
    // Files that no value reads stay where they are, so that a source can be added and scanned first.
    if (this.#context.points.length > 0) await this.#files.process(listing.files);
    this.#setConnected(listing);
  }

  /** Resumes from the positions on disk. */
  async #resume(): Promise<CompleteFiles | GrowingFiles> {
    await committed(this.#reading).catch((error: unknown) => this.#stopping.signal.aborted && Promise.reject(error));
    const known = new Map<string, FileProgress>();
    for (const [name, text] of await this.#context.notes()) {
      const progress = name.startsWith(NOTE) ? parseProgress(text) : undefined;
      if (progress) known.set(name.slice(NOTE.length), progress);
    }
    return this.#spec.tail
      ? new GrowingFiles(this.#reading, this.#reports, known)
      : new CompleteFiles(this.#reading, this.#reports, this.#clock, known);
  }

  #fail(error: unknown): void {
    if (this.#files) this.#folder.closeAll();
    this.#files = undefined;
    // The gate reports store errors.
    if (error instanceof StoreError) return;
    const { status } = this.#context;
    const found: { problem: string; hint?: string } =
      error instanceof FolderFailure
        ? folderProblem(this.#spec.folder, error.code)
        : { problem: `${this.#spec.folder}: ${messageOf(error)}` };
    status.errors++;
    status.disconnect(found.problem, found.hint);
    const fields = { source: this.#context.source.name, folder: this.#spec.folder, code: codeOf(error) };
    const trouble = { event: 'csv.folder', ...fields, ...found, error: messageOf(error) };
    this.#trouble.report(trouble, 'source folder unavailable');
  }

  /** Reports a read-only folder before the first file has to be moved. */
  #setConnected({ readOnly }: Listing): void {
    const { status } = this.#context;
    const isReadOnly = readOnly !== undefined && !this.#spec.tail;
    const found = isReadOnly ? folderProblem(this.#spec.folder, readOnly) : this.#reports.problem;
    status.connect();
    status.problem = found?.problem;
    status.hint = found?.hint;
    this.#trouble.recovered('csv.folder', { source: this.#context.source.name }, 'source folder available again');
  }
}
