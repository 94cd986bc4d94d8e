/**
 * A second copy of what the series' numbers stand for, in a small file of its own beside the database. A value without
 * its series belongs nowhere, so one bad page of the table of series could cost a whole backlog.
 *
 *   one JSON array a line: id, asset, key, group, unit id, unit code, instrumentation, since, checksum; of two lines of an id
 *   that with the larger since counts, of equals the later
 *
 * It is asked only where the table does not know a series or garbles it. A line goes before the commit that brings the
 * series, unsynced: a commit syncs the database alone, and what the copy lacks is written at the next opening.
 */
import { closeSync, fsyncSync, readFileSync, renameSync, statSync, writeSync } from 'node:fs';
import { openOwnFile } from '../../base/own-file.ts';
import type { Series } from '../series.ts';
import { type SeriesFields, seriesFields, seriesOfFields } from '../tables.ts';

/** Far more than the largest agent carries: what is larger is no copy of ours. */
const MAX_FILE = 64 * 1024 * 1024;
const LINE_BYTES = 80;
/** What series that were forgotten may leave in it. */
const SPARE_BYTES = 1024 * 1024;

export class SeriesCopy {
  readonly #path: string;
  #lastSince = 0;

  /** `path` is that of the database. */
  constructor(path: string) {
    this.#path = `${path}.series`;
  }

  /** The latest generation of the lines read so far: one that a failed commit left behind must not come again. */
  get lastSince(): number {
    return this.#lastSince;
  }

  /** Every series of which a line reads, or those that are asked for. Never throws: without a copy only its help is missing. */
  read(wanted?: { has(id: number): boolean }): Map<number, Series> {
    const found = new Map<number, Series>();
    let text = '';
    try {
      text = readFileSync(this.#path, 'utf8').slice(0, MAX_FILE);
    } catch {}
    // Line by line: the file may tell of far more series than are to be loaded.
    for (let from = 0; from < text.length; ) {
      const to = text.indexOf('\n', from);
      const end = to < 0 ? text.length : to;
      const series = readLine(text.slice(from, end));
      from = end + 1;
      this.#lastSince = Math.max(this.#lastSince, series?.since ?? 0);
      if (series && wanted?.has(series.id) !== false && (series.since ?? 0) >= (found.get(series.id)?.since ?? 0))
        found.set(series.id, series);
    }
    return found;
  }

  /** Adds series; `false` where it could not. The file is made anew of `known` where it has grown far beyond these. */
  append(series: readonly Series[], known: () => readonly Series[]): boolean {
    if (series.length === 0) return true;
    if (!this.#write(this.#path, 'a', series)) return false;
    try {
      const { size } = statSync(this.#path);
      // Looked at closely only where it may be so: a line takes some 60 bytes.
      if (size > SPARE_BYTES) {
        const all = known();
        if (size > SPARE_BYTES + all.length * 2 * LINE_BYTES) this.#replace(all);
      }
    } catch {}
    return true;
  }

  /** Makes the file anew where it lacks one of `known`, or says something else of it. */
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
        // A line that broke off is ended by the next.
        writeSync(file, `\n${series.map(lineOf).join('\n')}\n`);
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

function readLine(line: string): Series | undefined {
  if (line === '') return undefined;
  try {
    return seriesOfFields(JSON.parse(line) as SeriesFields);
  } catch {
    return undefined;
  }
}
