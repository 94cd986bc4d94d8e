/** Reads the header of a file and the readings in its rows, and counts them in the progress of the file. */
import { counted } from '../../base/amounts.ts';
import { plain } from '../../base/foreign-text.ts';
import { nearestName } from '../../base/nearest.ts';
import { quote } from '../intake/address-book.ts';
import type { Reading } from '../intake/gate.ts';
import type { LoggerTime, TimeReader } from '../intake/logger-time.ts';
import { UnreadableValues } from '../intake/problem-list.ts';
import { notANumber, numberOf, problemOfReading, shape } from '../intake/shaping.ts';
import { parseDecimal } from '../intake/text-parsers.ts';
import type { Point } from '../points.ts';
import { assertValid, type CsvPosition, CsvReader, type CsvRecord, recordsOf } from './csv.ts';
import type { FolderFile } from './folder.ts';
import { type QualityMap, qualityOf } from './quality.ts';

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
  column?: ColumnName;
  /** Name in the name column. */
  name?: string;
  qualityColumn?: ColumnName;
}

/** Name or number of a column. */
export type ColumnName = string | number;

export type Thousands = '.' | ',' | ' ' | "'";

/** Returns why a timestamp is implausible, or `undefined` if it is plausible. */
type ProblemOfTime = (timeMs: number) => string | undefined;

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
  carriedMs?: number | null;
  /** Column names and separator, if the file does not begin with the header. */
  header?: { names: readonly string[]; separator: string };
  /** Problem of a later header without required columns. All rows below that header are rejected. */
  headerProblem?: string;
  /** Number of rows without values to skip: the header and the units rows below it. */
  rowsToSkip?: number;
  /** Name relative to the folder after the file was moved. */
  movedTo?: string;
  /** First and last lines with ambiguous (`twice`) or non-existent (`skipped`) local times. */
  twice?: [number, number];
  skipped?: [number, number];
  /** Whether all rows have been read, so that only the move remains. */
  isRead?: true;
  /** Problem that ended the reading of the file. */
  failure?: string;
  /** Hash of the first bytes and those before the position, which detects that a growing file was rewritten. */
  mark?: string;
}

const MAX_PROBLEMS = 50;
const MAX_UNUSED_NAMES = 10;
/** Maximum length of a text in `quality_map`. */
const MAX_QUALITY = 64;
/** Texts that YAML reads as they are written. */
const IS_PLAIN_KEY = /^(?!(?:true|false|null|yes|no|on|off|y|n)$)(?:0|[1-9]\d{0,8}|[a-z]\w{0,63})$/i;
/** Characters that separate groups of three digits, as in a regular expression. */
const GROUP_MARKS: Readonly<Record<Thousands, string>> = {
  '.': '\\.',
  ',': ',',
  ' ': '[ \\u00a0\\u202f]',
  "'": "['\\u2019]",
};

/** `listed`: name, identity, size and time of the file. */
export function initialProgress(listed: FolderFile): FileProgress {
  return { ...listed, position: 0, line: 1, rows: 0, values: 0, refused: 0, problems: [] };
}

/** Returns `undefined` for text written in a different format by another agent version. */
export function parseProgress(text: string): FileProgress | undefined {
  try {
    const found = JSON.parse(text) as FileProgress;
    return typeof found.position === 'number' && Array.isArray(found.problems) ? found : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Reads the header of a file. Returns `undefined` if the header is incomplete, or the `previous` columns if the file
 * was truncated and begins with a row.
 */
export async function readColumns(
  spec: CsvSpec,
  time: TimeReader,
  points: readonly Point<CsvValue>[],
  chunks: AsyncIterable<Uint8Array>,
  isComplete: boolean,
  previous?: FileColumns,
): Promise<FileColumns | undefined> {
  const reader = new CsvReader(spec);
  let names: string[] | undefined;
  let unitsRows = 0;
  for await (const record of recordsOf(chunks, reader, isComplete)) {
    if (previous?.isRow(record.fields)) return previous;
    if (!spec.hasHeader) return new FileColumns(spec, time, points, [], reader.separator!);
    if (names === undefined) names = assertValid(record).fields.map((name) => name.trim());
    else unitsRows++;
    if (unitsRows === spec.unitsRow) return new FileColumns(spec, time, points, names, reader.separator!);
  }
  return undefined;
}

export class FileColumns {
  readonly #spec: CsvSpec;
  readonly #points: readonly Point<CsvValue>[];
  readonly #time: TimeReader;
  readonly #number: (text: string) => number;
  /** Points by the text that identifies them in a row of the long format. */
  readonly #byName: ReadonlyMap<string, Point<CsvValue>[]>;
  readonly separator: string;
  names: readonly string[] = [];
  #timeAt: readonly number[] = [];
  #wide: readonly { point: Point<CsvValue>; at: number; qualityAt: number | undefined }[] = [];
  /** Indexes of the columns in the long format. The last one contains the value, and the others its name. */
  #long: readonly number[] | undefined;
  #qualityAt: number | undefined;
  /** Index of the first column that contains a value. */
  #firstAt = 0;
  /** Problems of values that have no column in the file, or several. */
  missing: string[] = [];
  /** Latest time since the reader of the rows cleared this member, unless the source has a time zone. */
  latest: { text: string; timeMs: number } | undefined;

  /** Throws `UnreadableValues` if a configured column is missing. */
  constructor(
    spec: CsvSpec,
    time: TimeReader,
    points: readonly Point<CsvValue>[],
    names: readonly string[],
    separator: string,
  ) {
    this.#spec = spec;
    this.#points = points;
    this.separator = separator;
    this.#time = time;
    this.#number = numberReader(spec.decimal, spec.thousands);
    const nameOf = ({ name, spec: { name: written } }: Point<CsvValue>) => written ?? lastWordOf(name);
    this.#byName = Map.groupBy(points, (point) => (spec.nameColumn === undefined ? point.name : nameOf(point)));
    this.#locate(names);
  }

  #locate(names: readonly string[]): void {
    const { timeColumns, form, nameColumn, valueColumn, qualityColumn } = this.#spec;
    const listed = names.length > 0 ? `; columns: ${names.slice(0, 20).join(', ')}` : '';
    const placeOf = (column: ColumnName) => (typeof column === 'number' ? column - 1 : names.indexOf(column));
    const problemOf = (column: ColumnName) => {
      if (placeOf(column) < 0) return `no column "${column}"`;
      const count = names.filter((name) => name === column).length;
      return count > 1 ? `${count} columns "${column}", specify a column number` : undefined;
    };
    const indexOf = (column: ColumnName, use: string) => {
      const problem = problemOf(column);
      if (problem !== undefined) throw new UnreadableValues(`the header has ${problem} (${use})${listed}`);
      return placeOf(column);
    };
    const timeAt = timeColumns.map((column) => indexOf(column, 'time_column'));
    const qualityAt = qualityColumn === undefined ? undefined : indexOf(qualityColumn, 'quality_column');
    const missing: string[] = [];
    const wide: { point: Point<CsvValue>; at: number; qualityAt: number | undefined }[] = [];
    if (form === 'long') {
      const nameAt =
        nameColumn === undefined
          ? ['tag', 'key'].map((name) => indexOf(name, 'the long form'))
          : [indexOf(nameColumn, 'name_column')];
      this.#long = [...nameAt, indexOf(valueColumn ?? 'value', 'value_column')];
    } else {
      for (const point of this.#points) {
        const { column = lastWordOf(point.name), qualityColumn: own } = point.spec;
        const problem = problemOf(column) ?? (own === undefined ? undefined : problemOf(own));
        if (problem !== undefined) missing.push(`${point.name}: the header has ${problem}`);
        else wide.push({ point, at: placeOf(column), qualityAt: own === undefined ? qualityAt : placeOf(own) });
      }
      if (this.#points.length > 0 && wide.length === 0) {
        const [problem] = missing;
        throw new UnreadableValues(`the header has no column that tags.yaml uses (${problem})${listed}`);
      }
    }
    this.names = names;
    this.#timeAt = timeAt;
    this.#qualityAt = qualityAt;
    this.#wide = wide;
    this.#firstAt = Math.min(...(this.#long ?? wide.map(({ at }) => at)));
    this.missing = missing;
  }

  /**
   * Adds the readings of a row. Returns the problem if the entire row is rejected. `problemOfTime` returns why a
   * timestamp is implausible.
   */
  read(
    record: CsvRecord,
    progress: FileProgress,
    readings: Reading[],
    problemOfTime: ProblemOfTime,
  ): string | undefined {
    if (progress.rowsToSkip) {
      progress.rowsToSkip--;
      return undefined;
    }
    const { line, fields } = record;
    let problem = record.problem ?? this.#readTime(fields, line, progress, problemOfTime);
    // Without a time column, only the names of the value columns identify a header.
    const isSuspect = problem !== undefined || this.#timeAt.length === 0 || fields.length > this.names.length;
    if (isSuspect && this.#isHeader(fields)) return this.#changeHeader(record, progress);
    progress.rows++;
    problem ??= progress.headerProblem ?? this.#problemOfCells(fields);
    const add = (point: Point<CsvValue>, at: number, qualityAt: number | undefined) => {
      const cell = {
        text: cellAt(fields, at),
        quality: qualityAt === undefined ? undefined : cellAt(fields, qualityAt),
      };
      this.#readCell(point, cell, line, progress, readings);
    };
    if (problem === undefined && this.#long) {
      const name = this.#long.slice(0, -1).map((at) => cellAt(fields, at));
      const points = this.#byName.get(name.join(' '));
      if (points) for (const point of points) add(point, this.#long.at(-1)!, this.#qualityAt);
      else if (this.#spec.nameColumn === undefined) problem = this.#unknownName(name.join(' '));
      else addUnused(progress, name.join(' '));
    }
    if (problem !== undefined) {
      addProblem(progress, line, problem);
      return problem;
    }
    for (const { point, at, qualityAt } of this.#wide) add(point, at, qualityAt);
    return undefined;
  }

  /** Returns whether the cells belong to a row with values, not to a header. */
  isRow(fields: readonly string[]): boolean {
    if (this.#timeAt.length > 0) return this.#time.read(this.#timeText(fields)) !== undefined;
    const cells = this.#wide.map(({ at }) => cellAt(fields, at)).filter((cell) => cell !== '');
    return cells.length > 0 && cells.every((cell) => Number.isFinite(this.#number(cell)));
  }

  #timeText(fields: readonly string[]): string {
    if (this.#timeAt.length === 1) return cellAt(fields, this.#timeAt[0]!);
    return this.#timeAt
      .map((at) => cellAt(fields, at))
      .join(' ')
      .trim();
  }

  /** Returns the problem of the timestamp, or `undefined` if it is valid or there is no time column. */
  #readTime(
    fields: readonly string[],
    line: number,
    progress: FileProgress,
    problemOfTime: ProblemOfTime,
  ): string | undefined {
    if (this.#timeAt.length === 0) return undefined;
    const text = this.#timeText(fields);
    const time = this.#time.read(text, progress.afterMs, this.#long !== undefined);
    if (time === undefined) return `"${text.slice(0, 40)}" does not match the time format`;
    const problem = problemOfTime(time.timeMs);
    if (problem !== undefined) return problem;
    progress.afterMs = time.timeMs;
    const isLatest = this.latest === undefined || time.timeMs > this.latest.timeMs;
    if (isLatest && this.#spec.time.zone === undefined) this.latest = { text, timeMs: time.timeMs };
    if (time.shift) progress[time.shift] = [progress[time.shift]?.[0] ?? line, line];
    return undefined;
  }

  /** Returns whether a row contains the names of the time columns or, without time columns, of all value columns. */
  #isHeader(fields: readonly string[]): boolean {
    if (this.names.length === 0 || fields.length === 0) return false;
    const columns = this.#timeAt.length > 0 ? this.#timeAt : (this.#long ?? this.#wide.map(({ at }) => at));
    const cells = fields.map((field) => field.trim());
    return columns.every((at) => this.names[at] !== undefined && cells.includes(this.names[at]));
  }

  /** Reads a header in the middle of a file. If required columns are missing, the rows below it are rejected. */
  #changeHeader({ fields, line }: CsvRecord, progress: FileProgress): string | undefined {
    const names = fields.map((name) => name.trim());
    progress.rowsToSkip = this.#spec.unitsRow;
    try {
      this.#locate(names);
      progress.header = { names, separator: this.separator };
      delete progress.headerProblem;
      for (const problem of this.missing) addProblem(progress, line, problem);
    } catch (error) {
      if (!(error instanceof UnreadableValues)) throw error;
      progress.headerProblem = `line ${line}: ${error.message}`;
    }
    return undefined;
  }

  #problemOfCells(fields: readonly string[]): string | undefined {
    const { length } = this.names;
    const has = `has ${counted(fields.length, 'cell')}`;
    if (fields.length <= this.#firstAt) return `${has}, but the first value is in column ${this.#firstAt + 1}`;
    if (length === 0 || fields.length <= length || fields.slice(length).every((field) => field.trim() === '')) {
      return undefined;
    }
    return `${has}, but the header has ${length}; if the numbers contain decimal commas, set decimal: "," and let the writer quote them or use another separator`;
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

  /** `cell`: text of the value, and of its quality if there is a column for it. */
  #readCell(
    point: Point<CsvValue>,
    cell: { text: string; quality: string | undefined },
    line: number,
    progress: FileProgress,
    readings: Reading[],
  ): void {
    const { text } = cell;
    const quality = cell.quality === undefined ? undefined : qualityOf(cell.quality, this.#spec.qualityMap);
    if (text === '' && quality !== 'bad') return;
    const { map, shaping } = point;
    const isKnownText = (map !== undefined && Object.hasOwn(map.numbers, text)) || shaping.noValue?.includes(text);
    const raw = isKnownText ? text : this.#number(text);
    const isNumber = Number.isFinite(raw) && (map === undefined || numberOf(raw, map) !== undefined);
    let problem: string | undefined;
    if (cell.quality !== undefined && quality === undefined) {
      const name = IS_PLAIN_KEY.test(cell.quality) ? cell.quality : JSON.stringify(cell.quality.slice(0, MAX_QUALITY));
      problem = `unknown quality ${quote(cell.quality)}; set quality_map, for example quality_map: { ${name}: bad }`;
    } else if (text === '') {
      problem = `no value, quality ${quote(cell.quality!)}`;
    } else if (!isNumber && typeof raw !== 'string') {
      problem = map === undefined ? this.#notANumber(text) : problemOfReading(text, map);
    } else if (shaping.noValue !== undefined || shaping.range !== undefined) {
      const shaped = shape(raw, point);
      if ('problem' in shaped) problem = shaped.problem;
    }
    const timeMs = this.#timeAt.length > 0 ? progress.afterMs : undefined;
    if (problem === undefined) {
      progress.values++;
      readings.push({ point, raw, timeMs, quality });
      return;
    }
    addProblem(progress, line, `${point.name}: ${problem}`);
    readings.push({ point, failure: plain(`line ${line}: ${problem}`), timeMs });
  }
}

/** Returns the key in the name of a point. */
function lastWordOf(name: string): string {
  return name.slice(name.lastIndexOf(' ') + 1);
}

/** Separators that a source lacks. */
export interface Separators {
  decimal?: ',' | undefined;
  thousands?: Thousands | undefined;
}

/** Returns the separators that the source lacks and with which all cells are numbers, most likely first. */
export function separatorsFor(cells: readonly string[], spec: Pick<CsvSpec, 'decimal' | 'thousands'>): Separators[] {
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

export function addProblem(progress: FileProgress, line: number, problem: string): void {
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
  const counts = unused === undefined ? `${refused} rejected` : `${refused} rejected, ${unused.rows} ignored`;
  const lines = [`${name}: ${counted(values, 'value')} of ${counted(rows, 'row', 'was', 'were')} stored, ${counts}.`];
  const isUnused = unused !== undefined && failure === textOfUnused(unused);
  if (failure !== undefined && !isUnused) lines.push(`Reading stopped: ${failure}`);
  if (twice) {
    lines.push(`Lines ${twice.join(' to ')}: an hour that occurred twice in ${zone}; times assigned in file order.`);
  }
  if (skipped) {
    lines.push(`Lines ${skipped.join(' to ')}: an hour skipped in ${zone}; times assigned as before the clock change.`);
  }
  if (unused) {
    lines.push(`Rows ignored: ${textOfUnused(unused)}`);
  }
  lines.push(...problems);
  if (refused > problems.length) lines.push(`… and ${refused - problems.length} more.`);
  return `${lines.join('\n')}\n`;
}
