import type { Clock } from '../../base/clock.ts';
import type { Tag, TagValue } from '../../config/tags.ts';
import type { LastReadings } from '../../sources/last-readings.ts';
import { type Feed, frame } from './live-stream.ts';
import type { TagTable } from './tag-table.ts';

const ROWS_AT_ONCE = 500;
const HOUR_MS = 3_600_000;

/** All tags: how they are configured, some hundred at a time, and how they stand. */
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
  /** Where its values are posted. */
  pathOf(tag: Tag, value: TagValue): string;
  clock: Clock;
}

/** One tag's last hour, kept from now on while somebody looks. */
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
      // Its last second may have got more readings since.
      const newer = frames(sentMs, false);
      sentMs = Math.floor(clock.monotonicMs() / 1_000) * 1_000;
      return newer;
    },
    end() {
      watched?.end(clock.monotonicMs());
    },
  };
}
