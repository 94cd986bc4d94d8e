/** Reads the header of a file and the readings in its rows, and counts them in the progress of the file. */
import { counted } from '../../base/amounts.ts';
import { plain } from '../../base/foreign-text.ts';
import { nearestName } from '../../base/nearest.ts';
import { isValidTime } from '../intake/draft.ts';
import type { Reading } from '../intake/gate.ts';
import { UnreadableValues } from '../intake/problem-list.ts';
import { notANumber, numberOf, problemOfReading } from '../intake/shaping.ts';
import { parseDecimal } from '../intake/text-parsers.ts';
import type { Point } from '../points.ts';
import { assertValid, type CsvPosition, CsvReader, type CsvRecord, recordsOf } from './csv.ts';
import type { FolderFile } from './folder.ts';
import type { LoggerTime, TimeReader } from './logger-time.ts';

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
  timeColumns: readonly (string | number)[];
  time: LoggerTime;
  tail: boolean;
  settleMs: number;
  /** 0 means no limit. */
  keepMs: number;
}

export interface CsvValue {
  column?: string | number;
}

export type Thousands = '.' | ',' | ' ' | "'";

/** Progress of reading a file, stored with its values. The position is the one after the latest accepted record. */
export interface FileProgress extends FolderFile, CsvPosition {
  rows: number;
  values: number;
  refused: number;
  /** First problems of rejected rows. */
  problems: string[];
  /** Time of the last row. */
  afterMs?: number;
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
/** Characters that separate groups of three digits, as in a regular expression. */
export const GROUP_MARKS: Readonly<Record<Thousands, string>> = {
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

/** Reads the header of a file. Returns `undefined` if it is incomplete. */
export async function readColumns(
  spec: CsvSpec,
  time: TimeReader,
  points: readonly Point<CsvValue>[],
  chunks: AsyncIterable<Uint8Array>,
  isComplete: boolean,
): Promise<FileColumns | undefined> {
  const reader = new CsvReader(spec);
  let names: string[] | undefined;
  let unitsRows = 0;
  for await (const record of recordsOf(chunks, reader, isComplete)) {
    if (!spec.hasHeader) return new FileColumns(spec, time, points, [], reader.separator!);
    if (names === undefined) names = assertValid(record).fields.map((name) => name.trim());
    else unitsRows++;
    if (unitsRows === spec.unitsRow) return new FileColumns(spec, time, points, names, reader.separator!);
  }
  return undefined;
}

export class FileColumns {
  readonly #time: TimeReader;
  readonly #number: (text: string) => number;
  readonly #timeAt: readonly number[];
  readonly #wide: { point: Point<CsvValue>; at: number }[] = [];
  /** Indexes of the tag, key and value columns in the long format. */
  readonly #long: readonly number[] | undefined;
  readonly #byName: ReadonlyMap<string, Point<CsvValue>>;
  /** Values without a column in the files. */
  readonly missing: string[] = [];
  readonly separator: string;

  /** Throws `UnreadableValues` if a configured column is missing. */
  constructor(
    spec: CsvSpec,
    time: TimeReader,
    points: readonly Point<CsvValue>[],
    names: readonly string[],
    separator: string,
  ) {
    this.separator = separator;
    this.#time = time;
    this.#number = numberReader(spec.decimal, spec.thousands);
    const listed = names.length > 0 ? `; columns: ${names.slice(0, 20).join(', ')}` : '';
    const indexOf = (column: string | number, use: string) => {
      const at = typeof column === 'number' ? column - 1 : names.indexOf(column);
      if (at < 0) throw new UnreadableValues(`the header has no column "${column}" (${use})${listed}`);
      return at;
    };
    this.#timeAt = spec.timeColumns.map((column) => indexOf(column, 'time_column'));
    this.#byName = new Map(points.map((point) => [point.name, point]));
    if (spec.form === 'long') {
      this.#long = ['tag', 'key', 'value'].map((name) => indexOf(name, 'the long form'));
      return;
    }
    for (const point of points) {
      const column = point.spec.column ?? point.name.slice(point.name.lastIndexOf(' ') + 1);
      const at = typeof column === 'number' ? column - 1 : names.indexOf(column);
      if (at < 0) this.missing.push(`${point.name} (${column})`);
      else this.#wide.push({ point, at });
    }
    if (points.length > 0 && this.#wide.length === 0) {
      throw new UnreadableValues(`the header has no column that tags.yaml uses${listed}`);
    }
  }

  /** Adds the readings of a row. Returns the problem if the whole row is rejected. */
  read(record: CsvRecord, progress: FileProgress, readings: Reading[]): string | undefined {
    const { line, fields } = record;
    progress.rows++;
    let { problem } = record;
    if (problem === undefined && this.#timeAt.length > 0) {
      const text = this.#timeAt
        .map((at) => cellAt(fields, at))
        .join(' ')
        .trim();
      const time = this.#time.read(text, progress.afterMs, this.#long !== undefined);
      if (time === undefined) problem = `"${text.slice(0, 40)}" does not match the time format`;
      else if (!isValidTime(time.timeMs)) problem = 'the time must be between 1970 and 9999';
      else {
        progress.afterMs = time.timeMs;
        if (time.shift) progress[time.shift] = [progress[time.shift]?.[0] ?? line, line];
      }
    }
    if (problem === undefined && this.#long) {
      const [tag, key, value] = this.#long.map((at) => cellAt(fields, at));
      const point = this.#byName.get(`${tag} ${key}`);
      if (point) this.#readCell(point, value!, line, progress, readings);
      else problem = this.#unknownName(`${tag} ${key}`);
    }
    if (problem !== undefined) {
      addProblem(progress, line, problem);
      return problem;
    }
    for (const { point, at } of this.#wide) this.#readCell(point, cellAt(fields, at), line, progress, readings);
    return undefined;
  }

  #unknownName(name: string): string {
    const nearest = nearestName(name, [...this.#byName.keys()]);
    const suggestion = nearest?.likely ? `; did you mean "${nearest.name}"?` : '';
    return `no value "${name.slice(0, 80)}" of this source in tags.yaml${suggestion}`;
  }

  #readCell(point: Point<CsvValue>, text: string, line: number, progress: FileProgress, readings: Reading[]): void {
    if (text === '') return;
    const { map } = point;
    const raw = map !== undefined && Object.hasOwn(map.numbers, text) ? text : this.#number(text);
    const isNumber = Number.isFinite(raw) && (map === undefined || numberOf(raw, map) !== undefined);
    if (isNumber || typeof raw === 'string') {
      progress.values++;
      readings.push({ point, raw, timeMs: this.#timeAt.length > 0 ? progress.afterMs : undefined });
      return;
    }
    const problem = map === undefined ? `"${text.slice(0, 40)}" ${notANumber(text)}` : problemOfReading(text, map);
    addProblem(progress, line, `${point.name}: ${problem}`);
    readings.push({ point, failure: plain(`line ${line}: ${problem}`) });
  }
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

/** Returns the text of the report stored next to a file in `done/` or `failed/`. */
export function reportText(progress: FileProgress, zone: string): string {
  const { name, rows, values, refused, problems, twice, skipped, failure } = progress;
  const lines = [
    `${name}: ${counted(values, 'value')} of ${counted(rows, 'row', 'was', 'were')} stored, ${refused} rejected.`,
  ];
  if (failure !== undefined) lines.push(`Reading stopped: ${failure}`);
  if (twice) {
    lines.push(`Lines ${twice.join(' to ')}: an hour that occurred twice in ${zone}; times assigned in file order.`);
  }
  if (skipped) {
    lines.push(`Lines ${skipped.join(' to ')}: an hour skipped in ${zone}; times assigned as before the clock change.`);
  }
  lines.push(...problems);
  if (refused > problems.length) lines.push(`… and ${refused - problems.length} more.`);
  return `${lines.join('\n')}\n`;
}
