/** Maps file columns to values and parses rows. Pure. */
import { nearestName } from '../../base/nearest.ts';
import { UnreadableValues } from '../intake/problem-list.ts';
import { notANumber, numberOf, problemOfReading, type RawReading } from '../intake/shaping.ts';
import { parseDecimal } from '../intake/text-parsers.ts';
import type { Point } from '../points.ts';
import { separatorOf, splitRecord } from './csv.ts';
import type { CsvSpec, CsvValue, Thousands } from './csv-spec.ts';
import { TimeReader } from './logger-time.ts';

/** One value cell. If the cell is invalid, `raw` is NaN and `problem` contains the reason. */
interface Cell {
  point: Point<CsvValue>;
  raw: RawReading;
  problem?: string;
}

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

export class FileColumns {
  readonly #spec: CsvSpec;
  readonly #time: TimeReader;
  readonly #separator: string;
  /** Separator of thousands, and the form of numbers that contain it. */
  readonly #groups: { mark: RegExp; form: RegExp } | undefined;
  readonly #timeAt: readonly number[];
  readonly #wide: { point: Point<CsvValue>; at: number }[] = [];
  /** Indexes of the tag, key and value columns in the long format. */
  readonly #long: readonly number[] | undefined;
  readonly #byName: ReadonlyMap<string, Point<CsvValue>>;
  /** Values without a column in the files. */
  readonly missing: string[] = [];

  /** `first` is the header row or the first data row. Throws `UnreadableValues` if a configured column is missing. */
  constructor(spec: CsvSpec, points: readonly Point<CsvValue>[], first: string) {
    this.#spec = spec;
    this.#time = new TimeReader(spec.time);
    this.#separator = spec.separator ?? separatorOf(first);
    this.#groups = groupsOf(spec);
    const names = spec.hasHeader ? headerOf(first, this.#separator) : [];
    this.#timeAt = spec.timeColumns.map((column) => indexOf(column, names, 'time_column'));
    this.#byName = new Map(points.map((point) => [point.name, point]));
    if (spec.form === 'long') {
      this.#long = ['tag', 'key', 'value'].map((name) => indexOf(name, names, 'the long form'));
      return;
    }
    for (const point of points) {
      // By default, the column has the same name as the key.
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
  read(text: string, line: number, afterMs: number | undefined): Row {
    let fields: string[];
    try {
      fields = splitRecord(text, this.#separator, line).map((field) => field.trim());
    } catch (error) {
      if (!(error instanceof UnreadableValues)) throw error;
      return { cells: [], problem: error.message.replace(/^line \d+: /, '') };
    }
    if (this.#timeAt.length === 0) return this.#cells(fields);
    const timeText = this.#timeAt
      .map((at) => fields[at] ?? '')
      .join(' ')
      .trim();
    const time = this.#time.read(timeText, afterMs, this.#long !== undefined);
    return time === undefined
      ? { cells: [], problem: `"${timeText.slice(0, 40)}" does not match the time format` }
      : { ...this.#cells(fields), ...time };
  }

  #cells(fields: readonly string[]): Row {
    if (!this.#long) {
      const filled = this.#wide.filter(({ at }) => fields[at]);
      return { cells: filled.map(({ point, at }) => this.#cell(point, fields[at]!)) };
    }
    const [tag, key, value] = this.#long.map((at) => fields[at] ?? '');
    const name = `${tag} ${key}`;
    const point = this.#byName.get(name);
    if (point) return { cells: value ? [this.#cell(point, value)] : [] };
    const nearest = nearestName(name, [...this.#byName.keys()]);
    const suggestion = nearest?.likely ? `; did you mean "${nearest.name}"?` : '';
    return { cells: [], problem: `no value "${name.slice(0, 80)}" of this source in tags.yaml${suggestion}` };
  }

  #cell(point: Point<CsvValue>, text: string): Cell {
    const { map } = point;
    if (map !== undefined && Object.hasOwn(map.numbers, text)) return { point, raw: text };
    const raw = this.#number(text);
    if (Number.isFinite(raw) && (map === undefined || numberOf(raw, map) !== undefined)) return { point, raw };
    const problem = map === undefined ? `"${text.slice(0, 40)}" ${notANumber(text)}` : problemOfReading(text, map);
    return { point, raw: Number.NaN, problem };
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

/** Returns the column names. */
export function headerOf(first: string, separator: string): string[] {
  return splitRecord(first, separator, 1).map((name) => name.trim());
}

function indexOf(column: string | number, names: readonly string[], use: string): number {
  if (typeof column === 'number') return column - 1;
  const at = names.indexOf(column);
  if (at < 0) throw new UnreadableValues(`the header has no column "${column}" (${use})${listed(names)}`);
  return at;
}

const listed = (names: readonly string[]) => (names.length > 0 ? `; columns: ${names.slice(0, 20).join(', ')}` : '');
