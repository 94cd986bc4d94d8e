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
  /** In lower case: what a search looks in. */
  text: string;
  value: number | null;
  raw: number | null;
  timeAtMs: number | null;
  takenMonotonicMs: number | null;
  state: TagState;
  line: string;
}

/** So many seconds of one tag stand in a chart. */
const POINTS = 3_600;

/** Every value of tags.yaml as the gateway told it. */
export class KnownTags {
  all: KnownTag[] = [];
  /** Another number whenever something changed. */
  version = 0;
  isWhole = false;

  takeRows({ first, total, rows }: LiveEvents['tags']): void {
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

  takeReadings(readings: readonly TagReading[]): void {
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

/** What an address calls it: `FT-101/flow`. */
export function nameOf({ tag, key }: Pick<TagRow, 'tag' | 'key'>): string {
  return `${tag}/${key}`;
}

/** The tag that is looked at. */
export class KnownTrace {
  row: number | undefined;
  path = '';
  points: TagPoint[] = [];

  take({ row, whole, path, points }: LiveEvents['tag']): void {
    if (whole || row !== this.row) this.points = [];
    this.row = row;
    this.path = path;
    // The last second may be told again, with more in it.
    const [first] = points;
    const before = first ? this.points.filter((point) => point[0] < first[0]) : this.points;
    this.points = [...before, ...points].slice(-POINTS);
  }
}
