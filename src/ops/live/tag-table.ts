/**
 * Every value of tags.yaml in its order, with how it stands: made when somebody begins to look at tags, and gone when nobody does. What
 * changed is told once a second, at most so many rows, each in its turn.
 */
import type { Clock } from '../../base/clock.ts';
import type { Tag, Tags, TagValue } from '../../config/tags.ts';
import type { LastReadings } from '../../sources/last-readings.ts';
import { unitText } from '../../sources/series-names.ts';
import { TAG_STATES, type TagReading, type TagRow } from './live-events.ts';

export interface TagTableParts {
  /** Another object after a reload. */
  tags(): Tags;
  /** `undefined` where nothing was ever accepted for it. */
  seriesOf(tag: Tag, value: TagValue): number | undefined;
  readings: LastReadings;
  isAssetHeld(asset: number): boolean;
  heldSeries(): readonly number[];
  /** Series that wait because the platform refused one value after the other. */
  refusedSeries(): readonly number[];
  /** Series with values in quarantine. */
  quarantinedSeries(): ReadonlySet<number>;
  clock: Clock;
}

interface Row {
  tag: Tag;
  value: TagValue;
  series: number | undefined;
  /** As told last. */
  takenMs: number;
  state: number;
}

/** What states follow from, at one moment. */
interface Standing {
  nowMs: number;
  held: ReadonlySet<number>;
  refused: ReadonlySet<number>;
  quarantined: ReadonlySet<number>;
}

const MAX_CHANGES = 2_000;
const MINUTE_MS = 60_000;
/** What is polled gives something with each poll; so many may fail. */
const SILENT_POLLS = 3;
/** What programs and brokers bring by themselves comes within this. */
const QUIET_MS = 15 * MINUTE_MS;

export class TagTable {
  readonly #parts: TagTableParts;
  #tags: Tags | undefined;
  #version = 0;
  #rows: Row[] = [];
  /** Where the last look for changes ended. */
  #at = 0;

  constructor(parts: TagTableParts) {
    this.#parts = parts;
  }

  /** Reads tags.yaml's tags anew after a reload; gives a number that is another then. */
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

  /** What is new since the last call. */
  changes(): TagReading[] {
    const found: TagReading[] = [];
    const standing = this.#standing();
    const { length } = this.#rows;
    for (let looked = 0; looked < length && found.length < MAX_CHANGES; looked++) {
      const at = this.#at++ % length;
      const row = this.row(at)!;
      const takenMs = row.series === undefined ? Number.NEGATIVE_INFINITY : this.#parts.readings.takenMs(row.series);
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
    const line = shapeOf(readings.line(row.series));
    return [at, last.value, known(last.raw), known(last.timeMs), Math.round(last.takenMs), state, line];
  }
}

/** A digit or letter (base 36) for each: how high it stands between the lowest and the highest of them. */
function shapeOf(values: readonly number[]): string {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const step = (high - low) / 35;
  return values.map((value) => (step > 0 ? Math.round((value - low) / step) : 17).toString(36)).join('');
}
