/**
 * Second copy of the series table, in a small file next to the database. Without it, one bad page of the table could
 * make a whole backlog undeliverable.
 *
 *   one JSON array per line: id, asset, key, group, unit ID, unit code, instrumentation, since, checksum; among
 *   lines with the same ID, the largest since applies, then the latest line
 *
 * Read only if a series is missing or damaged in the table. A line is written before the commit of its series, without
 * a sync; missing lines are added when the buffer is next opened.
 */
import { closeSync, fsyncSync, openSync, readSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { StringDecoder } from 'node:string_decoder';
import { openOwnFile } from '../../base/own-file.ts';
import type { Series } from '../series.ts';
import { type SeriesFields, seriesFields, seriesOfFields } from '../tables.ts';

/** The file is read and written in parts, because the lines of ten million series exceed the maximum string length. */
const READ_BYTES = 1024 * 1024;
const WRITE_LINES = 10_000;
const LINE_BYTES = 80;
/** Size allowed for lines of series without values. */
const SPARE_BYTES = 1024 * 1024;

export class SeriesCopy {
  readonly #path: string;
  #lastSince = 0;

  /** `path` is the path of the database. */
  constructor(path: string) {
    this.#path = `${path}.series`;
  }

  /** Latest generation that was read. The generation of a failed commit must not be reused. */
  get lastSince(): number {
    return this.#lastSince;
  }

  /** Returns all readable series, or only the requested series. Never throws. */
  read(wanted?: { has(id: number): boolean }): Map<number, Series> {
    const found = new Map<number, Series>();
    try {
      for (const line of linesOf(this.#path)) {
        const series = readLine(line);
        this.#lastSince = Math.max(this.#lastSince, series?.since ?? 0);
        if (series && wanted?.has(series.id) !== false && (series.since ?? 0) >= (found.get(series.id)?.since ?? 0))
          found.set(series.id, series);
      }
    } catch {}
    return found;
  }

  /** Appends series. Returns false on failure. Rewrites the file if it is much larger than `known` requires. */
  append(series: readonly Series[], known: () => readonly Series[]): boolean {
    if (series.length === 0) return true;
    if (!this.#write(this.#path, 'a', series)) return false;
    try {
      const { size } = statSync(this.#path);
      // A line has about 60 bytes.
      if (size > SPARE_BYTES) {
        const all = known();
        if (size > SPARE_BYTES + all.length * 2 * LINE_BYTES) this.#replace(all);
      }
    } catch {}
    return true;
  }

  /** Rewrites the file if a line of `known` is missing or different. */
  keep(known: readonly Series[]): void {
    const all = this.read(new Set(known.map(({ id }) => id)));
    const isWhole = known.every((series) => {
      const found = all.get(series.id);
      return found !== undefined && lineOf(found) === lineOf(series);
    });
    if (!isWhole) this.#replace(known);
  }

  #replace(all: readonly Series[]): void {
    const temporary = `${this.#path}.tmp`;
    if (this.#write(temporary, 'w', all)) renameSync(temporary, this.#path);
  }

  #write(path: string, mode: 'a' | 'w', series: readonly Series[]): boolean {
    try {
      const file = openOwnFile(path, mode === 'a' ? 'append' : 'truncate');
      try {
        // The leading line feed terminates a truncated line.
        writeFileSync(file, '\n');
        for (let from = 0; from < series.length; from += WRITE_LINES)
          writeFileSync(
            file,
            `${series
              .slice(from, from + WRITE_LINES)
              .map(lineOf)
              .join('\n')}\n`,
          );
        if (mode === 'w') fsyncSync(file);
      } finally {
        closeSync(file);
      }
      return true;
    } catch {
      return false;
    }
  }
}

const lineOf = (series: Series) => JSON.stringify(seriesFields(series));

/** Yields the lines of a file. Throws if the file cannot be read. */
function* linesOf(path: string): Generator<string, void> {
  const file = openSync(path, 'r');
  try {
    const decoder = new StringDecoder('utf8');
    const bytes = Buffer.allocUnsafe(READ_BYTES);
    let rest = '';
    for (let length = readSync(file, bytes); length > 0; length = readSync(file, bytes)) {
      const lines = (rest + decoder.write(bytes.subarray(0, length))).split('\n');
      rest = lines.pop()!;
      // An unterminated line of this length is damaged.
      if (rest.length > READ_BYTES) rest = '';
      yield* lines;
    }
    yield rest;
  } finally {
    closeSync(file);
  }
}

function readLine(line: string): Series | undefined {
  if (line === '') return undefined;
  try {
    return seriesOfFields(JSON.parse(line) as SeriesFields);
  } catch {
    return undefined;
  }
}
