/**
 * Configuration and states of all values in tags.yaml, in order, read in batches of rows.
 *
 * A cursor contains the version of tags.yaml and the number of rows that a viewer has received. The first pass over the
 * table returns configuration and readings, further passes return readings. After a pass, the cursor returns to the
 * beginning of the second pass, so that all viewers share the same batches. A viewer of a previous version starts again.
 */
import type { Clock } from '../../base/clock.ts';
import type { Tag, Tags, TagValue } from '../../config/tags.ts';
import { unitText } from '../../sources/intake/series-names.ts';
import type { LastReadings } from './last-readings.ts';
import { type Growing, TAG_STATES, type TagReading, type TagRow, type Views } from './views.ts';

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
  quarantinedSeries(): Promise<ReadonlySet<number>>;
  /** Returns the path to which the values are posted. */
  pathOf(tag: Tag): string;
  clock: Clock;
}

interface Row {
  tag: Tag;
  value: TagValue;
  series: number | undefined;
}

/** Data from which the current states are determined. */
interface Standing {
  nowMs: number;
  held: ReadonlySet<number>;
  refused: ReadonlySet<number>;
  quarantined: ReadonlySet<number>;
}

const BATCH_ROWS = 1_000;
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

  constructor(parts: TagTableParts) {
    this.#parts = parts;
  }

  /** Returns the batch after a cursor; an empty cursor is the beginning. */
  async batch(after: readonly number[]): Promise<Omit<Views['tags'], 'next'> & { next: readonly number[] }> {
    const rows = this.#refresh();
    const [version, received = 0] = after;
    const sent = version === this.#version ? received : 0;
    const total = rows.length;
    const isFirstPass = sent < total || total === 0;
    const first = isFirstPass ? sent : sent % total;
    const batch = rows.slice(first, first + BATCH_ROWS);
    const isLast = first + batch.length >= total;
    const standing = await this.#standing();
    return {
      total,
      first,
      whole: isFirstPass && first === 0,
      rows: isFirstPass ? batch.map(configurationOf) : [],
      readings: batch.map((row) => this.#reading(row, standing)),
      next: [this.#version, isLast ? total : sent + batch.length],
      more: !isLast,
    };
  }

  /** Returns a value by its name `TAG/KEY` with the readings since a monotonic time, which are recorded from now on. */
  async tag(name: string, sinceMs: number): Promise<Omit<Views['tag'], keyof Growing> | undefined> {
    const row = this.#refresh().find(({ tag, value }) => `${tag.name}/${value.key}` === name);
    if (!row) return undefined;
    const { readings, pathOf, clock } = this.#parts;
    const reading = this.#reading(row, await this.#standing());
    const points = row.series === undefined ? [] : readings.trace(row.series, clock.monotonicMs()).since(sinceMs);
    return { row: configurationOf(row), reading, path: pathOf(row.tag), points };
  }

  /** Reads the tags after a reload. */
  #refresh(): readonly Row[] {
    const tags = this.#parts.tags();
    if (tags === this.#tags) return this.#rows;
    this.#tags = tags;
    this.#version++;
    this.#rows = [...tags.tags.values()].flatMap((tag) =>
      [...tag.values.values()].map((value) => ({ tag, value, series: undefined })),
    );
    return this.#rows;
  }

  async #standing(): Promise<Standing> {
    const { clock, heldSeries, refusedSeries, quarantinedSeries } = this.#parts;
    return {
      nowMs: clock.monotonicMs(),
      held: new Set(heldSeries()),
      refused: new Set(refusedSeries()),
      quarantined: await quarantinedSeries(),
    };
  }

  #reading(row: Row, standing: Standing): TagReading {
    const { readings, seriesOf } = this.#parts;
    row.series ??= seriesOf(row.tag, row.value);
    const last = row.series === undefined ? undefined : readings.of(row.series);
    const state = TAG_STATES.indexOf(this.#stateOf(row, last?.takenMs ?? Number.NEGATIVE_INFINITY, standing));
    if (!last || row.series === undefined) return [null, null, null, null, state, ''];
    const known = (value: number) => (Number.isFinite(value) ? value : null);
    const line = shapeOf(readings.sparkline(row.series));
    return [last.value, known(last.raw), known(last.timeMs), Math.round(last.takenMs), state, line];
  }

  #stateOf({ tag, value, series }: Row, takenMs: number, standing: Standing): (typeof TAG_STATES)[number] {
    const { nowMs, held, refused, quarantined } = standing;
    if (series !== undefined && refused.has(series)) return 'refused';
    if (this.#parts.isAssetHeld(tag.asset) || (series !== undefined && held.has(series))) return 'held';
    if (series !== undefined && quarantined.has(series)) return 'quarantined';
    const everyMs = value.from?.everyMs ?? 0;
    const quietMs = everyMs > 0 ? Math.max(MINUTE_MS, SILENT_POLLS * everyMs) : QUIET_MS;
    return nowMs - takenMs > quietMs ? 'silent' : 'live';
  }
}

function configurationOf({ tag, value }: Row): TagRow {
  return {
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
  };
}

/** Returns a base-36 digit per value: its position between the lowest and the highest value. */
function shapeOf(values: readonly number[]): string {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const step = (high - low) / 35;
  return values.map((value) => (step > 0 ? Math.round((value - low) / step) : 17).toString(36)).join('');
}
