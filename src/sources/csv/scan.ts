/** Proposes values and members of a source for `sources scan` from the first rows of the newest file. */
import type { Clock } from '../../base/clock.ts';
import { TagferryError } from '../../base/errors.ts';
import { TimeReader } from '../intake/logger-time.ts';
import { UnreadableValues } from '../intake/problem-list.ts';
import { ScannedNames } from '../scanned-names.ts';
import type { ProposedMember, ScanStep } from '../source-kind.ts';
import { type CsvSpec, GROUP_MARKS, numberReader, type Thousands } from './columns.ts';
import { assertValid, CsvReader, recordsOf } from './csv.ts';
import { Folders, folderProblem } from './folders.ts';

type Rows = string[][];

/** Maximum number of rows that are read. */
const MAX_ROWS = 50;
/** Maximum number of rows between header and values. */
const MAX_UNITS_ROWS = 3;
/** Formats that a time without a configured format does not match. */
const FORMATS = [
  'MM/DD/YYYY HH:mm:ss.SSS',
  'MM/DD/YYYY HH:mm:ss',
  'MM/DD/YYYY HH:mm',
  'MM/DD/YYYY hh:mm:ss A',
  'DD/MM/YYYY HH:mm:ss.SSS',
  'DD/MM/YYYY HH:mm:ss',
  'DD/MM/YYYY HH:mm',
  'YYYY/MM/DD HH:mm:ss.SSS',
  'YYYY/MM/DD HH:mm:ss',
  'YYYY/MM/DD HH:mm',
  'DD-MM-YYYY HH:mm:ss',
  'YYYYMMDD HHmmss',
  'DD-MMM-YYYY HH:mm:ss.SSS',
  'DD-MMM-YYYY HH:mm:ss',
  'DD-MMM-YYYY HH:mm',
  'DD-MMM-YY HH:mm:ss',
  'DD MMM YYYY HH:mm:ss',
  'DD MMM YYYY HH:mm',
  'DD. MMM YYYY HH:mm:ss',
  'MMM DD, YYYY hh:mm:ss A',
  'MMM DD YYYY HH:mm:ss',
];
const LOOKS_NUMERIC = /^[+-]?\d[\d.,'\u2019 \u00a0\u202f]*(e[+-]?\d+)?$/i;

/** Lists the columns of the newest file. In the long format, lists the tags and keys in its first rows. */
export async function* scanCsv(
  spec: CsvSpec,
  clock: Pick<Clock, 'after'>,
  signal: AbortSignal,
  folders = new Folders(clock),
): AsyncGenerator<ScanStep> {
  const rows = await readSample(spec, folders, signal).catch((error: unknown) => {
    if (error instanceof TagferryError) throw error;
    const { problem, hint } = folderProblem(spec.folder, error);
    throw new TagferryError(problem, { code: 'source.scan', hint });
  });
  const header = spec.hasHeader ? rows.shift()! : rows[0]!.map((_, at) => String(at + 1));
  const members: Record<string, ProposedMember> = {};
  const isNumber = (cell: string) => LOOKS_NUMERIC.test(cell);
  const time = new TimeReader(spec.time);
  const firstValues = rows.findIndex((row) => row.some((cell) => isNumber(cell) || time.read(cell) !== undefined));
  if (spec.hasHeader && spec.unitsRow === 0 && firstValues > 0 && firstValues <= MAX_UNITS_ROWS) {
    members.units_row = firstValues;
  }
  const units = rows.splice(0, Number(members.units_row ?? spec.unitsRow));
  const written = spec.timeColumns.map((column) => (typeof column === 'number' ? column - 1 : header.indexOf(column)));
  const found = timeIn(rows, written, spec);
  const timeAt = found?.at ?? written;
  const cells = rows.flatMap((row) => row.filter((cell, at) => isNumber(cell) && !timeAt.includes(at)));
  Object.assign(members, numberMembers(cells, spec));
  if (written.length === 0 && found) {
    const columns = found.at.map((at) => (spec.hasHeader && header[at]) || at + 1);
    members.time_column = columns.length === 1 ? columns[0]! : columns;
  }
  if (found?.format !== undefined) members.time_format = found.format;
  if (Object.keys(members).length > 0) yield { source: members };
  if (spec.form === 'long') {
    yield* scanLong(header, rows);
    return;
  }
  const keys = new ScannedNames();
  for (const [at, name] of header.entries()) {
    if (timeAt.includes(at) || name === '') continue;
    const key = keys.unique(name, `column_${at + 1}`);
    const texts = [rows[0] ?? [], ...units].map((row) => row[at] ?? '').filter((text) => text !== '');
    yield { found: { key, members: { column: spec.hasHeader ? name : at + 1 }, sample: texts.join(' ') } };
  }
  yield { done: header.length, total: header.length };
}

/** Returns the header and the first rows. Throws `UnreadableValues` or `FolderFailure`. */
async function readSample(spec: CsvSpec, folders: Folders, signal: AbortSignal): Promise<Rows> {
  const folder = folders.open(spec.folder, signal);
  try {
    const file = await folder.newest(spec.pattern);
    const rows: Rows = [];
    const reader = new CsvReader({ ...spec, isLastLineRead: true });
    for await (const record of recordsOf(folder.chunks(file, 0, file.size), reader)) {
      if (rows.length === 0) assertValid(record);
      if (record.problem === undefined) rows.push(record.fields.map((field) => field.trim()));
      if (rows.length > MAX_ROWS) break;
    }
    if (rows.length === 0) throw new UnreadableValues(`${file.name} is empty`);
    return rows;
  } finally {
    folder.close();
  }
}

function* scanLong(header: readonly string[], rows: Rows): Generator<ScanStep> {
  const columns = ['tag', 'key', 'value'].map((name) => header.indexOf(name));
  const seen = new Set<string>();
  for (const row of rows) {
    const [tag, key, sample = ''] = columns.map((at) => row[at]);
    if (!tag || !key || seen.has(`${tag} ${key}`)) continue;
    seen.add(`${tag} ${key}`);
    yield { found: { tag, key, members: {}, sample } };
  }
  yield { done: rows.length, total: rows.length };
}

/** Returns the columns of the time and its format, if one is needed and all rows match it. */
function timeIn(
  rows: Rows,
  written: readonly number[],
  { time }: CsvSpec,
): { at: readonly number[]; format?: string | undefined } | undefined {
  const columns = (rows[0] ?? []).map((_, at) => at);
  const choices = written.length > 0 ? [written] : [...columns.map((at) => [at]), ...columns.map((at) => [at, at + 1])];
  for (const at of choices) {
    const texts = rows.map((row) =>
      at
        .map((one) => row[one] ?? '')
        .join(' ')
        .trim(),
    );
    // A number without separators is more likely a value.
    if (texts.length === 0 || texts.some((text) => text === '' || /^[\d.,]*\d$/.test(text))) continue;
    const isReadBy = (format?: string) => {
      const reader = new TimeReader(format === undefined ? time : { ...time, format });
      return texts.every((text) => reader.read(text) !== undefined);
    };
    if (isReadBy()) return { at };
    const fitting = time.format === undefined ? FORMATS.filter(isReadBy) : [];
    // Without a day after the 12th, the order of day and month is unknown.
    const isAmbiguous = ['DD/', 'MM/'].every((start) => fitting.some((format) => format.startsWith(start)));
    if (fitting.length > 0) return { at, format: isAmbiguous ? undefined : fitting[0] };
  }
  return undefined;
}

/** Returns the separators that the source lacks and with which all cells are numbers. */
function numberMembers(cells: readonly string[], spec: CsvSpec): { decimal?: ','; thousands?: Thousands } {
  if (spec.thousands !== undefined) return {};
  const decimals = spec.decimal === ',' ? ([','] as const) : (['.', ','] as const);
  for (const thousands of [undefined, ...(Object.keys(GROUP_MARKS) as Thousands[])]) {
    for (const decimal of decimals) {
      if (decimal === thousands) continue;
      const read = numberReader(decimal, thousands);
      if (!cells.every((cell) => Number.isFinite(read(cell)))) continue;
      return {
        ...(decimal === spec.decimal || decimal === '.' ? {} : { decimal }),
        ...(thousands === undefined ? {} : { thousands }),
      };
    }
  }
  return {};
}
