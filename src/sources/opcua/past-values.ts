/**
 * Fills gaps in the values of a server from its history, after the live values. The notes `times/N` contain the time of
 * the latest stored value of each item and its gap, except for items without history. The notes are written with the
 * values, so gaps are filled completely even after a kill -9. Each note belongs to 100 items and is written only if one
 * of them has changed.
 *
 *   latest ──── subscription lost ──── first value of the next one ──► gap (latest, first) ──► filled page by page
 */
import { messageOf } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Note } from '../../buffer/client/notes.ts';
import { STATUS_FLAGS, ValueColumns } from '../../buffer/format/value-columns.ts';
import type { HistoryPage, HistorySpan } from '../../opcua/protocol.ts';
import type { Quality } from '../intake/gate.ts';
import { isSent, type LastSent, shape } from '../intake/shaping.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import type { SourceContext } from '../source-kind.ts';
import type { OpcuaSpec, OpcuaValue } from './reader-process.ts';

/** By severity of a status code. */
export const QUALITIES: readonly Quality[] = ['good', 'uncertain', 'bad'];

/** Interval between searches for gaps. */
const CHECK_MS = 1_000;
/** Maximum number of failed requests per page, for example because the page ends the connection. */
const MAX_ATTEMPTS = 5;
const ITEMS_PER_NOTE = 100;

/** Values between the two times, both exclusive, are missing. */
interface Gap {
  fromMs: number;
  untilMs: number;
  attempts: number;
}

interface PastItem {
  /** Time of the latest value. */
  latestMs: number | undefined;
  gap: Gap | undefined;
  hasHistory: boolean;
  /** Whether the next value ends a gap. */
  isGapExpected: boolean;
}

/** `fromMs` and `untilMs`: the gap, if there is one. `null` for an item without history. */
type StoredTimes = [latestMs: number, isGapExpected?: boolean, fromMs?: number, untilMs?: number] | null;

/** Values that were read from the history in one search for gaps. */
interface Filled {
  values: number;
  gaps: number;
  fromMs: number;
  untilMs: number;
}

/** Rejects without a connection. */
type ReadPage = (item: number, span: Omit<HistorySpan, 'item'>, signal: AbortSignal) => Promise<HistoryPage>;

export class PastValues {
  readonly #context: SourceContext<OpcuaSpec, OpcuaValue>;
  readonly #readPage: ReadPage;
  readonly #trouble: TroubleLog;
  readonly #items: PastItem[];
  /** Numbers of the notes that must be written with the next values. */
  readonly #changed = new Set<number>();
  #isConnected = false;

  /** `keys`: identify the items. `storedKeys`: those when the notes were written. */
  constructor(
    context: SourceContext<OpcuaSpec, OpcuaValue>,
    readPage: ReadPage,
    notes: ReadonlyMap<string, string>,
    keys: readonly string[],
    storedKeys: readonly string[],
  ) {
    this.#context = context;
    this.#readPage = readPage;
    this.#trouble = new TroubleLog(context.log, context.clock, 'values');
    const stored = new Map<string, StoredTimes>();
    for (let first = 0; first < storedKeys.length; first += ITEMS_PER_NOTE) {
      const number = first / ITEMS_PER_NOTE;
      const times = JSON.parse(notes.get(`times/${number}`) ?? '[]') as StoredTimes[];
      for (const [at, one] of times.entries()) stored.set(storedKeys[first + at]!, one);
      // The items may be in a different order.
      this.#changed.add(number);
    }
    this.#items = keys.map((key, item) => {
      const [latestMs, isGapExpected = false, fromMs, untilMs] = stored.get(key) ?? [];
      const gap = fromMs === undefined || untilMs === undefined ? undefined : { fromMs, untilMs, attempts: 0 };
      return { latestMs, gap, hasHistory: latestMs !== undefined && this.#isUsed(item), isGapExpected };
    });
  }

  /** Returns the notes that changed since the previous call. */
  notes(): Note[] {
    const { name } = this.#context.source;
    const changed = [...this.#changed];
    this.#changed.clear();
    return changed.map((number) => {
      const items = this.#items.slice(number * ITEMS_PER_NOTE, (number + 1) * ITEMS_PER_NOTE);
      const times = items.map(({ latestMs, gap, hasHistory, isGapExpected }): StoredTimes => {
        if (!hasHistory || latestMs === undefined) return null;
        if (gap) return [latestMs, isGapExpected, gap.fromMs, gap.untilMs];
        return isGapExpected ? [latestMs, true] : [latestMs];
      });
      const text = times.some((one) => one !== null) ? JSON.stringify(times) : undefined;
      return { name: `source/${name}/times/${number}`, text };
    });
  }

  /** Deletes all notes with the next call of `notes`. */
  forget(): void {
    for (const at of this.#items.keys()) this.#markChanged(at);
    this.#items.length = 0;
  }

  /** The connection can be used. `items`: those whose history can be read. */
  resume(items: readonly number[]): void {
    const readable = new Set(items);
    for (const [at, item] of this.#items.entries()) {
      const hasHistory = readable.has(at) && this.#isUsed(at);
      if (hasHistory !== item.hasHistory) this.#markChanged(at);
      item.hasHistory = hasHistory;
    }
    this.#isConnected = true;
  }

  /** A status trigger reports only some of the values in the history; arrival times differ from those in the history. */
  #isUsed(at: number): boolean {
    const { source, points } = this.#context;
    return source.spec.historyMs > 0 && source.timeFrom === 'source' && points[at]?.spec.trigger !== 'status';
  }

  pause(): void {
    this.#isConnected = false;
  }

  /** Whether the history contains all values. */
  get isComplete(): boolean {
    return this.#items.every(({ hasHistory }) => hasHistory);
  }

  /**
   * Records that the next value of each item ends a gap. The record is stored with the new subscription, which outlives
   * a crash.
   */
  expectGaps(): void {
    for (const [at, item] of this.#items.entries()) {
      item.isGapExpected = true;
      if (item.hasHistory) this.#markChanged(at);
    }
  }

  /**
   * Records a value. Returns `false` for a value that is already stored: a subscription begins with the current values,
   * and a change of value or status has a new time (OPC 10000-4, 7.11.3).
   */
  record(at: number, timeMs: number, isAfterGap: boolean): boolean {
    const item = this.#items[at]!;
    const { latestMs, gap, isGapExpected } = item;
    item.isGapExpected = false;
    if (item.hasHistory) this.#markChanged(at);
    if (latestMs !== undefined && timeMs <= latestMs) return !isGapExpected || timeMs < latestMs;
    item.latestMs = timeMs;
    if (latestMs === undefined || timeMs - latestMs <= 1 || !(isGapExpected || isAfterGap)) return true;
    // If a previous gap has not been filled yet, extend it. The values between the two gaps are then read again.
    if (gap) gap.untilMs = timeMs;
    else item.gap = { fromMs: latestMs, untilMs: timeMs, attempts: 0 };
    return true;
  }

  /** Fills gaps until the signal; then rejects. */
  async run(signal: AbortSignal): Promise<never> {
    for (;;) {
      await this.#context.clock.sleep(CHECK_MS, signal);
      const filled = { values: 0, gaps: 0, fromMs: Number.POSITIVE_INFINITY, untilMs: 0 };
      for (const [at, { gap }] of this.#items.entries())
        if (gap && this.#isConnected) await this.#fill(at, gap, filled, signal);
      if (filled.values === 0 && filled.gaps === 0) continue;
      const { log, source } = this.#context;
      const { values, gaps } = filled;
      const fields = {
        source: source.name,
        values,
        gaps,
        from: isoTime(filled.fromMs),
        until: isoTime(filled.untilMs),
      };
      log.info({ event: 'opcua.gap_filled', ...fields }, 'missing values read from the server history');
    }
  }

  async #fill(at: number, gap: Gap, filled: Filled, signal: AbortSignal): Promise<void> {
    const item = this.#items[at]!;
    const { untilMs } = gap;
    const earliestMs = untilMs - this.#context.source.spec.historyMs;
    let why: string | undefined;
    try {
      if (!item.hasHistory) why = 'the server stores no history of this value';
      else if (gap.fromMs < earliestMs) {
        this.#reportMissing(at, gap.fromMs, earliestMs, 'the gap is longer than `history`');
        gap.fromMs = earliestMs;
      }
      why ??= await this.#readPages(at, gap, untilMs, filled, signal);
    } catch (error) {
      signal.throwIfAborted();
      gap.attempts++;
      if (gap.attempts < MAX_ATTEMPTS) return;
      why = messageOf(error);
    }
    if (why === undefined) filled.gaps++;
    else this.#reportMissing(at, gap.fromMs, untilMs, why);
    if (gap.untilMs === untilMs) item.gap = undefined;
    else gap.fromMs = untilMs;
    if (item.hasHistory) this.#markChanged(at);
    this.#context.gate.record([], this.notes());
  }

  /**
   * Returns why the gap cannot be filled. Continues after the last stored value. Rejects if a request fails. The dead
   * band is applied independently of the live values.
   */
  async #readPages(at: number, gap: Gap, untilMs: number, filled: Filled, signal: AbortSignal) {
    let sent: LastSent | undefined;
    let point: string | undefined;
    const { fromMs } = gap;
    for (;;) {
      const page = await this.#readPage(at, { fromMs, untilMs, point }, signal);
      // A continuation point is valid only in its session.
      if (page.problem !== undefined && point !== undefined) throw new Error(page.problem);
      if (page.problem !== undefined) return page.problem;
      const { gate, points, status } = this.#context;
      const { name, series, shaping, map } = points[at]!;
      const columns = new ValueColumns(page.past.length);
      for (const [raw, timeMs, severity, detail] of page.past) {
        // A second value with the same time would replace the first.
        if (timeMs !== null && (timeMs <= gap.fromMs || timeMs >= untilMs)) continue;
        if (raw === null || timeMs === null) {
          status.errors++;
          status.recordRejected(
            `${name}: ${raw === null ? plain(detail?.problem ?? '') : 'no timestamp'} (in the history)`,
          );
          continue;
        }
        if (gate.rejectsPast(points[at]!, timeMs)) continue;
        gap.fromMs = timeMs;
        gap.attempts = 0;
        const shaped = shape(raw, { shaping, map });
        if ('problem' in shaped) {
          status.reportNoMeasurement(points[at]!, shaped.problem, shaped.fault);
          continue;
        }
        const { value } = shaped;
        const isBad = QUALITIES[severity] === 'bad';
        if (!isSent(shaping, sent, value, isBad, timeMs)) continue;
        sent = { value, isBad, atMs: timeMs };
        columns.add(series, timeMs, value, STATUS_FLAGS[QUALITIES[severity]!]);
      }
      filled.values += columns.length;
      filled.fromMs = Math.min(filled.fromMs, fromMs);
      filled.untilMs = Math.max(filled.untilMs, untilMs);
      this.#markChanged(at);
      gate.writePast(columns, this.notes()).catch(() => {});
      await gate.untilRoom();
      if (page.point === undefined) return undefined;
      point = page.point;
    }
  }

  #reportMissing(at: number, fromMs: number, untilMs: number, error: string): void {
    const { source, points } = this.#context;
    const name = points[at]?.name;
    if (name === undefined || source.spec.historyMs === 0) return;
    const fields = { source: source.name, value: name, from: isoTime(fromMs), until: isoTime(untilMs), error };
    this.#trouble.report({ event: 'opcua.gap', ...fields }, 'value changes may be missing', name);
  }

  #markChanged(at: number): void {
    this.#changed.add(Math.floor(at / ITEMS_PER_NOTE));
  }
}

const isoTime = (ms: number): string => new Date(ms).toISOString();
