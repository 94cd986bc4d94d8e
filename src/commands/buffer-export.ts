import { constants, createWriteStream, openSync, type WriteStream } from 'node:fs';
import { systemClock } from '../base/clock.ts';
import { codeOf, TagferryError, UsageError } from '../base/errors.ts';
import { pacedWrite } from '../base/paced-write.ts';
import { type Choice, choiceOf } from './buffer-choice.ts';
import type { BufferConnection } from './buffer-connection.ts';
import type { ListedSeries } from './buffer-tables.ts';
import { ProgressBar } from './progress-bar.ts';

export interface ExportFlags extends Choice {
  format?: string;
  output?: string;
}

/** `tagferry buffer export`: CSV, NDJSON, or one JSON array, to a file or to standard output, as it comes. */
export async function exportValues(connection: BufferConnection, flags: ExportFlags): Promise<void> {
  const format = flags.format ?? (flags.json ? 'ndjson' : 'csv');
  if (format !== 'csv' && format !== 'ndjson') throw new UsageError('--format is csv or ndjson');
  if (flags.json && flags.format !== undefined) {
    throw new UsageError(
      '--json and --format exclude each other',
      '--json prints one array; ndjson is an object a line.',
    );
  }
  const choice = choiceOf(flags);
  const { series } = await connection.ask<{ series: ListedSeries[] }>('buffer/ls', choice);
  const output = flags.output === undefined ? process.stdout : openOutput(flags.output);
  let failure: unknown;
  output.on('error', (error) => {
    failure = error;
  });
  const write = async (text: string) => {
    if (failure !== undefined) throw writeFailure(failure, flags.output);
    await pacedWrite(output, text);
  };
  // Beside an export on the terminal a bar would only be in the way.
  const isSeen = flags.output !== undefined || !process.stdout.isTTY;
  const bar = new ProgressBar(isSeen ? series.reduce((sum, row) => sum + row.values, 0) : 0, systemClock);
  const array = flags.json ? new LinesAsArray() : undefined;
  let lines = format === 'csv' ? -1 : 0;
  await connection.stream('buffer/export', { ...choice, format }, async (text) => {
    for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) lines++;
    if (isSeen) bar.show(lines);
    await write(array?.next(text) ?? text);
  });
  if (array) await write(array.end());
  if (flags.output !== undefined) await new Promise<void>((resolve) => output.end(resolve));
  if (failure !== undefined) throw writeFailure(failure, flags.output);
  if (isSeen) bar.end(lines);
}

/** Made only once the choice is known to be one: what stands in the file is worth more than a slip of the keyboard. */
function openOutput(file: string): WriteStream {
  const { O_WRONLY, O_CREAT, O_TRUNC, O_NOFOLLOW } = constants;
  // Links that somebody put there are not followed, unlike those of the kernel: `/dev/stdout`.
  const links = /^\/(dev|proc)\//.test(file) ? 0 : O_NOFOLLOW;
  try {
    return createWriteStream(file, { fd: openSync(file, O_WRONLY | O_CREAT | O_TRUNC | links, 0o640) });
  } catch (error) {
    throw writeFailure(error, file);
  }
}

const WRITE_HINTS: Readonly<Record<string, string>> = {
  ENOENT: 'Its folder does not exist: create it, or correct the path.',
  ENOTDIR: 'A part of the path is no folder: correct it.',
  ELOOP: 'It is a link: name a file.',
  EISDIR: 'Name a file, not a folder.',
  EACCES: 'This user may not write there: choose another file.',
  EROFS: 'That file system is read-only: choose another file.',
  ENOSPC: 'That file system is full: choose another file. What came so far is not all.',
};

function writeFailure(error: unknown, file: string | undefined): TagferryError {
  const code = codeOf(error) ?? 'unknown';
  const hint = WRITE_HINTS[code];
  return new TagferryError(`${file ?? 'standard output'} cannot be written (${code})`, {
    code: 'export.unwritable',
    cause: error,
    ...(hint === undefined ? {} : { hint }),
  });
}

/** Turns lines of JSON that come in pieces into one array, a value a line, without keeping them. */
class LinesAsArray {
  #rest = '';
  #isFirst = true;

  /** The text of the array so far as whole lines have come. */
  next(piece: string): string {
    const text = this.#rest + piece;
    const end = text.lastIndexOf('\n') + 1;
    this.#rest = text.slice(end);
    const lines = text
      .slice(0, end)
      .split('\n')
      .filter((line) => line !== '');
    if (lines.length === 0) return '';
    const joint = this.#isFirst ? '[\n' : ',\n';
    this.#isFirst = false;
    return joint + lines.join(',\n');
  }

  end(): string {
    return this.#isFirst ? '[]\n' : '\n]\n';
  }
}
