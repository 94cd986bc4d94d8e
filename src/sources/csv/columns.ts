/**
 * Reads the rows of files: headers, times, values and qualities. Everything that depends on earlier rows is in the
 * progress of the file, which is stored with the values.
 */
import { counted, countText } from '../../base/amounts.ts';
import { plain } from '../../base/foreign-text.ts';
import { nearestName } from '../../base/nearest.ts';
import { quote } from '../intake/address-book.ts';
import type { Quality, Reading } from '../intake/gate.ts';
import type { LoggerTime, TimeReader } from '../intake/logger-time.ts';
import { UnreadableValues } from '../intake/problem-list.ts';
import { notANumber, numberOf, problemOfReading, shape } from '../intake/shaping.ts';
import { parseDecimal, parseQuality } from '../intake/text-parsers.ts';
import type { Point } from '../points.ts';
import { assertValid, type CsvPosition, type CsvRecord } from './csv.ts';
import type { FolderFile } from './folder.ts';

export type QualityMap = Readonly<Record<string, Quality>>;

/** A CSV source. The members of tags.yaml with the same names describe the fields. */
export interface CsvSpec {
  folder: string;
  pattern: string;
  separator: string | undefined;
  decimal: '.' | ',';
  thousands: Thousands | undefined;
  encoding: string;
  skipLines: number;
  hasHeader: boolean;
  unitsRow: number;
  form: 'wide' | 'long';
  /** Columns of the name and the value in the long format. Default: `tag` and `key`, and `value`. */
  nameColumn: ColumnName | undefined;
  valueColumn: ColumnName | undefined;
  qualityColumn: ColumnName | undefined;
  qualityMap: QualityMap | undefined;
  timeColumns: readonly ColumnName[];
  time: LoggerTime;
  tail: boolean;
  /** Whether a last line without a line ending is read. */
  isLastLineRead: boolean;
  settleMs: number;
  /** 0 means no limit. */
  keepMs: number;
}

export interface CsvValue {
  column?: ColumnName | undefined;
  /** Name in the name column. */
  name?: string | undefined;
  qualityColumn?: ColumnName | undefined;
}

/** Name or number of a column. */
export type ColumnName = string | number;

export type Thousands = '.' | ',' | ' ' | "'";

/** Progress of reading a file, stored with its values. The position is the one after the latest accepted record. */
export interface FileProgress extends FolderFile, CsvPosition {
  rows: number;
  values: number;
  refused: number;
  /** First problems of rejected rows. */
  problems: string[];
  /** Number of rows whose names tags.yaml does not contain, and the first of these names. */
  unused?: { rows: number; names: string[] };
  /** Time of the last row, or of the last row of the previous file. */
  afterMs?: number | undefined;
  /** Time of the last row of the previous file at the time when reading of this file began. */
  carriedMs?: number | null | undefined;
  /** Column names of the latest header. Empty for files without a header; `undefined` before the first row. */
  names?: readonly string[];
  /** Column names before a growing file was truncated. Used if the truncated file does not begin with a header. */
  previousNames?: readonly string[] | undefined;
  /** Problem of a later header without required columns. All rows below that header are rejected. */
  headerProblem?: string;
  /** Number of rows below the latest header to skip, because they contain units. */
  rowsToSkip?: number;
  /** Latest time without a UTC offset, unless the source has a time zone. */
  latest?: { text: string; timeMs: number } | undefined;
  /** Latest local time that does not exist in the time zone, until it is reported. */
  nonexistent?: { text: string; timeMs: number } | undefined;
  /** Name relative to the folder after the file was moved. */
  movedTo?: string;
  /** First and last lines with ambiguous (`twice`) or non-existent (`skipped`) local times. */
  twice?: [number, number];
  skipped?: [number, number];
  /** Whether all rows have been read, so that only the move remains. */
  isRead?: boolean;
  /** Problem that ended the reading of the file. */
  failure?: string | undefined;
  /** Hash of the bytes before the position, which detects that a file was rewritten. */
  mark?: string;
  /** Settings by which the file was split into cells. */
  format?: string;
}

const MAX_PROBLEMS = 50;
const MAX_UNUSED_NAMES = 10;
/** Maximum length of the column names in a problem, because a file that is not CSV can begin with a long line. */
const MAX_LISTED = 400;
/** Characters that separate groups of three digits, as in a regular expression. */
const GROUP_MARKS: Readonly<Record<Thousands, string>> = {
  '.': '\\.',
  ',': ',',
  ' ': '[ \\u00a0\\u202f]',
  "'": "['\\u2019]",
};

/** Returns the progress of a file that is read from its beginning. `file`: a listed file, or its previous progress. */
export function initialProgress(file: FolderFile & Pick<FileProgress, 'carriedMs'>): FileProgress {
  const { name, size, mtimeMs, identity, carriedMs } = file;
  const start = { position: 0, line: 1, rows: 0, values: 0, refused: 0, problems: [] };
  return { name, size, mtimeMs, identity, carriedMs, ...start };
}

/** Columns that a source uses, as indexes in a row. */
interface Columns {
  names: readonly string[];
  timeAt: readonly number[];
  wide: readonly { point: Point<CsvValue>; at: number; qualityAt: number | undefined }[];
  /** Columns of the long format. The final column contains the value, and the others contain the name. */
  long: readonly number[];
  qualityAt: number | undefined;
  /** First column that contains a value. */
  firstAt: number;
  /** Problems of values that have no column in the file, or several columns. */
  missing: readonly string[];
}

/** Finds the columns of a source in a header. Throws `UnreadableValues` if a required column is missing. */
function locateColumns(spec: CsvSpec, points: readonly Point<CsvValue>[], names: readonly string[]): Columns {
  const listed = names.length > 0 ? `; columns: ${names.join(', ').slice(0, MAX_LISTED)}` : '';
  const problemOf = (column: ColumnName) => {
    if (indexOf(names, column) < 0) return `no column "${column}"`;
    const count = names.filter((name) => name === column).length;
    return count > 1 ? `${count} columns "${column}", specify a column number` : undefined;
  };
  const required = (column: ColumnName, use: string) => {
    const problem = problemOf(column);
    if (problem !== undefined) throw new UnreadableValues(`the header has ${problem} (${use})${listed}`);
    return indexOf(names, column);
  };
  const { nameColumn, valueColumn = 'value', qualityColumn } = spec;
  const timeAt = spec.timeColumns.map((column) => required(column, 'time_column'));
  const qualityAt = qualityColumn === undefined ? undefined : required(qualityColumn, 'quality_column');
  if (spec.form === 'long') {
    const named = nameColumn === undefined ? ['tag', 'key'] : [nameColumn];
    const nameAt = named.map((name) => required(name, nameColumn === undefined ? 'the long form' : 'name_column'));
    const long = [...nameAt, required(valueColumn, 'value_column')];
    return { names, timeAt, wide: [], long, qualityAt, firstAt: Math.min(...long), missing: [] };
  }
  const missing: string[] = [];
  const wide = points.flatMap((point) => {
    const { column = lastWordOf(point.name), qualityColumn: own } = point.spec;
    const problem = problemOf(column) ?? (own === undefined ? undefined : problemOf(own));
    if (problem !== undefined) missing.push(`${point.name}: the header has ${problem}`);
    const found = { point, at: indexOf(names, column), qualityAt: own === undefined ? qualityAt : indexOf(names, own) };
    return problem === undefined ? [found] : [];
  });
  if (points.length > 0 && wide.length === 0) {
    throw new UnreadableValues(`the header has no column that tags.yaml uses (${missing[0]})${listed}`);
  }
  const firstAt = Math.min(...wide.map(({ at }) => at));
  return { names, timeAt, wide, long: [], qualityAt, firstAt, missing };
}

/** Returns the index of a column, or -1 if the header does not contain it. */
export function indexOf(names: readonly string[], column: ColumnName): number {
  return typeof column === 'number' ? column - 1 : names.indexOf(column);
}

/** Reads the rows in all files of one source. */
export class RowReader {
  readonly #spec: CsvSpec;
  readonly #time: TimeReader;
  readonly #points: readonly Point<CsvValue>[];
  /** Returns why a timestamp is implausible, or `undefined` if it is plausible. */
  readonly #problemOfTime: (timeMs: number) => string | undefined;
  readonly #number: (text: string) => number;
  /** Points by the text that identifies them in a row of the long format. */
  readonly #byName: ReadonlyMap<string, Point<CsvValue>[]>;
  #columns: Columns | undefined;

  constructor(
    spec: CsvSpec,
    time: TimeReader,
    points: readonly Point<CsvValue>[],
    problemOfTime: (timeMs: number) => string | undefined,
  ) {
    this.#spec = spec;
    this.#time = time;
    this.#points = points;
    this.#problemOfTime = problemOfTime;
    this.#number = numberReader(spec.decimal, spec.thousands);
    const nameOf = ({ name, spec: { name: written } }: Point<CsvValue>) => written ?? lastWordOf(name);
    this.#byName = Map.groupBy(points, (point) => (spec.nameColumn === undefined ? point.name : nameOf(point)));
  }

  /**
   * Adds the readings of a row. Returns the problem if the entire row is rejected. Throws `UnreadableValues` if the first
   * header of a file is unusable.
   */
  read(record: CsvRecord, progress: FileProgress, readings: Reading[]): string | undefined {
    if (progress.names === undefined && this.#isFirstHeader(record, progress)) {
      this.#readHeader(assertValid(record), progress, true);
      return undefined;
    }
    if (progress.rowsToSkip) {
      progress.rowsToSkip--;
      return undefined;
    }
    const { line, fields } = record;
    const columns = this.#columnsOf(progress.names!);
    progress.names = columns.names;
    const { timeAt, names, long, wide, qualityAt } = columns;
    let problem = record.problem ?? this.#readTime(record, timeAt, progress);
    // Without a time column, only the names of the value columns identify a header.
    const isSuspect = problem !== undefined || timeAt.length === 0 || fields.length > names.length;
    if (isSuspect && isHeader(columns, fields)) {
      this.#readHeader(record, progress, false);
      return undefined;
    }
    progress.rows++;
    problem ??= progress.headerProblem ?? problemOfCells(columns, fields);
    // Without a header, the first valid row determines the number of columns.
    if (problem === undefined && names.length === 0) progress.names = fields.map(() => '');
    if (problem === undefined && long.length > 0) {
      const name = joinedCells(long.slice(0, -1), fields);
      const points = this.#byName.get(name);
      for (const point of points ?? []) {
        this.#readCell({ point, at: long.at(-1)!, qualityAt }, record, progress, readings);
      }
      if (points === undefined && this.#spec.nameColumn === undefined) problem = this.#unknownName(name);
      else if (points === undefined) addUnused(progress, name);
    }
    if (problem !== undefined) {
      addProblem(progress, line, problem);
      return problem;
    }
    for (const column of wide) this.#readCell(column, record, progress, readings);
    return undefined;
  }

  /** Returns the columns of a header. Consecutive files usually have the same header. Names contain no NUL. */
  #columnsOf(names: readonly string[]): Columns {
    const known = this.#columns;
    if (known?.names === names || known?.names.join('\0') === names.join('\0')) return known!;
    this.#columns = locateColumns(this.#spec, this.#points, names);
    return this.#columns;
  }

  /** Returns whether the first row of a file is its header. Otherwise, sets the names of the columns. */
  #isFirstHeader({ fields }: CsvRecord, progress: FileProgress): boolean {
    const { previousNames } = progress;
    delete progress.previousNames;
    if (previousNames !== undefined && this.#isRow(this.#columnsOf(previousNames), fields)) {
      progress.names = previousNames;
    } else if (!this.#spec.hasHeader) {
      progress.names = [];
    }
    return progress.names === undefined;
  }

  /** Returns whether the cells belong to a row with values, not to a header. */
  #isRow({ timeAt, wide }: Columns, fields: readonly string[]): boolean {
    if (timeAt.length > 0) return this.#time.read(joinedCells(timeAt, fields)) !== undefined;
    const cells = wide.map(({ at }) => cellAt(fields, at)).filter((cell) => cell !== '');
    return cells.length > 0 && cells.every((cell) => Number.isFinite(this.#number(cell)));
  }

  /** If a later header lacks required columns, the rows below it are rejected. */
  #readHeader({ fields, line }: CsvRecord, progress: FileProgress, isFirst: boolean): void {
    progress.rowsToSkip = this.#spec.unitsRow;
    try {
      const { names, missing } = this.#columnsOf(fields.map((name) => name.trim()));
      for (const problem of missing) addProblem(progress, line, problem);
      progress.names = names;
      delete progress.headerProblem;
    } catch (error) {
      if (isFirst || !(error instanceof UnreadableValues)) throw error;
      progress.headerProblem = `line ${line}: ${error.message}`;
    }
  }

  /** Returns the problem of the timestamp, or `undefined` if it is valid or there is no time column. */
  #readTime({ fields, line }: CsvRecord, timeAt: readonly number[], progress: FileProgress): string | undefined {
    if (timeAt.length === 0) return undefined;
    const text = joinedCells(timeAt, fields);
    const time = this.#time.read(text, progress.afterMs, this.#spec.form === 'long');
    if (time === undefined) return `"${text.slice(0, 40)}" does not match the time format`;
    const problem = this.#problemOfTime(time.timeMs);
    if (problem !== undefined) return problem;
    progress.afterMs = time.timeMs;
    const isLatest = progress.latest === undefined || time.timeMs > progress.latest.timeMs;
    if (isLatest && this.#spec.time.zone === undefined) progress.latest = { text, timeMs: time.timeMs };
    if (time.shift === 'skipped') progress.nonexistent = { text, timeMs: time.timeMs };
    if (time.shift) progress[time.shift] = [progress[time.shift]?.[0] ?? line, line];
    return undefined;
  }

  #readCell(
    { point, at, qualityAt }: Columns['wide'][number],
    { fields, line }: CsvRecord,
    progress: FileProgress,
    readings: Reading[],
  ): void {
    const text = cellAt(fields, at);
    const qualityText = qualityAt === undefined ? undefined : cellAt(fields, qualityAt);
    const quality = qualityText === undefined ? undefined : qualityOf(qualityText, this.#spec.qualityMap);
    if (text === '' && quality !== 'bad') return;
    const { map, shaping } = point;
    const isKnownText = (map !== undefined && Object.hasOwn(map.numbers, text)) || shaping.noValue?.includes(text);
    const raw = isKnownText ? text : this.#number(text);
    const isNumber = Number.isFinite(raw) && (map === undefined || numberOf(raw, map) !== undefined);
    let problem: string | undefined;
    if (qualityText !== undefined && quality === undefined) {
      const text = quote(qualityText);
      problem = `unknown quality ${text}; set quality_map: { ${text}: <good, uncertain or bad> }`;
    } else if (text === '') {
      problem = `no value, quality ${quote(qualityText!)}`;
    } else if (!isNumber && typeof raw !== 'string') {
      problem = map === undefined ? this.#notANumber(text) : problemOfReading(text, map);
    } else if (shaping.noValue !== undefined || shaping.range !== undefined) {
      const shaped = shape(raw, point);
      if ('problem' in shaped) problem = shaped.problem;
    }
    const timeMs = this.#spec.timeColumns.length > 0 ? progress.afterMs : undefined;
    if (problem === undefined) {
      progress.values++;
      readings.push({ point, raw, timeMs, quality });
      return;
    }
    addProblem(progress, line, `${point.name}: ${problem}`);
    readings.push({ point, failure: plain(`line ${line}: ${problem}`), timeMs });
  }

  #notANumber(text: string): string {
    const shown = `"${text.slice(0, 40)}"`;
    const isUsed = (mark: string | undefined) => mark === undefined || new RegExp(mark).test(text);
    const choices = separatorsFor([text], this.#spec)
      .filter(({ decimal, thousands }) => isUsed(decimal) && isUsed(thousands && GROUP_MARKS[thousands]))
      .map(({ decimal, thousands }) =>
        [decimal && 'decimal: ","', thousands && `thousands: "${thousands}"`].filter(Boolean).join(', '),
      );
    if (choices.length === 0) return `${shown} ${notANumber(text)}`;
    return `${shown} is not a number; set ${choices.join(' or ')}`;
  }

  #unknownName(name: string): string {
    const nearest = nearestName(name, [...this.#byName.keys()]);
    const suggestion = nearest?.likely ? `; did you mean "${nearest.name}"?` : '';
    return `no value "${name.slice(0, 80)}" of this source in tags.yaml${suggestion}`;
  }
}

/**
 * Returns whether a row contains the names of the time columns or, without time columns, of all value columns. Ignores
 * case, so that the rows below a header with other names are not read by the columns of the previous header.
 */
function isHeader({ names, timeAt, long, wide }: Columns, fields: readonly string[]): boolean {
  if (names.length === 0 || fields.length === 0) return false;
  const columns = timeAt.length > 0 ? timeAt : [...long, ...wide.map(({ at }) => at)];
  const cells = fields.map((field) => field.trim().toLowerCase());
  return columns.every((at) => names[at] && cells.includes(names[at].toLowerCase()));
}

function problemOfCells({ names, firstAt }: Columns, fields: readonly string[]): string | undefined {
  const { length } = names;
  const has = `has ${counted(fields.length, 'cell')}`;
  if (fields.length <= firstAt) return `${has}, but the first value is in column ${firstAt + 1}`;
  if (length === 0 || fields.length <= length || fields.slice(length).every((field) => field.trim() === '')) {
    return undefined;
  }
  const first = names.some((name) => name !== '') ? 'header' : 'first row';
  return `${has}, but the ${first} has ${length}; if the numbers contain decimal commas, set decimal: "," and let the writer quote them or use another separator`;
}

/** Returns a time or name from one or more cells, joined by spaces. */
export function joinedCells(columns: readonly number[], fields: readonly string[]): string {
  if (columns.length === 1) return cellAt(fields, columns[0]!);
  const cells = columns.map((at) => cellAt(fields, at));
  return cells.join(' ').trim();
}

/** Returns the quality that a cell represents: the one in `map`, or that of `parseQuality`. */
export function qualityOf(text: string, map: QualityMap | undefined): Quality | undefined {
  return map !== undefined && Object.hasOwn(map, text) ? map[text] : parseQuality(text);
}

/** Returns the key in the name of a point. */
function lastWordOf(name: string): string {
  return name.slice(name.lastIndexOf(' ') + 1);
}

/** Returns the separators that the source lacks and with which all cells are numbers, most likely first. */
export function separatorsFor(
  cells: readonly string[],
  spec: Pick<CsvSpec, 'decimal' | 'thousands'>,
): { decimal?: ','; thousands?: Thousands }[] {
  if (spec.thousands !== undefined) return [];
  const decimals = spec.decimal === ',' ? ([','] as const) : (['.', ','] as const);
  const choices = [undefined, ...(Object.keys(GROUP_MARKS) as Thousands[])].flatMap((thousands) =>
    decimals.filter((decimal) => decimal !== thousands).map((decimal) => ({ decimal, thousands })),
  );
  return choices
    .filter(({ decimal, thousands }) => {
      const read = numberReader(decimal, thousands);
      return cells.every((cell) => Number.isFinite(read(cell)));
    })
    .map(({ decimal, thousands }) => ({
      ...(decimal === spec.decimal || decimal === '.' ? {} : { decimal }),
      ...(thousands === undefined ? {} : { thousands }),
    }));
}

/** Returns a function that reads numbers with these separators, or NaN for other text. */
export function numberReader(decimal: '.' | ',', thousands: Thousands | undefined): (text: string) => number {
  // If the decimal separator is a comma, a point is a thousands separator or the result of a configuration error.
  const read = (text: string) => {
    if (decimal === '.') return parseDecimal(text);
    return text.includes('.') ? Number.NaN : parseDecimal(text.replace(',', '.'));
  };
  if (thousands === undefined) return read;
  const mark = new RegExp(GROUP_MARKS[thousands], 'g');
  const grouped = new RegExp(`^[+-]?[1-9]\\d{0,2}(?:${mark.source}\\d{3})+(?:\\${decimal}\\d*)?$`);
  return (text) => {
    if (text.search(mark) < 0) return read(text);
    return grouped.test(text) ? read(text.replaceAll(mark, '')) : Number.NaN;
  };
}

function cellAt(fields: readonly string[], at: number): string {
  return fields[at]?.trim() ?? '';
}

function addProblem(progress: FileProgress, line: number, problem: string): void {
  progress.refused++;
  if (progress.problems.length < MAX_PROBLEMS) progress.problems.push(`line ${line}: ${problem}`);
}

function addUnused(progress: FileProgress, name: string): void {
  progress.unused ??= { rows: 0, names: [] };
  const { names } = progress.unused;
  progress.unused.rows++;
  const shown = name.slice(0, 80);
  if (names.length < MAX_UNUSED_NAMES && !names.includes(shown)) names.push(shown);
}

export function textOfUnused({ names }: NonNullable<FileProgress['unused']>): string {
  return `tags.yaml contains no value of this source with the name ${names.map(quote).join(', ')}`;
}

/** Returns the text of the report stored next to a file in `done/` or `failed/`. */
export function reportText(progress: FileProgress, zone = 'UTC'): string {
  const { name, rows, values, refused, problems, unused, twice, skipped, failure } = progress;
  const counts = [
    `${counted(rows, 'row')} read`,
    `${counted(values, 'value')} stored`,
    `${countText(refused)} rejected`,
  ];
  if (unused !== undefined) counts.push(`${counted(unused.rows, 'row')} ignored`);
  const lines = [`${name}: ${counts.join(', ')}.`];
  if (failure !== undefined && unused === undefined) lines.push(`Reading stopped: ${failure}`);
  if (twice) {
    lines.push(`Lines ${twice.join(' to ')}: an hour that occurred twice in ${zone}; times assigned in file order.`);
  }
  if (skipped) {
    lines.push(`Lines ${skipped.join(' to ')}: an hour skipped in ${zone}; times assigned as before the clock change.`);
  }
  if (unused) lines.push(`Rows ignored: ${textOfUnused(unused)}`);
  lines.push(...problems);
  if (refused > problems.length) lines.push(`… and ${refused - problems.length} more.`);
  return `${lines.join('\n')}\n`;
}
