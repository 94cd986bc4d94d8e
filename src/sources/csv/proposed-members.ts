/** Proposes members of a source for `sources scan` from the first rows of a file. Pure. */
import { headerOf } from './columns.ts';
import { separatorOf, splitRecord } from './csv.ts';
import type { CsvSpec, Thousands } from './csv-spec.ts';
import { TimeReader } from './logger-time.ts';

export interface ProposedMembers {
  units_row?: number;
  decimal?: ',';
  thousands?: Thousands;
  time_column?: string | number | (string | number)[];
  time_format?: string;
}

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
];
const LOOKS_NUMERIC = /^[+-]?\d[\d.,'\u2019 \u00a0\u202f]*(e[+-]?\d+)?$/i;
const SPACE = '[ \\u00a0\\u202f]';
const APOSTROPHE = "['\\u2019]";

/** `first`: header, or the first row if there is no header. `texts`: the rows that the current members select. */
export function proposeMembers(spec: CsvSpec, first: string, texts: readonly string[]): ProposedMembers {
  const separator = spec.separator ?? separatorOf(first);
  const rows = texts.map((text) => fieldsOf(text, separator));
  const unitsRow = spec.unitsRow === undefined && spec.hasHeader ? unitsRowOf(rows, spec) : 0;
  const values = rows.slice(unitsRow);
  const names = spec.hasHeader ? headerOf(first, separator) : [];
  const written = spec.timeColumns.map((column) => (typeof column === 'number' ? column - 1 : names.indexOf(column)));
  const time = timeOf(spec, values, written);
  const cells = values.flatMap((row) => row.filter((_, at) => !(time?.at ?? written).includes(at)));
  const columnOf = (at: number) => (names[at] ? names[at] : at + 1);
  const columns = time?.at.map(columnOf) ?? [];
  return {
    ...(unitsRow > 0 ? { units_row: unitsRow } : {}),
    ...numberMembers(spec, cells),
    ...(written.length > 0 || columns.length === 0
      ? {}
      : { time_column: columns.length === 1 ? columns[0]! : columns }),
    ...(time?.format === undefined ? {} : { time_format: time.format }),
  };
}

function fieldsOf(text: string, separator: string): string[] {
  try {
    return splitRecord(text, separator, 1).map((field) => field.trim());
  } catch {
    return [];
  }
}

/** Returns the number of rows without numbers and times before the first row of values. */
function unitsRowOf(rows: readonly string[][], spec: CsvSpec): number {
  const time = new TimeReader(spec.time);
  const hasValues = (row: readonly string[]) =>
    row.some((cell) => LOOKS_NUMERIC.test(cell) || time.read(cell) !== undefined);
  const at = rows.findIndex(hasValues);
  return at <= MAX_UNITS_ROWS ? Math.max(0, at) : 0;
}

interface FoundTime {
  /** Indices of the columns. */
  at: number[];
  /** `undefined`: no format is needed. */
  format: string | undefined;
}

/** Returns the columns and the format of the time, if all rows have one. */
function timeOf({ time }: CsvSpec, rows: readonly string[][], written: readonly number[]): FoundTime | undefined {
  const width = rows[0]?.length ?? 0;
  const columns = Array.from({ length: width }, (_, at) => at);
  const choices =
    written.length > 0 ? [[...written]] : [...columns.map((at) => [at]), ...columns.map((at) => [at, at + 1])];
  for (const at of choices) {
    const texts = rows.map((row) =>
      at
        .map((one) => row[one] ?? '')
        .join(' ')
        .trim(),
    );
    // A number without separators is more likely a value.
    if (texts.length === 0 || texts.some((text) => text === '' || /^[\d.,]*\d$/.test(text))) continue;
    const reads = (format: string | undefined) => {
      const reader = new TimeReader({ ...time, ...(format === undefined ? {} : { format }) });
      return texts.every((text) => reader.read(text) !== undefined);
    };
    if (reads(time.format)) return { at, format: undefined };
    if (time.format !== undefined) continue;
    const fitting = FORMATS.filter(reads);
    // Without a day after the 12th, the order of day and month is unknown.
    const isAmbiguous =
      fitting.some((format) => format.startsWith('DD/')) && fitting.some((format) => format.startsWith('MM/'));
    if (fitting.length > 0) return { at, format: isAmbiguous ? undefined : fitting[0] };
  }
  return undefined;
}

/** Returns the decimal and thousands separators that the cells use and that the source does not name. */
function numberMembers(spec: CsvSpec, cells: readonly string[]): Pick<ProposedMembers, 'decimal' | 'thousands'> {
  const texts = cells.filter((cell) => LOOKS_NUMERIC.test(cell)).map((cell) => cell.replace(/^[+-]/, ''));
  const has = (pattern: string) => texts.some((text) => new RegExp(`^${pattern}$`).test(text));
  const groups = (mark: string, count = '+') => `\\d{1,3}(?:${mark}\\d{3})${count}`;
  const isGroupedBySpace = has(`${groups(SPACE)}(?:[.,]\\d+)?`);
  const isGroupedByApostrophe = has(`${groups(APOSTROPHE)}(?:[.,]\\d+)?`);
  const isComma =
    spec.decimal === ',' ||
    has(`${groups('\\.')},\\d+`) ||
    has(`${groups(`(?:${SPACE}|${APOSTROPHE})`)},\\d+`) ||
    // Three digits after a comma can be a group.
    (has('(?:\\d+,(?:\\d{1,2}|\\d{4,})|0,\\d+|\\d{4,},\\d+)') && !has('\\d+\\.\\d+'));
  const point = isComma ? '\\.' : ',';
  const isGroupedByPoint = has(`${groups(point)}${isComma ? ',' : '\\.'}\\d+`) || has(groups(point, '{2,}'));
  // With a decimal comma, a point can only separate groups.
  const isGrouped = isGroupedByPoint || (isComma && has(groups('\\.')));
  const thousands = isGrouped
    ? isComma
      ? '.'
      : ','
    : isGroupedBySpace
      ? ' '
      : isGroupedByApostrophe
        ? "'"
        : undefined;
  return {
    ...(isComma && spec.decimal === '.' ? { decimal: ',' } : {}),
    ...(thousands === undefined || spec.thousands !== undefined ? {} : { thousands }),
  };
}
