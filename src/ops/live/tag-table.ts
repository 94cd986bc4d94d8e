/**
 * State of all values in tags.yaml, in order. Exists only while tags are viewed. A limited number of changed rows is
 * sent per second, in turn.
 */
import type { Clock } from '../../base/clock.ts';
import type { Tag, Tags, TagValue } from '../../config/tags.ts';
import { unitText } from '../../sources/intake/series-names.ts';
import type { LastReadings } from './last-readings.ts';
import { TAG_STATES, type TagReading, type TagRow } from './live-events.ts';
import { type Feed, frame } from './live-stream.ts';

export interface TagTableParts {
  /** Returns a new object after a reload. */
  tags(): Tags;
  /** Returns `undefined` if no value has been accepted. */
  seriesOf(tag: Tag, value: TagValue): number | undefined;
  readings: LastReadings;
  isAssetHeld(asset: number): boolean;
  heldSeries(): readonly number[];
  /** Series whose posts are suspended because the platform rejected consecutive values. */
  refusedSeries(): readonly number[];
  /** Series with quarantined values. */
  quarantinedSeries(): ReadonlySet<number>;
  clock: Clock;
}

interface Row {
  tag: Tag;
  value: TagValue;
  series: number | undefined;
  /** Time of the latest sent reading. */
  takenMs: number;
  state: number;
}

/** Data from which the current states are determined. */
interface Standing {
  nowMs: number;
  held: ReadonlySet<number>;
  refused: ReadonlySet<number>;
  quarantined: ReadonlySet<number>;
}

const MAX_CHANGES = 2_000;
const MINUTE_MS = 60_000;
/** Number of missed polls after which a polled value counts as silent. */
const SILENT_POLLS = 3;
/** Time after which a value that is not polled counts as silent, in milliseconds. */
const QUIET_MS = 15 * MINUTE_MS;

export class TagTable {
  readonly #parts: TagTableParts;
  #tags: Tags | undefined;
  #version = 0;
  #rows: Row[] = [];
  /** Row at which the next search for changes starts. */
  #at = 0;

  constructor(parts: TagTableParts) {
    this.#parts = parts;
  }

  /** Reads the tags after a reload. Returns a number that changes with each reload. */
  refresh(): number {
    const tags = this.#parts.tags();
    if (tags === this.#tags) return this.#version;
    this.#tags = tags;
    this.#rows = [...tags.tags.values()].flatMap((tag) =>
      [...tag.values.values()].map((value) => ({ tag, value, series: undefined, takenMs: Number.NaN, state: -1 })),
    );
    return ++this.#version;
  }

  get length(): number {
    return this.#rows.length;
  }

  row(at: number): Row | undefined {
    const row = this.#rows[at];
    if (row) row.series ??= this.#parts.seriesOf(row.tag, row.value);
    return row;
  }

  rows(first: number, count: number): TagRow[] {
    return this.#rows.slice(first, first + count).map(({ tag, value }) => ({
      tag: tag.name,
      key: value.key,
      group: value.group ?? null,
      asset: tag.asset,
      instrumentation: tag.instrumentation ?? null,
      unit: unitText(value.unit),
      source: value.from?.source ?? null,
      kind: value.from?.kind ?? 'push',
      scale: value.from?.shaping.scale ?? 1,
      offset: value.from?.shaping.offset ?? 0,
    }));
  }

  readings(first: number, count: number): TagReading[] {
    const standing = this.#standing();
    return this.#rows.slice(first, first + count).map((_, i) => this.#reading(first + i, standing));
  }

  /** Returns the changes since the previous call. */
  changes(): TagReading[] {
    const found: TagReading[] = [];
    const standing = this.#standing();
    const { length } = this.#rows;
    for (let looked = 0; looked < length && found.length < MAX_CHANGES; looked++) {
      const at = this.#at++ % length;
      const row = this.row(at)!;
      const last = row.series === undefined ? undefined : this.#parts.readings.of(row.series);
      const takenMs = last?.takenMs ?? Number.NEGATIVE_INFINITY;
      const state = this.#stateOf(row, takenMs, standing);
      if (takenMs === row.takenMs && state === row.state) continue;
      row.takenMs = takenMs;
      row.state = state;
      found.push(this.#reading(at, standing));
    }
    this.#at %= Math.max(1, length);
    return found;
  }

  #standing(): Standing {
    const { clock, heldSeries, refusedSeries, quarantinedSeries } = this.#parts;
    return {
      nowMs: clock.monotonicMs(),
      held: new Set(heldSeries()),
      refused: new Set(refusedSeries()),
      quarantined: quarantinedSeries(),
    };
  }

  #stateOf({ tag, value, series }: Row, takenMs: number, standing: Standing): number {
    const { nowMs, held, refused, quarantined } = standing;
    const state = (name: (typeof TAG_STATES)[number]) => TAG_STATES.indexOf(name);
    if (series !== undefined && refused.has(series)) return state('refused');
    if (this.#parts.isAssetHeld(tag.asset) || (series !== undefined && held.has(series))) return state('held');
    if (series !== undefined && quarantined.has(series)) return state('quarantined');
    const everyMs = value.from?.everyMs ?? 0;
    const quietMs = everyMs > 0 ? Math.max(MINUTE_MS, SILENT_POLLS * everyMs) : QUIET_MS;
    return state(nowMs - takenMs > quietMs ? 'silent' : 'live');
  }

  #reading(at: number, standing: Standing): TagReading {
    const { readings } = this.#parts;
    const row = this.row(at)!;
    const last = row.series === undefined ? undefined : readings.of(row.series);
    const state = this.#stateOf(row, last?.takenMs ?? Number.NEGATIVE_INFINITY, standing);
    if (!last || row.series === undefined) return [at, null, null, null, null, state, ''];
    const known = (value: number) => (Number.isFinite(value) ? value : null);
    const line = shapeOf(readings.sparkline(row.series));
    return [at, last.value, known(last.raw), known(last.timeMs), Math.round(last.takenMs), state, line];
  }
}

/** Returns a base-36 digit per value: its position between the lowest and the highest value. */
function shapeOf(values: readonly number[]): string {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const step = (high - low) / 35;
  return values.map((value) => (step > 0 ? Math.round((value - low) / step) : 17).toString(36)).join('');
}

const ROWS_AT_ONCE = 500;
const HOUR_MS = 3_600_000;

/** Sends the configuration of all tags in batches of several hundred, followed by their states. */
export function tagsFeed(table: TagTable): Feed {
  let version = table.refresh();
  const whole = () => {
    const frames: string[] = [];
    const total = table.length;
    for (let first = 0; first === 0 || first < total; first += ROWS_AT_ONCE) {
      frames.push(frame('tags', { first, total, rows: table.rows(first, ROWS_AT_ONCE) }));
      frames.push(frame('readings', table.readings(first, ROWS_AT_ONCE)));
    }
    return frames;
  };
  return {
    begin() {
      table.refresh();
      return whole();
    },
    next() {
      const before = version;
      version = table.refresh();
      if (version !== before) return whole();
      const changes = table.changes();
      return changes.length > 0 ? [frame('readings', changes)] : [];
    },
  };
}

export interface TagFeedParts {
  table: TagTable;
  readings: LastReadings;
  /** Returns the path to which the values are posted. */
  pathOf(tag: Tag, value: TagValue): string;
  clock: Clock;
}

/** Sends up to one hour of a tag's readings, which are stored while the tag is viewed. */
export function tagFeed(row: number, { table, readings, pathOf, clock }: TagFeedParts): Feed {
  let watched: ReturnType<LastReadings['watch']> | undefined;
  let sentMs = 0;
  const points = (fromMs: number) => {
    const found = table.row(row);
    if (found?.series !== undefined) watched ??= readings.watch(found.series, clock.monotonicMs());
    return watched?.trace.since(fromMs) ?? [];
  };
  const frames = (fromMs: number, whole: boolean) => {
    const found = table.row(row);
    const some = points(fromMs);
    return found && (whole || some.length > 0)
      ? [frame('tag', { row, whole, path: pathOf(found.tag, found.value), points: some })]
      : [];
  };
  return {
    begin() {
      table.refresh();
      return frames(clock.monotonicMs() - HOUR_MS, true);
    },
    next() {
      // The latest second may have received more readings.
      const newer = frames(sentMs, false);
      sentMs = Math.floor(clock.monotonicMs() / 1_000) * 1_000;
      return newer;
    },
    end() {
      watched?.end(clock.monotonicMs());
    },
  };
}
