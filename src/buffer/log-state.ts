/**
 * The log in memory: its rows, the queue of each series, and arrivals (values that are not in a queue yet). While the
 * platform is unavailable, sorting many commits together before a flush takes half as long as filling a queue per
 * series.
 */
import { AcceptanceTimes } from './acceptance-times.ts';
import type { SettledRun } from './format/log-row.ts';
import { type Columns, releaseColumns } from './format/value-columns.ts';
import { Pending } from './pending.ts';
import type { Arrival, AssetState, RowState, SeriesState } from './records.ts';
import { StampCorrection } from './recovery/stamp-correction.ts';
import { NO_QUEUE, SeriesQueue } from './series-queue.ts';
import { SeriesTable } from './series-table.ts';

export class LogState extends SeriesTable {
  /** Changes for the next commit. */
  readonly pending = new Pending();
  readonly stamps = new StampCorrection();
  readonly times = new AcceptanceTimes();
  /** In order of acceptance. */
  #rows: RowState[] = [];
  /** Committed values that are not in the queues yet, at the end of the log. */
  #arrivals: Arrival[] = [];
  protected readonly numbers = { seq: 0, row: 1, span: 1, place: 1, batch: 1 };
  protected readonly totals = { logValues: 0, segmentValues: 0, quarantined: 0, notLoaded: 0 };

  get rows(): readonly RowState[] {
    return this.#rows;
  }

  /** Next sequence, row, span, place and batch numbers. */
  get next(): Readonly<{ seq: number; row: number; span: number; place: number; batch: number }> {
    return this.numbers;
  }

  /**
   * Unsettled values in the log and in segments, values in quarantine, and values left on disk because of the memory
   * limit.
   */
  get counts(): Readonly<{ logValues: number; segmentValues: number; quarantined: number; notLoaded: number }> {
    return this.totals;
  }

  /** Raises the next numbers to at least the given numbers. */
  raiseNext(next: Partial<LogState['next']>): void {
    for (const [kind, least] of Object.entries(next) as [keyof LogState['next'], number][]) {
      this.numbers[kind] = Math.max(this.numbers[kind], least);
    }
  }

  #queueOf(state: SeriesState): SeriesQueue {
    if (state.queue === NO_QUEUE) state.queue = new SeriesQueue();
    return state.queue;
  }

  #releaseQueue(state: SeriesState): void {
    if (state.queue.isUnused) state.queue = NO_QUEUE;
  }

  /**
   * Adds a committed row of the log. Its values remain unsorted until a post, flush or listing requires them by series.
   */
  addRow(columns: Columns, run: number, monotonicMs: number): void {
    const { length: count } = columns;
    const firstSeq = this.numbers.seq;
    const row = { id: this.numbers.row++, firstSeq, count, left: count, isLoaded: true, run, monotonicMs };
    this.#rows.push(row);
    if (count === 0) return;
    const arrival = { columns, firstSeq };
    this.#arrivals.push(arrival);
    this.#countArrival(arrival);
    this.numbers.seq += count;
    this.totals.logValues += count;
  }

  /**
   * Adds a row that was read at startup. Omits values of series for which `isLost` returns true, and returns the number
   * of these values.
   */
  restoreRow(
    head: Pick<RowState, 'id' | 'firstSeq' | 'isLoaded' | 'run' | 'monotonicMs'>,
    { length, series, timeMs, value, flags }: Columns,
    isLost: (series: number) => boolean,
  ): number {
    let lost = 0;
    for (let i = 0; head.isLoaded && i < length; i++) {
      if (isLost(series[i]!)) {
        lost++;
        continue;
      }
      const state = this.seriesOf(series[i]!);
      const late = timeMs[i]! <= state.backlogTimeMs;
      this.#queueOf(state).push(timeMs[i]!, value[i]!, head.firstSeq + i, flags[i]!, late);
      this.markChanged(state.asset);
    }
    this.#rows.push({ ...head, count: length, left: length - lost });
    this.numbers.seq = head.firstSeq + length;
    if (head.isLoaded) this.totals.logValues += length - lost;
    else this.leaveOnDisk(length);
    return lost;
  }

  /** Counts values that were not loaded because of the memory limit. */
  leaveOnDisk(values: number): void {
    this.totals.notLoaded += values;
  }

  /** Removes the first `count` rows, which contain no unsettled values. */
  dropRows(count: number): void {
    const [last] = this.#rows.splice(0, count).slice(-1);
    if (last) this.pending.dropRows(last.id, last.firstSeq + last.count - 1);
  }

  #countArrival({ columns: { length, series, timeMs }, firstSeq }: Arrival, only?: Uint8Array): void {
    let asset: AssetState | undefined;
    for (let i = 0; i < length; i++) {
      if (only && only[series[i]!] === 0) continue;
      const state = this.seriesOf(series[i]!);
      if (firstSeq + i <= state.flushedSeq) continue;
      this.#queueOf(state).noteArrival(firstSeq + i, timeMs[i]! <= state.backlogTimeMs);
      if (state.asset === asset) continue;
      asset = state.asset;
      this.markChanged(asset);
    }
  }

  /** Moves arrivals, up to a sequence number, to the queues of their series. Must be called before a queue is read. */
  distribute(throughSeq = Number.POSITIVE_INFINITY): void {
    const arrivals = this.arrivalsThrough(throughSeq);
    if (arrivals.length === 0) return;
    this.#arrivals = this.#arrivals.slice(arrivals.length);
    for (const state of this.series) if (state && state.queue !== NO_QUEUE) state.queue.clearArrivals();
    for (const arrival of this.#arrivals) this.#countArrival(arrival);
    for (const { columns, firstSeq } of arrivals) {
      for (let i = 0; i < columns.length; i++) {
        const state = this.seriesOf(columns.series[i]!);
        if (firstSeq + i <= state.flushedSeq) continue;
        const time = columns.timeMs[i]!;
        const late = time <= state.backlogTimeMs;
        this.#queueOf(state).push(time, columns.value[i]!, firstSeq + i, columns.flags[i]!, late);
      }
      releaseColumns(columns);
    }
  }

  /** Whether all queues are empty, so that the arrivals are the only unsettled values in the log. */
  get hasOnlyArrivals(): boolean {
    return !this.series.some((state) => state !== undefined && state.queue.length > 0);
  }

  /** Returns arrivals up to a sequence number. Some of their series may have been flushed. */
  arrivalsThrough(throughSeq: number): readonly Arrival[] {
    const later = this.#arrivals.findIndex(({ firstSeq }) => firstSeq > throughSeq);
    return later < 0 ? this.#arrivals : this.#arrivals.slice(0, later);
  }

  dropArrivals(throughSeq: number): void {
    const dropped = this.arrivalsThrough(throughSeq);
    this.#arrivals = this.#arrivals.slice(dropped.length);
    for (const { columns } of dropped) releaseColumns(columns);
  }

  /** Records that the arrivals of a series are flushed. Their rows are removed when the flush is complete. */
  flushArrivals(
    state: SeriesState,
    { firstSeq, throughSeq, count }: { firstSeq: number; throughSeq: number; count: number },
  ): void {
    state.flushedSeq = throughSeq;
    this.pending.settled.push({ series: state.series.id, firstSeq, lastSeq: throughSeq });
    this.totals.logValues -= count;
  }

  /** Recounts the arrivals of some series after a flush up to `throughSeq`. */
  protected recountArrivals(ids: Uint32Array, throughSeq: number): void {
    const only = new Uint8Array(this.series.length);
    for (const id of ids) {
      only[id] = 1;
      const { queue } = this.seriesOf(id);
      if (queue !== NO_QUEUE) queue.clearArrivals();
    }
    for (const arrival of this.#arrivals) if (arrival.firstSeq > throughSeq) this.#countArrival(arrival, only);
    for (const id of ids) this.#releaseQueue(this.seriesOf(id));
  }

  seriesInLog(): number {
    return this.series.filter((state) => state && state.queue !== NO_QUEUE).length;
  }

  /** Returns the row that contains a sequence number. */
  rowOf(seq: number): RowState | undefined {
    let low = 0;
    let high = this.#rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#rows[middle]!.firstSeq <= seq) low = middle + 1;
      else high = middle;
    }
    return this.#rows[low - 1];
  }

  /** Returns the run of the agent that accepted the value at a position of the queue. */
  runOf({ queue }: SeriesState, position: number): number {
    return this.rowOf(queue.seqAt(position))?.run ?? 0;
  }

  /** Removes values that move to a segment from the counts of their rows. */
  leaveRows(state: SeriesState, position: number, count: number): void {
    const { queue, series } = state;
    this.#leaveRows(queue, position, count);
    const [firstSeq, lastSeq] = [queue.seqAt(position), queue.seqAt(position + count - 1)];
    this.pending.settled.push({ series: series.id, firstSeq, lastSeq });
  }

  #leaveRows(queue: SeriesQueue, position: number, count: number): void {
    let row: RowState | undefined;
    for (let at = position; at < position + count; at++) {
      const seq = queue.seqAt(at);
      if (!row || seq >= row.firstSeq + row.count) row = this.rowOf(seq);
      if (row) row.left--;
    }
    this.totals.logValues -= count;
  }

  /** Settles values in the log. */
  settleQueued(state: SeriesState, position: number, count: number): void {
    this.leaveRows(state, position, count);
    this.#settleQueue(state, position, count);
  }

  /** Applies a record of settled values that was read at startup. Some of the values may have left the log. */
  restoreSettled({ series, firstSeq, lastSeq }: SettledRun): void {
    const state = this.series[series];
    if (!state) return;
    const { queue } = state;
    let from = queue.popped + queue.countThrough(firstSeq - 1);
    const to = queue.popped + queue.countThrough(lastSeq);
    while (from < to && queue.isSettled(from)) from++;
    if (from >= to) return;
    this.#leaveRows(queue, from, to - from);
    this.#settleQueue(state, from, to - from);
  }

  #settleQueue(state: SeriesState, position: number, count: number): void {
    state.queue.settle(position, count);
    this.markChanged(state.asset);
    this.#releaseQueue(state);
  }

  dropFlushed(state: SeriesState, count: number): void {
    state.queue.dropFront(count);
    this.#releaseQueue(state);
  }
}
