/** Proposes values and members of a source for `sources scan` from the first rows of the newest file. */
import type { Clock } from '../../base/clock.ts';
import { TagferryError } from '../../base/errors.ts';
import { quote } from '../intake/address-book.ts';
import { TimeReader } from '../intake/logger-time.ts';
import { UnreadableValues } from '../intake/problem-list.ts';
import { ScannedNames } from '../scanned-names.ts';
import type { ProposedMember, ScanStep } from '../source-kind.ts';
import { type CsvSpec, indexOf, type QualityMap, qualityOf, separatorsFor, timeText } from './columns.ts';
import { assertValid, CsvReader } from './csv.ts';
import { Folders, folderProblem } from './folders.ts';

type Rows = string[][];

/** Maximum number of rows that are read. */
const MAX_ROWS = 500;
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
  'YYYY/MM/DD HH:mm:ss SSS',
  'DD/MM/YYYY HH:mm:ss SSS',
  'DD.MM.YYYY HH:mm:ss SSS',
  'YYYY-MM-DD HH:mm:ss SSS',
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
/** Headers, without spaces and other marks, of files with one value per row, such as archives of WinCC panels. */
const NAME_HEADER = /^(var|tag|point|signal|item)?name$|^(variable|tag|signal|point|messstelle)$/;
const VALUE_HEADER = /^(var)?(value|wert)$|^messwert$/;
const QUALITY_HEADER = /quality|qualit(ä|ae)t|validity/;
/** Headers of columns that may also contain something else. */
const MAYBE_QUALITY_HEADER = /qualit|validity|status|\b(good|gut)\b/;
/** Maximum number of texts in a comment. */
const MAX_TEXTS = 5;
/** Rows of WinCC archives about the archive itself. */
const NOT_A_VALUE = /^\$RT_/;
const MILLISECONDS_HEADER = /^(ms|milli.*)$/;
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
  const written = spec.timeColumns.map((column) => indexOf(header, column));
  const found = timeIn(rows, written, spec, header);
  const timeAt = found?.at ?? written;
  const isNamed = (at: number) =>
    spec.hasHeader && header[at] && header.indexOf(header[at]) === header.lastIndexOf(header[at]);
  const nameOf = (at: number) => (isNamed(at) ? header[at]! : at + 1);
  const { nameAt, valueAt } = nameAndValueIn(header, rows, spec);
  const qualityAt = header
    .map((_, at) => at)
    .filter((at) => !timeAt.includes(at) && at !== nameAt && at !== valueAt && isQuality(rows, at, header[at]!));
  const isOther = (at: number) => timeAt.includes(at) || qualityAt.includes(at);
  const cells = rows.flatMap((row) => row.filter((cell, at) => isNumber(cell) && !isOther(at)));
  Object.assign(members, separatorsFor(cells, spec)[0]);
  if (written.length === 0 && found) {
    const columns = found.at.map(nameOf);
    members.time_column = columns.length === 1 ? columns[0]! : columns;
  }
  if (found?.format !== undefined) members.time_format = found.format;
  if (nameAt !== undefined && spec.nameColumn === undefined) {
    members.name_column = nameOf(nameAt);
    members.value_column = nameOf(valueAt!);
  }
  const isLong = spec.form === 'long' || nameAt !== undefined;
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
  const usedAt = [...timeAt, ...qualityAt, nameAt, valueAt, spec.qualityColumn && indexOf(header, spec.qualityColumn)];
  for (const at of header.keys()) {
    const problem = usedAt.includes(at) ? undefined : problemOfQuality(rows, at, header[at]!, spec.qualityMap);
    if (problem === undefined) continue;
    const fix = 'set quality_column and quality_map';
    yield { comment: `column ${quote(String(nameOf(at)))} is not used as quality: ${problem}; ${fix}` };
  }
  if (isLong) {
    yield* scanLong(header, rows, nameAt, valueAt);
    return;
  }
  const keys = new ScannedNames();
  for (const [at, name] of header.entries()) {
    if (isOther(at) || name === '') continue;
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
      for (const record of records) {
        if (rows.length === 0) assertValid(record);
        if (record.problem === undefined) rows.push(record.fields.map((field) => field.trim()));
      }
      if (rows.length > MAX_ROWS) break;
    }
    rows.length = Math.min(rows.length, MAX_ROWS + 1);
    if (rows.length === 0) throw new UnreadableValues(`${file.name} is empty`);
    return rows;
  } finally {
    folder.close();
  }
}

/** Returns the indexes of the name and value columns of a file with one value per row, from tags.yaml or the header. */
function nameAndValueIn(
  header: readonly string[],
  rows: Rows,
  { form, nameColumn, valueColumn }: CsvSpec,
): { nameAt?: number; valueAt?: number } {
  if (nameColumn !== undefined) return { nameAt: indexOf(header, nameColumn), valueAt: indexOf(header, valueColumn!) };
  if (form === 'long') return {};
  const plain = header.map((name) => name.toLowerCase().replaceAll(/[^\p{L}]/gu, ''));
  const nameAt = plain.findIndex((name) => NAME_HEADER.test(name));
  const valueAt = plain.findIndex((name) => VALUE_HEADER.test(name));
  const isText = rows.every((row) => row[nameAt] && !LOOKS_NUMERIC.test(row[nameAt]));
  return nameAt >= 0 && valueAt >= 0 && rows.length > 0 && isText ? { nameAt, valueAt } : {};
}

/** Returns whether a column contains words for a quality, or has a suitable header and contains codes. */
function isQuality(rows: Rows, at: number, header: string): boolean {
  const cells = rows.map((row) => row[at] ?? '').filter((cell) => cell !== '');
  const qualities = cells.map((cell) => qualityOf(cell, { 1: 'good' }));
  if (!qualities.includes('good') || qualities.includes(undefined)) return false;
  return QUALITY_HEADER.test(header.toLowerCase()) || cells.every((cell) => Number.isNaN(Number(cell)));
}

/** Returns why a column that probably contains qualities is not proposed as a quality column. */
function problemOfQuality(rows: Rows, at: number, header: string, map: QualityMap = {}): string | undefined {
  const cells = rows.map((row) => row[at] ?? '').filter((cell) => cell !== '');
  const unknown = cells.filter((cell) => qualityOf(cell, { 1: 'good', ...map }) === undefined);
  const words = cells.filter((cell) => Number.isNaN(Number(cell)) && !unknown.includes(cell));
  const isLikely = MAYBE_QUALITY_HEADER.test(header.toLowerCase()) || words.length > cells.length / 2;
  if (!isLikely || cells.length === 0) return undefined;
  if (unknown.length === 0) return 'no cell means good';
  const texts = [...new Set(unknown)];
  const more = texts.length > MAX_TEXTS ? ', …' : '';
  return `unknown texts ${texts.slice(0, MAX_TEXTS).map(quote).join(', ')}${more}`;
}

/** Lists the names in the name column or, without one, the tags and keys. */
function* scanLong(
  header: readonly string[],
  rows: Rows,
  nameAt: number | undefined,
  valueAt = header.indexOf('value'),
): Generator<ScanStep> {
  const [tagAt, keyAt] = ['tag', 'key'].map((name) => header.indexOf(name));
  const keys = new ScannedNames();
  const seen = new Set<string>();
  for (const row of rows) {
    const [tag, name] = nameAt === undefined ? [row[tagAt!], row[keyAt!]] : ['any', row[nameAt]];
    if (!tag || !name || seen.has(`${tag} ${name}`) || NOT_A_VALUE.test(name)) continue;
    seen.add(`${tag} ${name}`);
    const sample = row[valueAt] ?? '';
    if (nameAt === undefined) yield { found: { tag, key: name, members: {}, sample } };
    else yield { found: { key: keys.unique(name), members: { name }, sample } };
  }
  yield { done: rows.length, total: rows.length };
}

/** Returns the columns of the time and its format, if one is needed and all rows match it. */
function timeIn(
  rows: Rows,
  written: readonly number[],
  { time }: CsvSpec,
  header: readonly string[],
): { at: readonly number[]; format?: string | undefined; isLocal: boolean } | undefined {
  const columns = (rows[0] ?? []).map((_, at) => at);
  const withMilliseconds = columns.filter((at) => MILLISECONDS_HEADER.test((header[at + 2] ?? '').toLowerCase()));
  const choices =
    written.length > 0
      ? [written]
      : [
          ...columns.map((at) => [at]),
          ...withMilliseconds.map((at) => [at, at + 1, at + 2]),
          ...columns.map((at) => [at, at + 1]),
        ];
  const reader = new TimeReader(time);
  for (const at of choices) {
    const texts = rows.map((row) => timeText(at, row));
    // A number without separators is more likely a value.
    if (texts.length === 0 || texts.some((text) => text === '' || /^[\d.,]*\d$/.test(text))) continue;
    const isReadBy = (format?: string) => {
      const one = format === undefined ? reader : new TimeReader({ ...time, format });
      return texts.every((text) => one.read(text) !== undefined);
    };
    if (isReadBy()) return { at, isLocal: texts.every((text) => reader.isLocal(text)) };
    const fitting = time.format === undefined ? FORMATS.filter(isReadBy) : [];
    // Without a day after the 12th, the order of day and month is unknown.
    const isAmbiguous = ['DD/', 'MM/'].every((start) => fitting.some((format) => format.startsWith(start)));
    if (fitting.length > 0) return { at, format: isAmbiguous ? undefined : fitting[0], isLocal: true };
  }
  return undefined;
}
