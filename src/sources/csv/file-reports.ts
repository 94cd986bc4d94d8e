/** Log lines and status of a folder and its files. A problem is logged when it occurs and when it is resolved. */
import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { GatheredLines, MAX_NAMED } from '../../base/gathered-lines.ts';
import type { Logger } from '../../base/logger.ts';
import { type Trouble, TroubleLog } from '../intake/trouble-log.ts';
import type { SourceStatus } from '../status.ts';
import type { FileProgress } from './columns.ts';
import { folderProblem } from './folders.ts';

type FinishedFile = FileProgress & { movedTo: string };

export class FileReports {
  readonly #status: SourceStatus;
  readonly #folder: string;
  readonly #log: Logger;
  /** Problems of the source, and of its files. */
  readonly #trouble: TroubleLog;
  readonly #fileTrouble: TroubleLog;
  readonly #finished: GatheredLines<FinishedFile>;
  /** Current problems by file name. */
  readonly #problems = new Map<string, { event: string; summary: string; hint: string | undefined }>();

  constructor(status: SourceStatus, folder: string, clock: Clock, log: Logger) {
    this.#status = status;
    this.#folder = folder;
    this.#log = log;
    this.#trouble = new TroubleLog(log, clock);
    this.#fileTrouble = new TroubleLog(log, clock, 'files');
    this.#finished = new GatheredLines(clock);
  }

  folderFailed(error: unknown): void {
    const { problem, hint } = folderProblem(this.#folder, error);
    this.#status.errors++;
    this.#status.disconnect(problem, hint);
    const fields = { source: this.#status.name, folder: this.#folder, code: codeOf(error), problem, hint };
    this.#trouble.report({ event: 'csv.folder', ...fields, error: messageOf(error) }, 'source folder unavailable');
  }

  /** `names`: the files in the folder. `readOnly`: error code if files cannot be moved. */
  folderRead(names: ReadonlySet<string>, readOnly: string | undefined): void {
    for (const name of this.#problems.keys()) if (!names.has(name)) this.#problems.delete(name);
    this.#status.connect();
    const [first] = this.#problems.values();
    const others = this.#problems.size > 1 ? ` (${this.#problems.size} files)` : '';
    const ofFile = first && { problem: `${first.summary}${others}`, hint: first.hint };
    const { problem, hint } = readOnly === undefined ? (ofFile ?? {}) : folderProblem(this.#folder, readOnly);
    this.#status.problem = problem;
    this.#status.hint = hint;
    this.#trouble.recovered('csv.folder', { source: this.#status.name }, 'source folder restored');
  }

  unreadable(name: string, error: unknown): void {
    // Errors of Node end with the operation and the path of a handle: `EACCES: permission denied, open '/proc/…'`.
    const problem = plain(messageOf(error).replace(/^E[A-Z]+: ([^,]+),.*$/, '$1'));
    this.#report({ event: 'csv.unreadable', error: problem }, 'failed to read', name, { problem });
  }

  readable(name: string): void {
    if (this.#problems.get(name)?.event !== 'csv.unreadable') return;
    this.#problems.delete(name);
    this.#fileTrouble.recovered('csv.unreadable', this.#about(name), 'file access restored', plain(name));
  }

  notMoved({ name, rows, values, refused }: FileProgress, error: unknown): void {
    const found = folderProblem(this.#folder, error);
    const fields = { rows, values, refused, code: codeOf(error), ...found, error: messageOf(error) };
    this.#report({ event: 'csv.not_moved', ...fields }, 'failed to move', name, found);
  }

  /** Adds a problem to the status, and logs it unless it has been reported. */
  #report(fields: Trouble, what: string, name: string, { problem, hint }: { problem: string; hint?: string }): void {
    const summary = plain(`${what} ${name}: ${problem}`);
    if (this.#problems.get(name)?.summary === summary) return;
    this.#problems.set(name, { event: fields.event, summary, hint });
    this.#status.errors++;
    this.#fileTrouble.report({ ...this.#about(name), ...fields }, `${what} file`, plain(name));
  }

  /** Logs moved files with the same outcome in one line. */
  finished(file: FinishedFile): void {
    const { name, refused, failure, movedTo } = file;
    if (this.#problems.delete(name)) {
      this.#fileTrouble.recovered('csv.not_moved', this.#about(name), 'file moved', plain(name));
    }
    this.#status.errors += refused + (failure === undefined ? 0 : 1);
    const isFailed = movedTo.startsWith('failed/');
    this.#finished.note(`${isFailed} ${refused > 0}`, file, (files) => {
      const fields = this.#fieldsOf(files);
      if (isFailed) this.#trouble.report({ event: 'csv.failed', ...fields }, 'file rejected');
      else if (refused > 0) this.#log.warn({ event: 'csv.taken', ...fields }, 'file read, some rows were rejected');
      else this.#log.info({ event: 'csv.taken', ...fields, refused }, 'file read');
    });
  }

  #fieldsOf(files: readonly FinishedFile[]): Record<string, unknown> {
    const [{ name, movedTo, failure, problems }] = files as [FinishedFile];
    const total = (count: 'rows' | 'values' | 'refused') => files.reduce((sum, each) => sum + each[count], 0);
    const error = failure ?? problems[0];
    return {
      source: this.#status.name,
      ...(files.length === 1
        ? { file: plain(name), moved_to: plain(movedTo) }
        : { files: files.slice(0, MAX_NAMED).map((each) => plain(each.name)), objects: files.length }),
      rows: total('rows'),
      values: total('values'),
      refused: total('refused') || undefined,
      error: error === undefined ? undefined : plain(error),
    };
  }

  /** Logs rejected rows of a growing file. */
  refused({ name, problems }: FileProgress, refused: number): void {
    this.#status.errors += refused;
    const fields = { event: 'csv.refused', ...this.#about(name), refused, error: plain(problems.at(-1) ?? '') };
    this.#fileTrouble.report(fields, 'rows of a file rejected', plain(name));
  }

  /** Logs a file in `done/` whose added rows were not read. */
  missed(name: string): void {
    const fields = { event: 'csv.missed', ...this.#about(name) };
    this.#fileTrouble.report(fields, 'file grew after its final check, added rows not read', plain(name));
  }

  /** Logs an unexpected change to a file. */
  warn(name: string, fields: Trouble, message: string): void {
    this.#log.warn({ ...this.#about(name), ...fields }, message);
  }

  #about(name: string) {
    return { source: this.#status.name, file: plain(name) };
  }
}
