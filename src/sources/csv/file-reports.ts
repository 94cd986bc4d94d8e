/** What the log and the status say about single files. A problem of a file is reported once, and once more when it is over. */
import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Logger } from '../../base/logger.ts';
import { TroubleLog } from '../trouble-log.ts';
import type { FileProgress } from './file-progress.ts';
import { folderProblem } from './folder-client.ts';

const WORDS_FOR_CODE: Readonly<Record<string, string>> = {
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  EIO: 'input/output error',
  ESTALE: 'stale file handle of the network share',
  ENAMETOOLONG: 'the file name is too long',
};

export class FileReports {
  readonly #source: string;
  readonly #folder: string;
  readonly #log: Logger;
  readonly #trouble: TroubleLog;
  /** Current problems by file name. */
  readonly #unreadable = new Map<string, string>();
  readonly #notMoved = new Map<string, string>();
  #hint: string | undefined;
  /** Rejected rows and cells, files that could not be read. */
  errors = 0;

  constructor(source: string, folder: string, clock: Clock, log: Logger) {
    this.#source = source;
    this.#folder = folder;
    this.#log = log;
    this.#trouble = new TroubleLog(log, clock, 'files');
  }

  /** The first problem, with the number of files affected. */
  get problem(): { problem: string; hint?: string } | undefined {
    const [problems, what] = this.#unreadable.size > 0 ? [this.#unreadable, 'read'] : [this.#notMoved, 'move'];
    const [first] = problems;
    if (!first) return undefined;
    const more = problems.size > 1 ? ` (${problems.size} files)` : '';
    const hint = what === 'move' && this.#hint !== undefined ? { hint: this.#hint } : {};
    return { problem: plain(`failed to ${what} ${first[0]}: ${first[1]}${more}`), ...hint };
  }

  unreadable(name: string, error: unknown): void {
    const text = reasonOf(error);
    if (this.#unreadable.get(name) === text) return;
    this.#unreadable.set(name, text);
    this.errors++;
    this.#trouble.again(
      { event: 'csv.unreadable', ...this.#about(name), error: text },
      'failed to read file',
      plain(name),
    );
  }

  readable(name: string): void {
    if (!this.#unreadable.delete(name)) return;
    this.#trouble.over('csv.unreadable', this.#about(name), 'file is readable again', plain(name));
  }

  notMoved(name: string, { rows, values, refused }: FileProgress, error: unknown): void {
    const { problem, hint } = folderProblem(this.#folder, codeOf(error));
    if (this.#notMoved.get(name) === problem) return;
    this.#notMoved.set(name, problem);
    this.#hint = hint;
    const fields = { ...this.#about(name), rows, values, refused, code: codeOf(error), problem, hint };
    this.#trouble.again(
      { event: 'csv.not_moved', ...fields, error: messageOf(error) },
      'failed to move file',
      plain(name),
    );
  }

  /** Files that are gone have no problem. */
  retain(names: ReadonlySet<string>): void {
    for (const problems of [this.#unreadable, this.#notMoved]) {
      for (const name of problems.keys()) if (!names.has(name)) problems.delete(name);
    }
  }

  finished(name: string, progress: FileProgress, failure: string | undefined, movedTo: string): void {
    const { rows, values, refused, problems } = progress;
    if (this.#notMoved.delete(name)) {
      this.#trouble.over('csv.not_moved', this.#about(name), 'file moved', plain(name));
    }
    this.errors += refused + (failure === undefined ? 0 : 1);
    const fields = { ...this.#about(name), rows, values, refused, moved_to: plain(movedTo) };
    const error = plain(failure ?? problems[0] ?? '');
    if (movedTo.startsWith('failed/')) this.#log.warn({ event: 'csv.failed', ...fields, error }, 'file rejected');
    else if (refused > 0) this.#log.warn({ event: 'csv.taken', ...fields, error }, 'file read, some rows rejected');
    else this.#log.info({ event: 'csv.taken', ...fields }, 'file read');
  }

  /** Rows of a growing file were rejected. */
  refused(name: string, { problems }: FileProgress, refused: number): void {
    this.errors += refused;
    const error = plain(problems.at(-1) ?? '');
    this.#trouble.again(
      { event: 'csv.refused', ...this.#about(name), refused, error },
      'rows of a file rejected',
      plain(name),
    );
  }

  cut(name: string, { line }: FileProgress): void {
    const fields = { event: 'csv.cut', ...this.#about(name), line };
    this.#log.warn(fields, 'growing file was rewritten, reading it from its beginning');
  }

  rotatedAway(name: string, { line }: FileProgress): void {
    const fields = { event: 'csv.rotated_away', ...this.#about(name), line };
    this.#log.warn(fields, 'rotated file is gone, its rows from this line on are lost');
  }

  #about(name: string) {
    return { source: this.#source, file: plain(name) };
  }
}

function reasonOf(error: unknown): string {
  return WORDS_FOR_CODE[codeOf(error) ?? ''] ?? plain(messageOf(error));
}
