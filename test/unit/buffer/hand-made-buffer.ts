import { type Database, openDatabase } from '../../../src/base/database.ts';
import { LogRowWriter, type SettledRun } from '../../../src/buffer/format/log-row.ts';
import { packSegment } from '../../../src/buffer/format/segment.ts';
import { packRanges } from '../../../src/buffer/format/settled-ranges.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import type { Series } from '../../../src/buffer/series.ts';
import { newSpan, packDirectory, packGone, segmentId } from '../../../src/buffer/span.ts';
import {
  prepareStatements,
  prepareTables,
  quarantineSum,
  runFields,
  type Statements,
  spanSum,
  sumOf,
  writeSeries,
} from '../../../src/buffer/tables.ts';

interface Entry {
  series: number;
  /** Readings are 1, 2, 3 and so on. */
  times: readonly number[];
  isGone?: boolean;
  settled?: number[];
  /** The directory contains the segment, but its row is missing. */
  isMissing?: boolean;
}

export const seriesOf = (id: number, asset = 1, more: Partial<Series> = {}): Series => {
  const plain = { group: undefined, unit: undefined, instrumentation: undefined, since: 1 };
  return { id, asset, key: `k${id}`, ...plain, ...more };
};

function segmentOf({ series, times }: Entry, place: number): Uint8Array {
  const count = times.length;
  const value = Float64Array.from(times, (_, i) => i + 1);
  return packSegment({ count, timeMs: Float64Array.from(times), value, flags: new Uint8Array(count) }, 0, count, {
    series,
    place,
  });
}

/** A buffer with rows chosen by the test. */
export class HandMadeBuffer {
  path!: string;
  database!: Database;
  statements!: Statements;

  constructor(path?: string) {
    if (path !== undefined) this.open(path);
  }

  open(path: string): void {
    this.path = path;
    this.database = openDatabase(path);
    prepareTables(this.database);
    this.statements = prepareStatements(this.database);
  }

  series(...all: (Series | number)[]): this {
    for (const one of all) writeSeries(this.statements, typeof one === 'number' ? seriesOf(one) : one);
    return this;
  }

  /** Adds a row with one value per series. Times and readings are 10 times the sequence number. */
  row(id: number, firstSeq: number, series: readonly number[], settled: readonly SettledRun[] = [], run = 1): this {
    const columns = new ValueColumns();
    for (const [i, one] of series.entries())
      columns.add(one, (firstSeq + i) * 10, (firstSeq + i) * 10, (firstSeq + i) % 4);
    this.statements.addRow.run(
      id,
      new LogRowWriter().write({ run, monotonicMs: id * 100, firstSeq }, columns, settled),
    );
    return this;
  }

  span(id: number, place: number, entries: readonly Entry[], run = 1): this {
    const acceptedMs = id * 1_000;
    const described = entries.map(({ series, times }) => ({
      series,
      count: times.length,
      lastTimeMs: Math.max(...times),
      leadSeconds: 0,
    }));
    const span = newSpan({ id, place, run, acceptedMs }, described);
    this.statements.addSpan.run(id, place, run, acceptedMs, packDirectory(span), spanSum(id, place, run, acceptedMs));
    for (const [at, entry] of entries.entries()) {
      const segment = segmentId(id, at);
      if (entry.isGone) span.gone[at] = 1;
      else if (!entry.isMissing) this.statements.addSegment.run(segment, segmentOf(entry, place));
      if (entry.settled) this.statements.setProgress.run(segment, packRanges(entry.settled));
    }
    if (entries.some(({ isGone }) => isGone)) this.statements.setGone.run(id, packGone(span));
    return this;
  }

  run(id: number, boot: string, wallMs: number, beganMs: number, lastMs: number): this {
    this.statements.addRun.run(...runFields({ id, boot, wall_ms: wallMs, monotonic_ms: beganMs, last_ms: lastMs }));
    return this;
  }

  quarantine(series: number, times: readonly number[], atMs = 5): this {
    const count = times.length;
    const sum = quarantineSum(series, count, 400, 'no such unit', atMs);
    const packed = segmentOf({ series, times }, 0);
    this.statements.addQuarantine.run(series, count, packed, 400, 'no such unit', atMs, sum);
    return this;
  }

  note(name: string, text: string): this {
    this.statements.setNote.run(name, text, sumOf(name, text));
    return this;
  }

  sql(text: string): this {
    this.database.exec(text);
    return this;
  }

  rows(query: string): unknown[] {
    return this.database.prepare(query).raw().all();
  }

  close(): void {
    this.database.close();
  }
}
