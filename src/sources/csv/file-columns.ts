/** What the columns of a file mean, and what its rows hold. Pure. */
import { nearestName } from '../../base/nearest.ts';
import { parseDecimal } from '../decimal-text.ts';
import type { Point } from '../points.ts';
import { UnreadableValues } from '../problem-list.ts';
import { separatorOf, splitRecord } from './csv.ts';
import type { CsvSpec, CsvValue } from './csv-spec.ts';
import { TimeReader } from './logger-time.ts';

/** One cell that is a value, or is to be one: then `raw` is NaN and `problem` says why. */
export interface Cell {
  point: Point<CsvValue>;
  raw: number;
  problem?: string;
}

export interface Row {
  cells: Cell[];
  /** `undefined` where the files tell no time. */
  timeMs: number | undefined;
  /** The hour of the row came twice, or not at all. */
  odd?: 'twice' | 'skipped';
  /** Nothing of the row can be taken. */
  problem?: string;
}

/** Where tag and key of the long form stand, and its other columns. */
interface LongColumns {
  tag: number;
  key: number;
  value: number;
}

export class FileColumns {
  readonly #spec: CsvSpec;
  readonly #time: TimeReader;
  readonly #separator: string;
  readonly #timeAt: readonly number[];
  readonly #wide: readonly { point: Point<CsvValue>; at: number }[];
  readonly #long: LongColumns | undefined;
  readonly #byName: ReadonlyMap<string, Point<CsvValue>>;
  /** Values of which the files have no column. */
  readonly missing: readonly string[];

  /** `first` is the header, or the first row. Throws `UnreadableValues` where it has no column that was asked for. */
  constructor(spec: CsvSpec, points: readonly Point<CsvValue>[], first: string) {
    this.#spec = spec;
    this.#time = new TimeReader(spec.time);
    this.#separator = spec.separator ?? separatorOf(first);
    const names = spec.hasHeader ? headerOf(first, this.#separator) : [];
    this.#timeAt = spec.timeColumns.map((column) => placeOf(column, names, 'time_column'));
    this.#byName = new Map(points.map((point) => [point.name, point]));
    const missing: string[] = [];
    if (spec.form === 'long') {
      const at = (name: string) => placeOf(name, names, 'the long form');
      this.#long = { tag: at('tag'), key: at('key'), value: at('value') };
      this.#wide = [];
    } else {
      this.#wide = points.flatMap((point) => {
        const column = columnOf(point);
        const at = typeof column === 'number' ? column - 1 : names.indexOf(column);
        if (at < 0) missing.push(`${point.name} (${column})`);
        return at < 0 ? [] : [{ point, at }];
      });
      if (points.length > 0 && this.#wide.length === 0) {
        const has = names.length > 0 ? `: it has ${names.slice(0, 20).join(', ')}` : '';
        throw new UnreadableValues(`the header has none of the columns that tags.yaml names${has}`);
      }
    }
    this.missing = missing;
  }

  /** `afterMs`: the moment of the row before. */
  read(text: string, line: number, afterMs: number | undefined): Row {
    let fields: string[];
    try {
      fields = splitRecord(text, this.#separator, line);
    } catch (error) {
      if (!(error instanceof UnreadableValues)) throw error;
      return { cells: [], timeMs: undefined, problem: error.message.replace(/^line \d+: /, '') };
    }
    const words = this.#timeAt
      .map((at) => (fields[at] ?? '').trim())
      .join(' ')
      .trim();
    const time = this.#timeAt.length > 0 ? this.#time.read(words, afterMs, this.#long !== undefined) : undefined;
    if (this.#timeAt.length > 0 && time === undefined) {
      return { cells: [], timeMs: undefined, problem: `"${words.slice(0, 40)}" is no time that is understood` };
    }
    const odd = time?.odd === undefined ? {} : { odd: time.odd };
    const cells = this.#long ? this.#longCells(fields, this.#long) : this.#wideCells(fields);
    if (typeof cells === 'string') return { cells: [], timeMs: time?.timeMs, problem: cells, ...odd };
    return { cells, timeMs: time?.timeMs, ...odd };
  }

  #wideCells(fields: readonly string[]): Cell[] | string {
    const cells: Cell[] = [];
    for (const { point, at } of this.#wide) {
      const text = (fields[at] ?? '').trim();
      if (text !== '') cells.push(this.#cell(point, text));
    }
    return cells;
  }

  #longCells(fields: readonly string[], { tag, key, value }: LongColumns): Cell[] | string {
    const name = `${(fields[tag] ?? '').trim()} ${(fields[key] ?? '').trim()}`;
    const point = this.#byName.get(name);
    if (point === undefined) {
      const nearest = nearestName(name, [...this.#byName.keys()]);
      return `tags.yaml takes no "${name.slice(0, 80)}" from here${nearest?.likely ? `: is "${nearest.name}" meant?` : ''}`;
    }
    const text = (fields[value] ?? '').trim();
    return text === '' ? [] : [this.#cell(point, text)];
  }

  #cell(point: Point<CsvValue>, text: string): Cell {
    const { decimal } = this.#spec;
    // With a decimal comma a point stands between thousands, or the setting is wrong: neither is guessed.
    const plain = decimal === ',' && !text.includes('.') ? text.replace(',', '.') : decimal === ',' ? '' : text;
    const raw = parseDecimal(plain, 0, plain.length);
    return Number.isFinite(raw)
      ? { point, raw }
      : { point, raw: Number.NaN, problem: `"${text.slice(0, 40)}" is no number` };
  }
}

/** The names of the columns. */
export function headerOf(first: string, separator: string): string[] {
  return splitRecord(first.replace(/^\ufeff/, ''), separator, 1).map((name) => name.trim());
}

/** Where a value stands: its column, else one named as its key. */
function columnOf({ spec, name }: Point<CsvValue>): string | number {
  return spec.column ?? name.slice(name.lastIndexOf(' ') + 1);
}

function placeOf(column: string | number, names: readonly string[], what: string): number {
  if (typeof column === 'number') return column - 1;
  const at = names.indexOf(column);
  if (at >= 0) return at;
  throw new UnreadableValues(`the header has no column "${column}" (${what}): it has ${names.slice(0, 20).join(', ')}`);
}
