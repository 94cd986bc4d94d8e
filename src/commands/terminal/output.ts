/** Command output: text, files and a progress bar. */
import { constants } from 'node:fs';
import { counted } from '../../base/amounts.ts';
import type { Clock } from '../../base/clock.ts';
import { codeOf, TagferryError } from '../../base/errors.ts';

export function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** Returns flags that create or truncate a file without following links, except kernel links such as `/dev/stdout`. */
export function outputFlags(file: string): number {
  const { O_WRONLY, O_CREAT, O_TRUNC, O_NOFOLLOW } = constants;
  return O_WRONLY | O_CREAT | O_TRUNC | (/^\/(dev|proc)\//.test(file) ? 0 : O_NOFOLLOW);
}

const HINTS: Readonly<Record<string, string>> = {
  ENOENT: 'Create its folder, or correct the path.',
  ENOTDIR: 'Correct the path: one of its parts is not a folder.',
  ELOOP: 'Specify a file that is not a link.',
  EISDIR: 'Specify a file, not a folder.',
  EACCES: 'Choose a file that this user can write.',
  EROFS: 'Choose a file on another file system: this one is read-only.',
  ENOSPC: 'Choose another file system: this one is full, and the output is incomplete.',
};

/**
 * Returns the error for an output that cannot be written; `undefined` means standard output. `hints` override the
 * default hints.
 */
export function writeError(
  cause: unknown,
  file: string | undefined,
  code: string,
  hints: Readonly<Record<string, string>> = {},
): TagferryError {
  const reason = codeOf(cause) ?? 'unknown';
  const hint = hints[reason] ?? HINTS[reason];
  return new TagferryError(`cannot write to ${file ?? 'standard output'} (${reason})`, { code, cause, hint });
}

const WIDTH = 30;
const REDRAW_MS = 100;

/** A progress bar on standard error; not shown if standard error is not a terminal. */
export class ProgressBar {
  readonly #total: number;
  readonly #clock: Clock;
  readonly #stream: NodeJS.WriteStream;
  readonly #on: boolean;
  #drawnMs = Number.NEGATIVE_INFINITY;

  constructor(total: number, clock: Clock, stream: NodeJS.WriteStream = process.stderr) {
    this.#total = total;
    this.#clock = clock;
    this.#stream = stream;
    this.#on = stream.isTTY === true;
  }

  show(done: number): void {
    const nowMs = this.#clock.monotonicMs();
    if (!this.#on || nowMs - this.#drawnMs < REDRAW_MS) return;
    this.#drawnMs = nowMs;
    this.#draw(done);
  }

  end(done: number): void {
    if (!this.#on) return;
    this.#draw(done);
    this.#stream.write('\n');
  }

  #draw(done: number): void {
    if (this.#total <= 0) {
      this.#stream.write(`\r${counted(done, 'value')}`);
      return;
    }
    // The number of values can change in the meantime, so never show more than 100 %.
    const share = Math.min(1, done / this.#total);
    const full = Math.round(share * WIDTH);
    const bar = `${'█'.repeat(full)}${'░'.repeat(WIDTH - full)}`;
    this.#stream.write(`\r${bar} ${String(Math.round(share * 100)).padStart(3)} % ${counted(done, 'value')}`);
  }
}
