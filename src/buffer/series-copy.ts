/**
 * A second copy of what the series' numbers stand for, in a small file of its own beside the database. A value without
 * its series belongs nowhere, so one bad page of the table of series could cost a whole backlog.
 *
 *   one JSON array a line: id, asset, key, group, unit id, unit code, checksum; of two lines of an id the later counts
 *
 * It is asked only where the table does not know a series or garbles it. A line goes before the commit that brings the
 * series, unsynced: a commit syncs the database alone, and what the copy lacks is written at the next opening.
 */
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from 'node:fs';
import type { Series } from './series.ts';
import { type SeriesFields, seriesFields, seriesOfFields } from './tables.ts';

/** Far more than the largest agent carries: what is larger is no copy of ours. */
const LARGEST_FILE = 64 * 1024 * 1024;

export class SeriesCopy {
  readonly #path: string;

  /** `path` is that of the database. */
  constructor(path: string) {
    this.#path = `${path}.series`;
  }

  /** Every series of which a line reads. Never throws: without a copy only its help is missing. */
  read(): Map<number, Series> {
    const found = new Map<number, Series>();
    let text = '';
    try {
      text = readFileSync(this.#path, 'utf8').slice(0, LARGEST_FILE);
    } catch {}
    for (const line of text.split('\n')) {
      const series = readLine(line);
      if (series) found.set(series.id, series);
    }
    return found;
  }

  /** Adds series; `false` where it could not. */
  append(series: readonly Series[]): boolean {
    return series.length === 0 || this.#write(this.#path, 'a', series);
  }

  /** Makes the file anew where it lacks one of `known`, or says something else of it. What only the copy knows stays. */
  keep(known: readonly Series[]): void {
    const all = this.read();
    let isOld = false;
    for (const series of known) {
      const found = all.get(series.id);
      if (found && lineOf(found) === lineOf(series)) continue;
      all.set(series.id, series);
      isOld = true;
    }
    const temporary = `${this.#path}.tmp`;
    if (isOld && this.#write(temporary, 'w', [...all.values()])) renameSync(temporary, this.#path);
  }

  #write(path: string, mode: 'a' | 'w', series: readonly Series[]): boolean {
    try {
      const file = openSync(path, mode, 0o600);
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
