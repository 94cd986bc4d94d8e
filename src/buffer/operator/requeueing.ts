/**
 * The quarantine contains values that the platform rejected individually, with the platform message. After fixing the
 * cause, an operator requeues them. They are then accepted again as the newest values of their series.
 */
import { readable } from '../format/bytes.ts';
import { type SegmentValues, unpackSegment } from '../format/segment.ts';
import type { StoreState } from '../state.ts';
import { type QuarantineRow, quarantineSum, type Statements } from '../tables.ts';

export interface QuarantinedValues {
  id: number;
  series: number;
  count: number;
  status: number;
  message: string;
  /** Wall-clock time of the rejection. */
  atMs: number;
  /** The first values; `damaged` if the checksum is wrong. */
  timeMs: number[];
  value: number[];
  damaged: boolean;
}

export interface Requeueing {
  /** Rows above `after` up to `through`, so that values that are quarantined again are not requeued twice. */
  after: number;
  through: number;
  series?: readonly number[] | undefined;
}

export interface RequeueStep {
  values: number;
  /** Last row examined; `undefined` at the end. */
  after: number | undefined;
}

const VALUES_SHOWN = 5;
/** Number of rows per search step. SQLite skips rows of other series in less than a microsecond each. */
const ROWS_SHOWN = 200;
const ROWS_SEARCHED = 5_000;
const ROWS_A_STEP = 500;
const VALUES_A_STEP = 10_000;

export function showQuarantine(statements: Statements, page: { after: number; limit: number }): QuarantinedValues[] {
  return statements.listQuarantine.all(page.after, page.limit).map(shownRow);
}

export interface QuarantineSearch {
  /** Only rows with a larger number. */
  after: number;
  /** Only rows of these series. Default: all. */
  series?: readonly number[] | undefined;
}

/** Searches a few thousand rows. `after` is the last row examined; `undefined` at the end. */
export function searchQuarantine(statements: Statements, { after, series }: QuarantineSearch) {
  const { listQuarantine, listQuarantineOf, quarantineAhead } = statements;
  const end = series && quarantineAhead.get(after, ROWS_SEARCHED - 1);
  const rows = series
    ? listQuarantineOf.all(after, end ?? Number.MAX_SAFE_INTEGER, JSON.stringify(series), ROWS_SHOWN)
    : listQuarantine.all(after, ROWS_SHOWN);
  return { rows: rows.map(shownRow), after: rows.length === ROWS_SHOWN ? rows.at(-1)!.id : end };
}

function shownRow(row: QuarantineRow): QuarantinedValues {
  const values = read(row);
  return {
    id: row.id,
    series: row.series,
    count: row.count,
    status: row.status,
    message: row.message,
    atMs: row.at_ms,
    timeMs: Array.from(values?.timeMs.subarray(0, VALUES_SHOWN) ?? []),
    value: Array.from(values?.value.subarray(0, VALUES_SHOWN) ?? []),
    damaged: values === undefined,
  };
}

/**
 * Moves values out of the quarantine, several rows per step. Deletion and insertion are one transaction, on disk with
 * the next commit. Unreadable rows remain in quarantine.
 */
export function requeue(statements: Statements, state: StoreState, request: Requeueing): RequeueStep {
  const { pending } = state;
  const wanted = request.series && new Set(request.series);
  // Rows that are already being requeued are skipped.
  const leaving = new Set(pending.releasedQuarantine);
  const rows = statements.listQuarantine.all(request.after, ROWS_A_STEP);
  let moved = 0;
  for (const row of rows) {
    if (row.id > request.through) return { values: moved, after: undefined };
    const stays = leaving.has(row.id) || !state.series[row.series] || (wanted && !wanted.has(row.series));
    const values = stays ? undefined : read(row);
    if (values) {
      pending.releasedQuarantine.push(row.id);
      for (let i = 0; i < values.count; i++) {
        // The run that accepted a rejected value is not recorded.
        const { timeMs, flags } = state.stamps.adopt(values.timeMs[i]!, values.flags[i]!, undefined);
        pending.moved.add(row.series, timeMs, values.value[i]!, flags);
      }
      moved += values.count;
    }
    if (moved >= VALUES_A_STEP) return { values: moved, after: row.id };
  }
  return { values: moved, after: rows.length < ROWS_A_STEP ? undefined : rows.at(-1)!.id };
}

function read(row: QuarantineRow): SegmentValues | undefined {
  if (row.sum !== quarantineSum(row.series, row.count, row.status, row.message, row.at_ms)) return undefined;
  return readable(() => unpackSegment(row.packed));
}
