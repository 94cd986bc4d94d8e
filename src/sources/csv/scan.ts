/** Proposes values and members of a source for `sources scan` from the first rows of the newest file. */
import type { Clock } from '../../base/clock.ts';
import { TagferryError } from '../../base/errors.ts';
import { quote } from '../intake/address-book.ts';
import { TimeReader } from '../intake/logger-time.ts';
import { UnreadableValues } from '../intake/problem-list.ts';
import { ScannedNames } from '../scanned-names.ts';
import type { ProposedMember, ScanStep } from '../source-kind.ts';
import { type CsvSpec, indexOf, joinedCells, qualityOf, separatorsFor } from './columns.ts';
import { assertValid, CsvReader } from './csv.ts';
import { Folders, folderProblem } from './folders.ts';

type Rows = string[][];

/** Maximum number of rows that are read. */
const MAX_ROWS = 500;
/** Maximum number of rows between header and values. */
const MAX_UNITS_ROWS = 3;
/** Formats that a time without a configured format does not match. */
const FORMATS = [
  ...['MM/DD/YYYY', 'DD/MM/YYYY', 'YYYY/MM/DD', 'DD-MM-YYYY', 'DD-MMM-YYYY', 'DD MMM YYYY', 'DD. MMM YYYY'].flatMap(
    (date) => ['HH:mm:ss.SSS', 'HH:mm:ss', 'HH:mm', 'HH:mm:ss SSS'].map((time) => `${date} ${time}`),
  ),
  ...['MM/DD/YYYY', 'MMM DD, YYYY'].map((date) => `${date} hh:mm:ss A`),
  ...['DD.MM.YYYY', 'YYYY-MM-DD'].map((date) => `${date} HH:mm:ss SSS`),
  ...['DD-MMM-YY', 'MMM DD YYYY'].map((date) => `${date} HH:mm:ss`),
  'YYYYMMDD HHmmss',
];
/** Headers, without spaces and other marks, of files with one value per row, such as archives of WinCC panels. */
const NAME_HEADER = /^(var|tag|point|signal|item)?name$|^(variable|tag|signal|point|messstelle)$/;
const VALUE_HEADER = /^(var)?(value|wert)$|^messwert$/;
const QUALITY_HEADER = /quality|qualit(ä|ae)t|validity/;
/** Rows of WinCC archives about the archive itself. */
const NOT_A_VALUE = /^\$RT_/;
const MILLISECONDS_HEADER = /^(ms|milli.*)$/;
const LOOKS_NUMERIC = /^[+-]?\d[\d.,'\u2019 \u00a0\u202f]*(e[+-]?\d+)?$/i;

/** Lists the columns of the newest file. In the long format, lists the names in its first rows. */
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
  const isUnique = (name: string) => name !== '' && header.indexOf(name) === header.lastIndexOf(name);
  const nameOf = (at: number) => (spec.hasHeader && isUnique(header[at]!) ? header[at]! : at + 1);
  const members: Record<string, ProposedMember> = {};

  const time = new TimeReader(spec.time);
  const isValue = (cell: string) => LOOKS_NUMERIC.test(cell) || time.read(cell) !== undefined;
  const firstValues = rows.findIndex((row) => row.some(isValue));
  if (spec.hasHeader && spec.unitsRow === 0 && firstValues > 0 && firstValues <= MAX_UNITS_ROWS) {
    members.units_row = firstValues;
  }
  const units = rows.splice(0, Number(members.units_row ?? spec.unitsRow));

  const writtenAt = spec.timeColumns.map((column) => indexOf(header, column));
  const found = timeIn(rows, writtenAt, spec, header);
  const timeAt = found?.at ?? writtenAt;
  const named = nameAndValueIn(header, rows, spec);
  const isOther = (at: number) => timeAt.includes(at) || named.includes(at);
  const qualityAt = [...header.keys()].filter((at) => !isOther(at) && isQuality(rows, at, header[at]!));
  const isTimeOrQuality = (at: number) => timeAt.includes(at) || qualityAt.includes(at);

  const numbers = rows.flatMap((row) => row.filter((cell, at) => LOOKS_NUMERIC.test(cell) && !isTimeOrQuality(at)));
  Object.assign(members, separatorsFor(numbers, spec)[0]);
  if (writtenAt.length === 0 && found) {
    const columns = found.at.map(nameOf);
    members.time_column = columns.length === 1 ? columns[0]! : columns;
  }
  if (found?.format !== undefined) members.time_format = found.format;
  if (named.length > 0 && spec.form === 'wide') {
    members.name_column = nameOf(named[0]!);
    members.value_column = nameOf(named[1]!);
  }
  const isLong = spec.form === 'long' || named.length > 0;
  const isShared = spec.qualityColumn === undefined && qualityAt.length > 0 && (isLong || qualityAt.length === 1);
  if (isShared) members.quality_column = nameOf(qualityAt[0]!);
  const isFlag = qualityAt.some((at) => rows.some((row) => row[at] === '1'));
  if (isFlag && spec.qualityMap === undefined) members.quality_map = { 1: 'good', 0: 'bad' };
  if (Object.keys(members).length > 0) yield { source: members };
  if (found?.isLocal && spec.time.zone === undefined) {
    const times = `the times in ${found.at.map((at) => `column ${quote(String(nameOf(at)))}`).join(' and ')}`;
    const fix = 'for local time, set zone, for example zone: Europe/Berlin';
    yield { comment: `${times} have no UTC offset and are read as UTC; ${fix}` };
  }
  if (isLong) {
    yield* scanLong(rows, named.length > 0 ? named : ['tag', 'key', 'value'].map((name) => header.indexOf(name)));
    return;
  }
  const keys = new ScannedNames();
  for (const [at, name] of header.entries()) {
    if (isTimeOrQuality(at) || name === '') continue;
    const key = keys.unique(name, `column_${at + 1}`);
    const texts = [rows[0] ?? [], ...units].map((row) => row[at] ?? '').filter((text) => text !== '');
    // If there are several quality columns, each one follows its value.
    const own = qualityAt.length > 1 && qualityAt.includes(at + 1) ? { quality_column: nameOf(at + 1) } : {};
    yield { found: { key, members: { column: nameOf(at), ...own }, sample: texts.join(' ') } };
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
    for await (const records of reader.batches(folder.chunks(file, 0, file.size))) {
      if (rows.length === 0 && records.length > 0) assertValid(records[0]!);
      const valid = records.filter(({ problem }) => problem === undefined);
      rows.push(...valid.map(({ fields }) => fields.map((field) => field.trim())));
      if (rows.length > MAX_ROWS) break;
    }
    if (rows.length === 0) throw new UnreadableValues(`${file.name} is empty`);
    return rows.slice(0, MAX_ROWS + 1);
  } finally {
    folder.close();
  }
}

/** Returns the name and value columns of a file with one value per row, from tags.yaml or the header, if any. */
function nameAndValueIn(header: readonly string[], rows: Rows, { form, nameColumn, valueColumn }: CsvSpec): number[] {
  if (nameColumn !== undefined) return [indexOf(header, nameColumn), indexOf(header, valueColumn!)];
  const plain = header.map((name) => name.toLowerCase().replaceAll(/[^\p{L}]/gu, ''));
  const nameAt = plain.findIndex((name) => NAME_HEADER.test(name));
  const valueAt = plain.findIndex((name) => VALUE_HEADER.test(name));
  const isText = rows.every((row) => row[nameAt] && !LOOKS_NUMERIC.test(row[nameAt]));
  return form === 'wide' && nameAt >= 0 && valueAt >= 0 && rows.length > 0 && isText ? [nameAt, valueAt] : [];
}

/** Returns whether a column contains words for a quality, or has a suitable header and contains codes. */
function isQuality(rows: Rows, at: number, header: string): boolean {
  const cells = rows.map((row) => row[at] ?? '').filter((cell) => cell !== '');
  const qualities = cells.map((cell) => qualityOf(cell, { 1: 'good' }));
  if (!qualities.includes('good') || qualities.includes(undefined)) return false;
  return QUALITY_HEADER.test(header.toLowerCase()) || cells.every((cell) => Number.isNaN(Number(cell)));
}

/** Lists the names in the rows. `columns`: the columns that contain the name, or the tag and key, and the value. */
function* scanLong(rows: Rows, columns: readonly number[]): Generator<ScanStep> {
  const keys = new ScannedNames();
  const seen = new Set<string>();
  for (const row of rows) {
    const cells = columns.map((at) => row[at] ?? '');
    const sample = cells.pop()!;
    const name = cells.join(' ');
    if (cells.includes('') || seen.has(name) || NOT_A_VALUE.test(name)) continue;
    seen.add(name);
    const [tag = '', key] = cells;
    if (key === undefined) yield { found: { key: keys.unique(name), members: { name }, sample } };
    else yield { found: { tag, key, members: {}, sample } };
  }
  yield { done: rows.length, total: rows.length };
}

/** Returns the columns of the time and its format, if one is needed and all rows match it. */
function timeIn(
  rows: Rows,
  writtenAt: readonly number[],
  { time }: CsvSpec,
  header: readonly string[],
): { at: readonly number[]; format?: string | undefined; isLocal: boolean } | undefined {
  const columns = [...(rows[0] ?? []).keys()];
  const withMilliseconds = columns.filter((at) => MILLISECONDS_HEADER.test((header[at + 2] ?? '').toLowerCase()));
  const guesses = [
    ...columns.map((at) => [at]),
    ...withMilliseconds.map((at) => [at, at + 1, at + 2]),
    ...columns.map((at) => [at, at + 1]),
  ];
  const reader = new TimeReader(time);
  const others = FORMATS.map((format) => ({ format, reader: new TimeReader({ ...time, format }) }));
  for (const at of writtenAt.length > 0 ? [writtenAt] : guesses) {
    const texts = rows.map((row) => joinedCells(at, row));
    // A number without separators is more likely a value.
    if (texts.length === 0 || texts.some((text) => text === '' || /^[\d.,]*\d$/.test(text))) continue;
    const isReadBy = (one: TimeReader) => texts.every((text) => one.read(text) !== undefined);
    if (isReadBy(reader)) return { at, isLocal: texts.every((text) => reader.isLocal(text)) };
    if (time.format !== undefined) continue;
    const fitting = others.filter((other) => isReadBy(other.reader)).map(({ format }) => format);
    // Without a day after the 12th, the order of day and month is unknown.
    const isAmbiguous = ['DD/', 'MM/'].every((start) => fitting.some((format) => format.startsWith(start)));
    if (fitting.length > 0) return { at, format: isAmbiguous ? undefined : fitting[0], isLocal: true };
  }
  return undefined;
}
