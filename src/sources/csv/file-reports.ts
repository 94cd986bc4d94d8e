/** Log lines and status of a folder and its files. A problem is logged when it occurs and when it is resolved. */
import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { GatheredLines, MAX_NAMED } from '../../base/gathered-lines.ts';
import type { Logger } from '../../base/logger.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import type { SourceStatus } from '../status.ts';
import type { FileProgress } from './columns.ts';
import { folderProblem } from './folders.ts';

const ERROR_TEXTS: Readonly<Record<string, string>> = {
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  EIO: 'input/output error',
  ESTALE: 'stale file handle on the network share',
  ENAMETOOLONG: 'the file name is too long',
};

interface FileProblem {
  event: 'csv.unreadable' | 'csv.not_moved';
  problem: string;
  hint?: string;
}

type FinishedFile = Pick<FileProgress, 'name' | 'rows' | 'values' | 'refused'> & { movedTo: string; error?: string };

export class FileReports {
  readonly #status: SourceStatus;
  readonly #folder: string;
  readonly #log: Logger;
  /** Problems of the source, and of its files. */
  readonly #trouble: TroubleLog;
  readonly #fileTrouble: TroubleLog;
  readonly #finished: GatheredLines<FinishedFile>;
  /** Current problems by file name. */
  readonly #problems = new Map<string, FileProblem>();

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
    const [first] = this.#problems;
    const found = readOnly === undefined ? first?.[1] : folderProblem(this.#folder, readOnly);
    this.#status.problem = found?.problem;
    this.#status.hint = found?.hint;
    if (first && readOnly === undefined) {
      const [name, { event, problem }] = first;
      const files = this.#problems.size > 1 ? ` (${this.#problems.size} files)` : '';
      const verb = event === 'csv.unreadable' ? 'read' : 'move';
      this.#status.problem = plain(`failed to ${verb} ${name}: ${problem}${files}`);
    }
    this.#trouble.recovered('csv.folder', { source: this.#status.name }, 'source folder restored');
  }

  unreadable(name: string, error: unknown): void {
    const problem = ERROR_TEXTS[codeOf(error) ?? ''] ?? plain(messageOf(error));
    this.#failed(name, { event: 'csv.unreadable', problem }, { error: problem }, 'failed to read file');
  }

  readable(name: string): void {
    if (this.#problems.get(name)?.event !== 'csv.unreadable') return;
    this.#problems.delete(name);
    this.#fileTrouble.recovered('csv.unreadable', this.#about(name), 'file access restored', plain(name));
  }

  notMoved({ name, rows, values, refused }: FileProgress, error: unknown): void {
    const found = folderProblem(this.#folder, error);
    const fields = { rows, values, refused, code: codeOf(error), ...found, error: messageOf(error) };
    this.#failed(name, { event: 'csv.not_moved', ...found }, fields, 'failed to move file');
  }

  #failed(name: string, found: FileProblem, fields: Record<string, unknown>, message: string): void {
    const known = this.#problems.get(name);
    this.#problems.set(name, found);
    if (known?.event === found.event && known.problem === found.problem) return;
    this.#status.errors++;
    this.#fileTrouble.report({ ...this.#about(name), ...fields, event: found.event }, message, plain(name));
  }

  finished({ name, rows, values, refused, problems, failure }: FileProgress, movedTo: string): void {
    if (this.#problems.delete(name)) {
      this.#fileTrouble.recovered('csv.not_moved', this.#about(name), 'file moved', plain(name));
    }
    this.#status.errors += refused + (failure === undefined ? 0 : 1);
    const error = failure ?? problems[0];
    const file = { name, rows, values, refused, movedTo, ...(error === undefined ? {} : { error: plain(error) }) };
    const isFailed = movedTo.startsWith('failed/');
    this.#finished.note(`${isFailed} ${refused > 0}`, file, (files) => {
      const fields = this.#sumOf(files);
      if (isFailed) this.#trouble.report({ event: 'csv.failed', ...fields }, 'file rejected');
      else if (refused > 0) this.#log.warn({ event: 'csv.taken', ...fields }, 'file read, some rows were rejected');
      else this.#log.info({ event: 'csv.taken', ...fields }, 'file read');
    });
  }

  /** Returns the fields of one file, or the names of several, with totals and the first problem. */
  #sumOf(files: readonly FinishedFile[]): Record<string, unknown> {
    const [{ error, movedTo }] = files as [FinishedFile];
    const names = files.map(({ name }) => plain(name));
    const total = (count: 'rows' | 'values' | 'refused') => files.reduce((sum, file) => sum + file[count], 0);
    return {
      source: this.#status.name,
      ...(files.length > 1 ? { files: names.slice(0, MAX_NAMED), objects: files.length } : { file: names[0] }),
      rows: total('rows'),
      values: total('values'),
      refused: total('refused'),
      ...(files.length > 1 ? {} : { moved_to: plain(movedTo) }),
      error,
    };
  }

  /** Records rejected rows of a growing file. */
  refused({ name, problems }: FileProgress, refused: number): void {
    this.#status.errors += refused;
    const fields = { event: 'csv.refused', ...this.#about(name), refused, error: plain(problems.at(-1) ?? '') };
    this.#fileTrouble.report(fields, 'rows of a file rejected', plain(name));
  }

  rewritten({ name, line }: FileProgress): void {
    const fields = { event: 'csv.cut', ...this.#about(name), line };
    this.#log.warn(fields, 'tailed file was rewritten, reading it from the beginning');
  }

  rotatedAway({ name, line }: FileProgress): void {
    const fields = { event: 'csv.rotated_away', ...this.#about(name), line };
    this.#log.warn(fields, 'rotated file was removed before it was read, rows from this line on are lost');
  }

  #about(name: string) {
    return { source: this.#status.name, file: plain(name) };
  }
}
