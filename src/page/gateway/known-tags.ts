import {
  type LiveEvents,
  TAG_STATES,
  type TagPoint,
  type TagReading,
  type TagRow,
} from '../../ops/live/live-events.ts';

export type TagState = (typeof TAG_STATES)[number];

export interface KnownTag extends TagRow {
  row: number;
  /** Searchable text in lower case. */
  text: string;
  value: number | null;
  raw: number | null;
  timeAtMs: number | null;
  takenMonotonicMs: number | null;
  state: TagState;
  line: string;
}

/** Maximum number of seconds in a tag's chart. */
const POINTS = 3_600;

/** Values in tags.yaml with their latest readings. */
export class KnownTags {
  all: KnownTag[] = [];
  /** Incremented with each change. */
  version = 0;
  isWhole = false;

  updateRows({ first, total, rows }: LiveEvents['tags']): void {
    if (first === 0) this.all = [];
    for (const [i, row] of rows.entries()) {
      this.all[first + i] = {
        ...row,
        row: first + i,
        text: `${row.tag} ${row.key} ${row.source ?? 'push'} ${row.asset}`.toLowerCase(),
        value: null,
        raw: null,
        timeAtMs: null,
        takenMonotonicMs: null,
        state: 'silent',
        line: '',
      };
    }
    this.isWhole = this.all.length >= total;
    this.version++;
  }

  updateReadings(readings: readonly TagReading[]): void {
    for (const [row, value, raw, timeAtMs, takenMonotonicMs, state, line] of readings) {
      const tag = this.all[row];
      if (tag) Object.assign(tag, { value, raw, timeAtMs, takenMonotonicMs, state: TAG_STATES[state], line });
    }
    this.version++;
  }

  named(name: string): KnownTag | undefined {
    return this.all.find((tag) => nameOf(tag) === name);
  }
}

/** Returns the name used in URLs: `FT-101/flow`. */
export function nameOf({ tag, key }: Pick<TagRow, 'tag' | 'key'>): string {
  return `${tag}/${key}`;
}

/** Readings of the selected tag. */
export class KnownTrace {
  row: number | undefined;
  path = '';
  points: TagPoint[] = [];

  update({ row, whole, path, points }: LiveEvents['tag']): void {
    if (whole || row !== this.row) this.points = [];
    this.row = row;
    this.path = path;
    // The latest second can be sent again with more readings.
    const [first] = points;
    const before = first ? this.points.filter((point) => point[0] < first[0]) : this.points;
    this.points = [...before, ...points].slice(-POINTS);
  }
}
