/**
 * What can be read of a buffer that SQLite calls corrupt, or that another disk has garbled, is carried into a new one.
 * The old file is only read: it stays byte for byte where it was set aside.
 *
 * Every row has a checksum of its own, so a row that reads is right whatever became of its neighbours. What was settled
 * may be posted again, what stands on broken pages is lost with them; both are counted.
 */
import { type Database, openDatabase } from '../database.ts';
import { StoreError } from '../errors.ts';
import { LogRowWriter, readLogRow } from './log-row.ts';
import { unpackSegment } from './segment.ts';
import { MOST_ENTRIES, unpackDirectory } from './span.ts';
import { prepareStatements, prepareTables, readSeries, writeSeries } from './tables.ts';
import { ValueColumns } from './value-columns.ts';

export interface Salvage {
  values: number;
  /** Rows that did not read. */
  lostRows: number;
  /** Values in quarantine that were carried over. */
  quarantined: number;
}

/** Reads `from` (a path), writes into `into` (a new buffer, before its store opens). Never throws for what it reads. */
export function salvage(from: string, into: Database): Salvage {
  const result: Salvage = { values: 0, lostRows: 0, quarantined: 0 };
  let old: Database;
  try {
    old = openDatabase(from, { readonly: true });
  } catch {
    return result;
  }
  try {
    prepareTables(into);
    into.transaction(() => {
      carry(old, into, result);
    })();
  } catch (error) {
    // Nothing of a salvage that fails is worth more than a store that opens.
    if (!(error instanceof StoreError) && !isSqlite(error)) throw error;
  } finally {
    old.close();
  }
  return result;
}

const isSqlite = (error: unknown) => String((error as { code?: string }).code).startsWith('SQLITE_');

function carry(old: Database, into: Database, result: Salvage): void {
  const statements = prepareStatements(into);
  const known = new Set<number>();
  for (const series of attempt(() => readSeries(old)) ?? rowByRow(old)) {
    writeSeries(statements, series);
    known.add(series.id);
  }
  const seriesOf = spanSeries(old);
  const writer = new LogRowWriter();
  let row = 1;
  let seq = 0;
  const add = (columns: ValueColumns) => {
    if (columns.length === 0) return;
    statements.addRow.run(row++, writer.write({ run: 0, monotonicMs: 0, firstSeq: seq }, columns, []));
    seq += columns.length;
    result.values += columns.length;
  };
  // Segments first: they are older than the log.
  for (const [id, packed] of readable<[number, Buffer]>(old, 'segment', 'id, packed', result)) {
    const series = seriesOf.get(id);
    const values = series === undefined || !known.has(series) ? undefined : attempt(() => unpackSegment(packed));
    if (!values || series === undefined) {
      result.lostRows++;
      continue;
    }
    const columns = new ValueColumns();
    for (let i = 0; i < values.count; i++) columns.add(series, values.timeMs[i]!, values.value[i]!, values.flags[i]!);
    add(columns);
  }
  for (const [, bytes] of readable<[number, Buffer]>(old, 'log', 'id, row', result)) {
    const read = attempt(() => readLogRow(bytes));
    if (!read || !Array.from(read.values.series.subarray(0, read.values.length)).every((id) => known.has(id))) {
      result.lostRows++;
      continue;
    }
    add(read.values);
  }
  for (const fields of readable<[number, number, Buffer, number, string, number]>(
    old,
    'quarantine',
    'series, count, packed, status, message, at_ms',
    result,
  )) {
    statements.addQuarantine.run(...fields);
    result.quarantined += fields[1];
  }
}

/** Which series each segment belongs to, from the directories that read. */
function spanSeries(old: Database): Map<number, number> {
  const found = new Map<number, number>();
  const spans = readable<[number, Buffer]>(old, 'span', 'id, directory', { values: 0, lostRows: 0, quarantined: 0 });
  for (const [id, directory] of spans) {
    for (const [entry, { series }] of (attempt(() => unpackDirectory(directory)) ?? []).entries()) {
      found.set(id * MOST_ENTRIES + entry, series);
    }
  }
  return found;
}

/** Series one by one, where the table does not read at a stretch. */
function* rowByRow(old: Database): Generator<ReturnType<typeof readSeries>[number]> {
  const ids = attempt(() => old.prepare('SELECT max(id) FROM series').pluck().get() as number | null) ?? 0;
  for (let id = 1; id <= (ids ?? 0); id++) {
    const rows = attempt(() => readSeries(old, id));
    if (rows?.[0]) yield rows[0];
  }
}

/** Rows of a table by rowid; where a page is broken it goes on behind it, in growing steps. */
function* readable<Row extends unknown[]>(
  old: Database,
  table: string,
  columns: string,
  result: Salvage,
): Generator<Row> {
  const next = attempt(() =>
    old.prepare<[number], Row>(`SELECT rowid, ${columns} FROM ${table} WHERE rowid > ? ORDER BY rowid LIMIT 1`).raw(),
  );
  if (!next) return;
  const last = attempt(() => old.prepare(`SELECT max(rowid) FROM ${table}`).pluck().get() as number | null) ?? 2 ** 40;
  let at = 0;
  let step = 1;
  while (at < (last ?? 0)) {
    try {
      const row = next.get(at) as unknown as [number, ...Row] | undefined;
      if (!row) return;
      at = row[0];
      step = 1;
      yield row.slice(1) as Row;
    } catch (error) {
      if (!isSqlite(error)) throw error;
      result.lostRows++;
      at += step;
      step *= 2;
    }
  }
}

function attempt<Result>(read: () => Result): Result | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof StoreError || isSqlite(error)) return undefined;
    throw error;
  }
}
