/** Maps file columns to values and parses rows. Pure. */
import { nearestName } from '../../base/nearest.ts';
import { isValidTime } from '../intake/draft.ts';
import { UnreadableValues } from '../intake/problem-list.ts';
import { notANumber, numberOf, problemOfReading, type RawReading } from '../intake/shaping.ts';
import { parseDecimal } from '../intake/text-parsers.ts';
import type { Point } from '../points.ts';
import { assertValid, type CsvRecord } from './csv.ts';
import { type LoggerTime, TimeReader } from './logger-time.ts';

/** A CSV source. The members of tags.yaml with the same names describe the fields. */
export interface CsvSpec {
  folder: string;
  pattern: string;
  separator?: string;
  decimal: '.' | ',';
  thousands?: Thousands;
  encoding: string;
  skipLines: number;
  hasHeader: boolean;
  unitsRow?: number;
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

/** One value cell: its reading, or the reason why it has none. */
type Cell = { point: Point<CsvValue> } & ({ raw: RawReading } | { problem: string });

interface Row {
  cells: Cell[];
  /** Undefined if the files contain no timestamps. */
  timeMs?: number | undefined;
  /** Set if the local time of the row is ambiguous or does not exist. */
  shift?: 'twice' | 'skipped' | undefined;
  /** Problem that invalidates the whole row. */
  problem?: string;
}

/** Characters that separate groups of three digits, as in a regular expression. */
const GROUP_MARKS: Readonly<Record<Thousands, string>> = {
  '.': '\\.',
  ',': ',',
  ' ': '[ \\u00a0\\u202f]',
  "'": "['\\u2019]",
};

/** Header and units rows of a file. Without a header, the first row of values. */
export class FileHead {
  readonly #spec: CsvSpec;
  first: readonly string[] = [];
  readonly units: (readonly string[])[] = [];
  #isBegun = false;

  constructor(spec: CsvSpec) {
    this.#spec = spec;
  }

  /** Adds a record. Returns whether the head is complete. Throws `UnreadableValues` for invalid quotes. */
  add(record: CsvRecord): boolean {
    const fields = assertValid(record).fields.map((field) => field.trim());
    if (this.#isBegun) this.units.push(fields);
    else this.first = fields;
    this.#isBegun = true;
    return this.units.length === (this.#spec.unitsRow ?? 0);
  }
}

export class FileColumns {
  readonly #spec: CsvSpec;
  readonly #time: TimeReader;
  /** Separator of thousands, and the form of numbers that contain it. */
  readonly #groups: { mark: RegExp; form: RegExp } | undefined;
  readonly #timeAt: readonly number[];
  readonly #wide: { point: Point<CsvValue>; at: number }[] = [];
  /** Indexes of the tag, key and value columns in the long format. */
  readonly #long: readonly number[] | undefined;
  readonly #byName: ReadonlyMap<string, Point<CsvValue>>;
  /** Values without a column in the files. */
  readonly missing: string[] = [];
  readonly separator: string | undefined;

  /** Throws `UnreadableValues` if a configured column is missing. */
  constructor(spec: CsvSpec, points: readonly Point<CsvValue>[], { first }: FileHead, separator: string | undefined) {
    this.#spec = spec;
    this.separator = separator;
    this.#time = new TimeReader(spec.time);
    this.#groups = groupsOf(spec);
    const names = spec.hasHeader ? first : [];
    this.#timeAt = spec.timeColumns.map((column) => indexOf(column, names, 'time_column'));
    this.#byName = new Map(points.map((point) => [point.name, point]));
    if (spec.form === 'long') {
      this.#long = ['tag', 'key', 'value'].map((name) => indexOf(name, names, 'the long form'));
      return;
    }
    for (const point of points) {
      const column = point.spec.column ?? point.name.slice(point.name.lastIndexOf(' ') + 1);
      const at = typeof column === 'number' ? column - 1 : names.indexOf(column);
      if (at < 0) this.missing.push(`${point.name} (${column})`);
      else this.#wide.push({ point, at });
    }
    if (points.length > 0 && this.#wide.length === 0) {
      throw new UnreadableValues(`the header has no column that tags.yaml uses${listed(names)}`);
    }
  }

  /** Parses a row. `afterMs` is the time of the previous row. */
  read({ fields, problem }: CsvRecord, afterMs: number | undefined): Row {
    if (problem !== undefined) return { cells: [], problem };
    if (this.#timeAt.length === 0) return this.#cells(fields);
    const text = this.#timeAt
      .map((at) => cellAt(fields, at))
      .join(' ')
      .trim();
    const time = this.#time.read(text, afterMs, this.#long !== undefined);
    if (time === undefined) return { cells: [], problem: `"${text.slice(0, 40)}" does not match the time format` };
    if (!isValidTime(time.timeMs)) return { cells: [], problem: 'the time must be between 1970 and 9999' };
    return { ...this.#cells(fields), ...time };
  }

  #cells(fields: readonly string[]): Row {
    if (this.#long) return this.#longCell(fields, this.#long);
    const cells: Cell[] = [];
    for (const { point, at } of this.#wide) {
      const text = cellAt(fields, at);
      if (text !== '') cells.push(this.#cell(point, text));
    }
    return { cells };
  }

  #longCell(fields: readonly string[], columns: readonly number[]): Row {
    const [tag, key, value = ''] = columns.map((at) => cellAt(fields, at));
    const name = `${tag} ${key}`;
    const point = this.#byName.get(name);
    if (point) return { cells: value === '' ? [] : [this.#cell(point, value)] };
    const nearest = nearestName(name, [...this.#byName.keys()]);
    const suggestion = nearest?.likely ? `; did you mean "${nearest.name}"?` : '';
    return { cells: [], problem: `no value "${name.slice(0, 80)}" of this source in tags.yaml${suggestion}` };
  }

  #cell(point: Point<CsvValue>, text: string): Cell {
    const { map } = point;
    if (map !== undefined && Object.hasOwn(map.numbers, text)) return { point, raw: text };
    const raw = this.#number(text);
    if (Number.isFinite(raw) && (map === undefined || numberOf(raw, map) !== undefined)) return { point, raw };
    return {
      point,
      problem: map === undefined ? `"${text.slice(0, 40)}" ${notANumber(text)}` : problemOfReading(text, map),
    };
  }

  #number(text: string): number {
    const groups = this.#groups;
    let plain = text;
    if (groups !== undefined && text.search(groups.mark) >= 0) {
      if (!groups.form.test(text)) return Number.NaN;
      plain = text.replaceAll(groups.mark, '');
    }
    if (this.#spec.decimal === '.') return parseDecimal(plain);
    // If the decimal separator is a comma, a point is a thousands separator or the result of a configuration error.
    return plain.includes('.') ? Number.NaN : parseDecimal(plain.replace(',', '.'));
  }
}

function groupsOf({ thousands, decimal }: CsvSpec): { mark: RegExp; form: RegExp } | undefined {
  if (thousands === undefined) return undefined;
  const mark = GROUP_MARKS[thousands];
  const form = new RegExp(`^[+-]?[1-9]\\d{0,2}(?:${mark}\\d{3})+(?:\\${decimal}\\d*)?$`);
  return { mark: new RegExp(mark, 'g'), form };
}

function cellAt(fields: readonly string[], at: number): string {
  return fields[at]?.trim() ?? '';
}

function indexOf(column: string | number, names: readonly string[], use: string): number {
  if (typeof column === 'number') return column - 1;
  const at = names.indexOf(column);
  if (at < 0) throw new UnreadableValues(`the header has no column "${column}" (${use})${listed(names)}`);
  return at;
}

const listed = (names: readonly string[]) => (names.length > 0 ? `; columns: ${names.slice(0, 20).join(', ')}` : '');
