/**
 * Quarantine: what the platform refused when it stood alone, with the platform's words. An operator looks at it, and
 * sends it again once the cause is mended: the values then are accepted anew, as the newest of their series.
 */
import { StoreError } from '../../base/errors.ts';
import { type SegmentValues, unpackSegment } from '../format/segment.ts';
import type { Pending } from '../pending.ts';
import type { StoreState } from '../state.ts';
import { type QuarantineRow, quarantineSum, type Statements } from '../tables.ts';

export interface QuarantinedValues {
  id: number;
  series: number;
  count: number;
  status: number;
  message: string;
  /** Wall clock of the refusal. */
  atMs: number;
  /** The first values; `damaged` where the row does not fit its checksum. */
  timeMs: number[];
  value: number[];
  damaged: boolean;
}

export interface Requeueing {
  /** Rows with a number above it and none above `through`: what comes back refused once more is not taken again. */
  after: number;
  through: number;
  series?: readonly number[] | undefined;
}

export interface RequeueStep {
  values: number;
  /** The last row that was looked at; `undefined` at the end. */
  after: number | undefined;
}

const VALUES_SHOWN = 5;
/** Rows of one step of a search: SQLite skips rows of other series, which takes less than a microsecond each. */
const ROWS_SHOWN = 200;
const ROWS_SEARCHED = 5_000;
const ROWS_A_STEP = 500;
const VALUES_A_STEP = 10_000;

export function showQuarantine(statements: Statements, page: { after: number; limit: number }): QuarantinedValues[] {
  return statements.listQuarantine.all(page.after, page.limit).map(shownRow);
}

export interface QuarantineSearch {
  /** Only rows with a number above it. */
  after: number;
  /** Only rows of these series; all where it is left out. */
  series?: readonly number[] | undefined;
}

/** Searches some thousand rows. `after`: the last row that was looked at; `undefined` at the end. */
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
 * Moves values out of quarantine, some rows at a time. On disk with the next commit: the deletion there and the new
 * place in the log are one transaction. A row that does not read stays where it is.
 */
export function requeue(statements: Statements, state: StoreState, pending: Pending, request: Requeueing): RequeueStep {
  const wanted = request.series && new Set(request.series);
  // What waits to leave quarantine already must not leave it twice.
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
        // Nobody wrote down which run accepted what was refused.
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
  try {
    return unpackSegment(row.packed);
  } catch (error) {
    if (error instanceof StoreError) return undefined;
    throw error;
  }
}
