import { createWriteStream, openSync, type WriteStream } from 'node:fs';
import { systemClock } from '../../base/clock.ts';
import { UsageError } from '../../base/errors.ts';
import { pacedWrite } from '../../base/paced-write.ts';
import type { BufferConnection } from '../connection/buffer-connection.ts';
import { outputFlags, ProgressBar, writeError } from '../terminal/output.ts';
import { type ListedSeries, type SeriesFlags, selectionOf } from './series.ts';

export interface ExportFlags extends SeriesFlags {
  format?: string;
  output?: string;
}

const FAILED = 'export.unwritable';

/** Streams values as CSV, NDJSON or one JSON array to a file or to standard output. */
export async function exportValues(connection: BufferConnection, flags: ExportFlags): Promise<void> {
  const format = flags.format ?? (flags.json ? 'ndjson' : 'csv');
  if (format !== 'csv' && format !== 'ndjson') throw new UsageError('--format must be csv or ndjson');
  if (flags.json && flags.format !== undefined) {
    throw new UsageError(
      '--json and --format are mutually exclusive',
      'Use --json for one array, --format ndjson for lines.',
    );
  }
  const selection = selectionOf(flags);
  const { series } = await connection.ask<{ series: ListedSeries[] }>('buffer/ls', selection);
  const output = flags.output === undefined ? process.stdout : openOutput(flags.output);
  let failure: unknown;
  output.on('error', (error) => {
    failure = error;
  });
  const write = async (text: string) => {
    if (failure !== undefined) throw writeError(failure, flags.output, FAILED);
    await pacedWrite(output, text);
  };
  // On a terminal, a progress bar would be mixed with the values.
  const hasBar = flags.output !== undefined || !process.stdout.isTTY;
  const bar = new ProgressBar(hasBar ? series.reduce((sum, row) => sum + row.values, 0) : 0, systemClock);
  const array = flags.json ? new LinesAsArray() : undefined;
  let lines = format === 'csv' ? -1 : 0;
  await connection.stream('buffer/export', { ...selection, format }, async (text) => {
    for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) lines++;
    if (hasBar) bar.show(lines);
    await write(array?.next(text) ?? text);
  });
  if (array) await write(array.end());
  if (flags.output !== undefined) await new Promise<void>((resolve) => output.end(resolve));
  if (failure !== undefined) throw writeError(failure, flags.output, FAILED);
  if (hasBar) bar.end(lines);
}

/**
 * Truncates the file. Validate the selection before the call, so that an invalid option does not destroy an existing
 * file.
 */
function openOutput(file: string): WriteStream {
  try {
    return createWriteStream(file, { fd: openSync(file, outputFlags(file), 0o640) });
  } catch (error) {
    throw writeError(error, file, FAILED);
  }
}

/** Converts JSON lines that arrive in chunks into one array with a value per line, without buffering all lines. */
class LinesAsArray {
  #rest = '';
  #isFirst = true;

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
