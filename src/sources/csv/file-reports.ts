/**
 * Reports problems with individual files in the log and status. A file's problem is logged when it occurs and when it
 * is resolved.
 */
import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { GatheredLines, MAX_NAMED } from '../../base/gathered-lines.ts';
import type { Logger } from '../../base/logger.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import type { SourceStatus } from '../status.ts';
import type { FileProgress } from './file-reading.ts';
import { folderProblem } from './folder-client.ts';

const ERROR_TEXTS: Readonly<Record<string, string>> = {
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  EIO: 'input/output error',
  ESTALE: 'stale file handle on the network share',
  ENAMETOOLONG: 'the file name is too long',
};

/** A file that was read and moved. `error` is its first problem. */
interface FinishedFile {
  file: string;
  rows: number;
  values: number;
  refused: number;
  moved_to: string;
  error?: string;
}

interface FileProblem {
  failed: 'read' | 'move';
  problem: string;
  hint?: string;
}

export class FileReports {
  readonly #status: SourceStatus;
  readonly #folder: string;
  readonly #log: Logger;
  readonly #trouble: TroubleLog;
  readonly #finished: GatheredLines<FinishedFile>;
  /** Current problems by file name. */
  readonly #problems = new Map<string, FileProblem>();

  constructor(status: SourceStatus, folder: string, clock: Clock, log: Logger) {
    this.#status = status;
    this.#folder = folder;
    this.#log = log;
    this.#trouble = new TroubleLog(log, clock, 'files');
    this.#finished = new GatheredLines(clock);
  }

  /** The first problem, with the number of affected files. */
  get problem(): { problem: string; hint?: string } | undefined {
    const [first] = this.#problems;
    if (!first) return undefined;
    const [name, { failed, problem, hint }] = first;
    const files = this.#problems.size > 1 ? ` (${this.#problems.size} files)` : '';
    return { problem: plain(`failed to ${failed} ${name}: ${problem}${files}`), ...(hint ? { hint } : {}) };
  }

  unreadable(name: string, error: unknown): void {
    const problem = ERROR_TEXTS[codeOf(error) ?? ''] ?? plain(messageOf(error));
    if (!this.#isNew(name, { failed: 'read', problem })) return;
    this.#status.errors++;
    const fields = { event: 'csv.unreadable', ...this.#about(name), error: problem };
    this.#trouble.report(fields, 'failed to read file', plain(name));
  }

  readable(name: string): void {
    if (this.#problems.get(name)?.failed !== 'read') return;
    this.#problems.delete(name);
    this.#trouble.recovered('csv.unreadable', this.#about(name), 'file is readable again', plain(name));
  }

  notMoved(name: string, { rows, values, refused }: FileProgress, error: unknown): void {
    const problem = folderProblem(this.#folder, codeOf(error));
    if (!this.#isNew(name, { failed: 'move', ...problem })) return;
    const fields = { ...this.#about(name), rows, values, refused, code: codeOf(error), ...problem };
    const trouble = { event: 'csv.not_moved', ...fields, error: messageOf(error) };
    this.#trouble.report(trouble, 'failed to move file', plain(name));
  }

  /** Clears the problems of files that no longer exist. */
  retain(names: ReadonlySet<string>): void {
    for (const name of this.#problems.keys()) if (!names.has(name)) this.#problems.delete(name);
  }

  finished(name: string, progress: FileProgress, failure: string | undefined, movedTo: string): void {
    const { rows, values, refused, problems } = progress;
    if (this.#problems.delete(name)) {
      this.#trouble.recovered('csv.not_moved', this.#about(name), 'file moved', plain(name));
    }
    this.#status.errors += refused + (failure === undefined ? 0 : 1);
    const file = { file: plain(name), rows, values, refused, moved_to: plain(movedTo) };
    const failed = { ...file, error: plain(failure ?? problems[0] ?? '') };
    if (movedTo.startsWith('failed/')) {
      this.#finished.note('failed', failed, (files) => {
        this.#log.warn({ event: 'csv.failed', ...this.#sumOf(files) }, 'file rejected');
      });
    } else if (refused > 0) {
      this.#finished.note('taken in part', failed, (files) => {
        this.#log.warn({ event: 'csv.taken', ...this.#sumOf(files) }, 'file read, some rows were rejected');
      });
    } else {
      this.#finished.note('taken', file, (files) => {
        this.#log.info({ event: 'csv.taken', ...this.#sumOf(files) }, 'file read');
      });
    }
  }

  /** Returns the fields of one file, or the names and totals of several. */
  #sumOf(files: readonly FinishedFile[]): Record<string, unknown> {
    const [first] = files;
    const source = this.#status.name;
    if (files.length === 1) return { source, ...first };
    const total = (count: 'rows' | 'values' | 'refused') => files.reduce((sum, file) => sum + file[count], 0);
    return {
      source,
      files: files.slice(0, MAX_NAMED).map(({ file }) => file),
      objects: files.length,
      rows: total('rows'),
      values: total('values'),
      refused: total('refused'),
      ...(first!.error === undefined ? {} : { error: first!.error }),
    };
  }

  /** Records rejected rows of a growing file. */
  refused(name: string, { problems }: FileProgress, refused: number): void {
    this.#status.errors += refused;
    const fields = { event: 'csv.refused', ...this.#about(name), refused, error: plain(problems.at(-1) ?? '') };
    this.#trouble.report(fields, 'rows of a file rejected', plain(name));
  }

  cut(name: string, { line }: FileProgress): void {
    const fields = { event: 'csv.cut', ...this.#about(name), line };
    this.#log.warn(fields, 'tailed file was rewritten, reading it from the beginning');
  }

  rotatedAway(name: string, { line }: FileProgress): void {
    const fields = { event: 'csv.rotated_away', ...this.#about(name), line };
    this.#log.warn(fields, 'rotated file was removed before it was read, rows from this line on are lost');
  }

  /** Records a problem with a file. Returns whether it differs from the file's previous problem. */
  #isNew(name: string, current: FileProblem): boolean {
    const { failed, problem } = this.#problems.get(name) ?? {};
    this.#problems.set(name, current);
    return failed !== current.failed || problem !== current.problem;
  }

  #about(name: string) {
    return { source: this.#status.name, file: plain(name) };
  }
}
