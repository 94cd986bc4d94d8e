/** Proposes values and members of a source for `sources scan` from the first rows of the newest file. */
import type { Clock } from '../../base/clock.ts';
import { codeOf, TagferryError } from '../../base/errors.ts';
import { UnreadableValues } from '../intake/problem-list.ts';
import { ScannedNames } from '../scanned-names.ts';
import type { ScanStep } from '../source-kind.ts';
import { type CsvSpec, FileHead, type Thousands } from './columns.ts';
import { CsvReader, recordsOf } from './csv.ts';
import { Folders, folderProblem } from './folders.ts';
import { TimeReader } from './logger-time.ts';

interface ProposedMembers {
  units_row?: number;
  decimal?: ',';
  thousands?: Thousands;
  time_column?: string | number | (string | number)[];
  time_format?: string;
}

type Rows = readonly (readonly string[])[];

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
];
const LOOKS_NUMERIC = /^[+-]?\d[\d.,'\u2019 \u00a0\u202f]*(e[+-]?\d+)?$/i;
const SPACE = '[ \\u00a0\\u202f]';
const APOSTROPHE = "['\\u2019]";

/** Lists the columns of the newest file. In the long format, lists the tags and keys in its first rows. */
export async function* scanCsv(
  spec: CsvSpec,
  clock: Pick<Clock, 'after'>,
  signal: AbortSignal,
  folders = new Folders({ clock }),
): AsyncGenerator<ScanStep> {
  const { head, rows } = await readSample(spec, folders, signal).catch((error: unknown) => {
    if (error instanceof TagferryError) throw error;
    throw new TagferryError(folderProblem(spec.folder, codeOf(error)).problem, {
      code: 'source.scan',
      hint: folderProblem(spec.folder, codeOf(error)).hint,
    });
  });
  const members = proposeMembers(spec, head, rows);
  if (Object.keys(members).length > 0) yield { source: { ...members } };
  if (spec.form === 'long') {
    yield* scanRows(head, rows);
    return;
  }
  const { units_row: unitsRow = 0, time_column: time = [] } = members;
  const units = [...head.units, ...rows.slice(0, unitsRow)];
  const timeColumns = spec.timeColumns.length > 0 ? spec.timeColumns : [time].flat();
  yield* scanColumns(spec, head, rows[unitsRow] ?? [], units, timeColumns);
}

/** Throws `UnreadableValues` or `FolderFailure`. */
async function readSample(spec: CsvSpec, folders: Folders, signal: AbortSignal) {
  const folder = folders.open(spec.folder, signal);
  try {
    const file = await folder.newest(spec.pattern);
    const head = new FileHead(spec);
    const rows: string[][] = [];
    let isHead = true;
    for await (const record of recordsOf(folder.chunks(file, 0, file.size), new CsvReader(spec))) {
      if (isHead) {
        isHead = !head.add(record);
        if (spec.hasHeader) continue;
      }
      if (record.problem === undefined) rows.push(record.fields.map((field) => field.trim()));
      if (rows.length >= MAX_ROWS) break;
    }
    if (isHead) throw new UnreadableValues(`${file.name} is empty`);
    return { head, rows };
  } finally {
    folder.close();
  }
}

function* scanColumns(
  { hasHeader }: CsvSpec,
  { first }: FileHead,
  values: readonly string[],
  units: Rows,
  timeColumns: readonly (string | number)[],
): Generator<ScanStep> {
  const names = hasHeader ? first : values.map((_, at) => String(at + 1));
  const times = timeColumns.map((column) => (typeof column === 'number' ? column - 1 : names.indexOf(column)));
  const keys = new ScannedNames();
  for (const [at, name] of names.entries()) {
    if (times.includes(at) || name === '') continue;
    const key = keys.unique(name, `column_${at + 1}`);
    const texts = [values, ...units].map((row) => row[at] ?? '').filter((text) => text !== '');
    yield { found: { key, members: { column: hasHeader ? name : at + 1 }, sample: texts.join(' ') } };
  }
  yield { done: names.length, total: names.length };
}

function* scanRows({ first }: FileHead, rows: Rows): Generator<ScanStep> {
  const columns = ['tag', 'key', 'value'].map((name) => first.indexOf(name));
  const seen = new Set<string>();
  for (const row of rows) {
    const [tag, key, sample = ''] = columns.map((at) => row[at]);
    if (!tag || !key || seen.has(`${tag} ${key}`)) continue;
    seen.add(`${tag} ${key}`);
    yield { found: { tag, key, members: {}, sample } };
  }
  yield { done: rows.length, total: rows.length };
}

/** Returns the members that tags.yaml does not contain and that make the file readable. */
function proposeMembers(spec: CsvSpec, { first }: FileHead, rows: Rows): ProposedMembers {
  const unitsRow = spec.unitsRow === undefined && spec.hasHeader ? unitsRowOf(rows, spec) : 0;
  const values = rows.slice(unitsRow);
  const names = spec.hasHeader ? first : [];
  const written = spec.timeColumns.map((column) => (typeof column === 'number' ? column - 1 : names.indexOf(column)));
  const time = timeOf(spec, values, written);
  const timeAt = time?.at ?? written;
  const columns = written.length > 0 ? [] : timeAt.map((at) => names[at] || at + 1);
  const members: ProposedMembers = unitsRow > 0 ? { units_row: unitsRow } : {};
  addNumberMembers(
    members,
    spec,
    values.flatMap((row) => row.filter((_, at) => !timeAt.includes(at))),
  );
  if (columns.length > 0) members.time_column = columns.length === 1 ? columns[0]! : columns;
  if (time?.format !== undefined) members.time_format = time.format;
  return members;
}

/** Returns the number of rows without numbers and times before the first row of values. */
function unitsRowOf(rows: Rows, spec: CsvSpec): number {
  const time = new TimeReader(spec.time);
  const at = rows.findIndex((row) => row.some((cell) => LOOKS_NUMERIC.test(cell) || time.read(cell) !== undefined));
  return at <= MAX_UNITS_ROWS ? Math.max(0, at) : 0;
}

interface FoundTime {
  /** Indices of the columns. */
  at: readonly number[];
  /** `undefined`: no format is needed. */
  format: string | undefined;
}

/** Returns the columns and the format of the time, if all rows have one. */
function timeOf({ time }: CsvSpec, rows: Rows, written: readonly number[]): FoundTime | undefined {
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
    const isReadBy = (format: string | undefined) => {
      const reader = new TimeReader({ ...time, ...(format === undefined ? {} : { format }) });
      return texts.every((text) => reader.read(text) !== undefined);
    };
    if (isReadBy(time.format)) return { at, format: undefined };
    if (time.format !== undefined) continue;
    const fitting = FORMATS.filter(isReadBy);
    // Without a day after the 12th, the order of day and month is unknown.
    const isAmbiguous = ['DD/', 'MM/'].every((start) => fitting.some((format) => format.startsWith(start)));
    if (fitting.length > 0) return { at, format: isAmbiguous ? undefined : fitting[0] };
  }
  return undefined;
}

/** Adds the decimal and thousands separators that the cells use and that the source does not name. */
function addNumberMembers(members: ProposedMembers, spec: CsvSpec, cells: readonly string[]): void {
  const texts = cells.filter((cell) => LOOKS_NUMERIC.test(cell)).map((cell) => cell.replace(/^[+-]/, ''));
  const has = (pattern: string) => texts.some((text) => new RegExp(`^${pattern}$`).test(text));
  const groups = (mark: string, count = '+') => `\\d{1,3}(?:${mark}\\d{3})${count}`;
  const isComma =
    spec.decimal === ',' ||
    has(`${groups('\\.')},\\d+`) ||
    has(`${groups(`(?:${SPACE}|${APOSTROPHE})`)},\\d+`) ||
    // Three digits after a comma can be a group.
    (has('(?:\\d+,(?:\\d{1,2}|\\d{4,})|0,\\d+|\\d{4,},\\d+)') && !has('\\d+\\.\\d+'));
  const [decimal, other] = isComma ? [',', '\\.'] : ['\\.', ','];
  const found: [Thousands, boolean][] = [
    // With a decimal comma, a point can only separate groups.
    [
      isComma ? '.' : ',',
      has(`${groups(other)}${decimal}\\d+`) || has(groups(other, '{2,}')) || (isComma && has(groups(other))),
    ],
    [' ', has(`${groups(SPACE)}(?:[.,]\\d+)?`)],
    ["'", has(`${groups(APOSTROPHE)}(?:[.,]\\d+)?`)],
  ];
  const thousands = found.find(([, isFound]) => isFound)?.[0];
  if (isComma && spec.decimal === '.') members.decimal = ',';
  if (thousands !== undefined && spec.thousands === undefined) members.thousands = thousands;
}
