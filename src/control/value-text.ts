import { type Columns, STATUS_MASK } from '../buffer/format/value-columns.ts';
import type { SeriesCatalogue } from '../buffer/series.ts';
import { VALUE_STATUSES } from '../contract/values.ts';
import { type SeriesNames, unitText } from '../sources/intake/series-names.ts';

export type ExportFormat = 'csv' | 'ndjson';

/** Header of a CSV export. `buffer import` uses asset, unit, group and key; the tag is only informational. */
export const CSV_HEADER = 'tag,asset,unit,group,key,value,timestamp,status\n';

const statusOf = (flags: number) =>
  (flags & STATUS_MASK) === 0 ? undefined : VALUE_STATUSES[(flags & STATUS_MASK) - 1];
/** `JSON.stringify` would write -0 as 0. */
const numberText = (value: number) => (Object.is(value, -0) ? '-0' : String(value));
const csvField = (text: string) => (/[",\r\n;\t]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** Formats values as lines. The part that is the same for all values of a series is formatted once. */
export class ValueText {
  readonly #catalogue: SeriesCatalogue;
  readonly #names: SeriesNames;
  readonly #format: ExportFormat;
  readonly #heads = new Map<number, string>();

  constructor(catalogue: SeriesCatalogue, names: SeriesNames, format: ExportFormat) {
    this.#catalogue = catalogue;
    this.#names = names;
    this.#format = format;
  }

  /** Returns one line per value. */
  lines({ length, series, timeMs, value, flags }: Columns): string {
    let text = '';
    for (let i = 0; i < length; i++) {
      const time = new Date(timeMs[i]!).toISOString();
      const status = statusOf(flags[i]!);
      const head = this.#head(series[i]!);
      text +=
        this.#format === 'csv'
          ? `${head}${numberText(value[i]!)},${time},${status ?? ''}\n`
          : `${head}"value":${numberText(value[i]!)},"timestamp":"${time}"${status ? `,"status":"${status}"` : ''}}\n`;
    }
    return text;
  }

  #head(id: number): string {
    let head = this.#heads.get(id);
    if (head === undefined) {
      head = this.#format === 'csv' ? this.#csvHead(id) : this.#jsonHead(id);
      this.#heads.set(id, head);
    }
    return head;
  }

  #csvHead(id: number): string {
    const series = this.#catalogue.get(id)!;
    const { asset, unit, group, key } = series;
    const fields = [this.#names.tagOf(series) ?? '', String(asset), unitText(unit), group ?? '', key];
    return `${fields.map(csvField).join(',')},`;
  }

  /** `{"tag":…,"asset":881,"unit":12,"group":"process","key":"flow",` */
  #jsonHead(id: number): string {
    const series = this.#catalogue.get(id)!;
    const { asset, unit, group, key } = series;
    const tag = this.#names.tagOf(series);
    const written = unit && 'id' in unit ? unit.id : unit;
    return `${JSON.stringify({ tag, asset, unit: written, group, key }).slice(0, -1)},`;
  }
}
