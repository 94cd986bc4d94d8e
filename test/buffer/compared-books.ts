import { expect } from 'vitest';
import type { SettledRun } from '../../src/buffer/format/log-row.ts';
import { unpackSegment } from '../../src/buffer/format/segment.ts';
import { unpackRanges } from '../../src/buffer/format/settled-ranges.ts';
import { NO_QUEUE } from '../../src/buffer/series-queue.ts';
import { markGone, newSpan, type Span, segmentId, unpackDirectory } from '../../src/buffer/span.ts';
import type { QuarantineRow, SpanRow } from '../../src/buffer/tables.ts';
import { ASSETS, Books, byNumber, SERIES } from './books.ts';

const NEVER = Number.POSITIVE_INFINITY;

/** Books that are compared: with the state after a step, with the tables after a commit. */
export class ComparedBooks extends Books {
  readonly #backlogTimes = new Map<number, number>();
  #recorded: SettledRun[] = [];

  record(): void {
    this.#recorded.push(...this.pending.settled);
    this.commit();
    this.#expectTables();
  }

  /** The tables hold what the state says, and nothing else. */
  #expectTables(): void {
    const { spans } = this.state;
    const rows = this.table<SpanRow>('span');
    expect(rows.map(({ id, place, run, accepted_ms }) => [id, place, run, accepted_ms]).toSorted()).toEqual(
      spans.map(({ id, place, run, acceptedMs }) => [id, place, run, acceptedMs]).toSorted(),
    );
    const gone = new Map(
      this.table<{ span: number; gone: Uint8Array }>('span_gone').map((row) => [row.span, row.gone]),
    );
    for (const { id, place, run, accepted_ms: acceptedMs, directory } of rows) {
      const span = spans.find((one) => one.id === id)!;
      const read = newSpan({ id, place, run, acceptedMs }, unpackDirectory(directory));
      const packed = gone.get(id);
      if (packed) markGone(read, packed);
      expect(gone.delete(id)).toBe(packed !== undefined);
      const { progress, underWay, changes, ...standing } = span;
      expect(read).toEqual({
        ...standing,
        gone: standing.gone.map((one) => (one === 0 ? 0 : 1)),
        progress: new Map(),
        underWay: new Map(),
        changes: 0,
      });
    }
    expect(gone.size).toBe(0);
    const places = spans.flatMap((span) =>
      [...span.series.keys()]
        .filter((entry) => !span.gone[entry])
        .map((entry) => ({ span, entry, id: segmentId(span.id, entry) })),
    );
    const inOrder = places.toSorted((one, other) => one.id - other.id);
    expect(this.table<{ id: number }>('segment').map(({ id }) => id)).toEqual(inOrder.map(({ id }) => id));
    const progress = this.table<{ segment: number; ranges: Uint8Array }>('segment_progress');
    expect(progress.map(({ segment, ranges }) => [segment, unpackRanges(ranges)])).toEqual(
      inOrder.flatMap(({ span, entry, id }) => (span.progress.has(entry) ? [[id, span.progress.get(entry)]] : [])),
    );
    const kept = this.table<QuarantineRow>('quarantine').map(
      ({ series, count, packed, status, message, at_ms: atMs }) => {
        const readings = [...unpackSegment(packed).value];
        expect(count).toBe(readings.length);
        return { series, readings, status, message, atMs };
      },
    );
    expect(kept).toEqual(this.quarantined);
    const aside = this.table<{ what: string; place: number; at_ms: number; bytes: Buffer | null }>('set_aside');
    expect(aside.map(({ what, place, bytes }) => ({ what, place, bytes: bytes && new Uint8Array(bytes) }))).toEqual(
      this.aside,
    );
  }

  /** What the state says, and what the values say. */
  expectCounted(): void {
    const { state } = this;
    const standing = this.standing();
    const inLog = standing.filter((number) => this.isInLog(number));
    expect([state.logValues, state.segmentValues, state.quarantined]).toEqual([
      inLog.length,
      standing.length - inLog.length,
      this.quarantined.reduce((sum, { readings }) => sum + readings.length, 0),
    ]);
    expect(state.nextSeq).toBe(this.all.length);
    this.#expectSeries(inLog);
    this.#expectSpans();
    this.#expectRows(inLog);
    for (const asset of new Set(ASSETS)) this.#expectLanes(asset);
  }

  #expectSeries(inLog: readonly number[]): void {
    const { state } = this;
    const named = new Set(inLog.map((number) => this.value(number).series));
    expect(state.seriesInLog()).toBe(named.size);
    for (const id of SERIES) {
      const { queue, segments, entries, backlogTimeMs, lastSeq, held } = state.seriesOf(id);
      const own = this.entriesOf(id);
      const latest = Math.max(
        this.#backlogTimes.get(id) ?? Number.NEGATIVE_INFINITY,
        ...own.map(({ span, entry }) =>
          Math.max(...this.entries.get(span)![entry]!.map((number) => this.value(number).timeMs)),
        ),
      );
      this.#backlogTimes.set(id, own.length > 0 ? latest : Number.NEGATIVE_INFINITY);
      const waits = inLog.filter((number) => this.value(number).series === id && this.value(number).fate === 'waits');
      const late = waits.filter((number) => this.value(number).timeMs <= backlogTimeMs);
      expect({
        segments,
        entries,
        backlogTimeMs,
        lastSeq,
        held,
        isInLog: queue !== NO_QUEUE,
        waiting: queue.waiting + queue.arrived,
        late: queue.late + queue.arrivedLate,
      }).toEqual({
        segments: own.length,
        entries: state.spans.reduce((sum, span) => sum + span.series.filter((one) => one === id).length, 0),
        backlogTimeMs: this.#backlogTimes.get(id),
        lastSeq: this.all.findLastIndex(({ series }) => series === id),
        held: this.held.has(id),
        isInLog: named.has(id),
        waiting: waits.length - late.length,
        late: late.length,
      });
    }
  }

  #expectSpans(): void {
    const { spans } = this.state;
    expect(spans.map(({ place }) => place)).toEqual(
      spans.map(({ place }) => place).toSorted((one, other) => one - other),
    );
    expect(spans.filter(({ left }) => left === 0)).toEqual([]);
    for (const span of spans) {
      const entries = this.entries.get(span)!;
      const settled = entries.map((numbers) => numbers.map((number) => this.value(number).fate === 'gone'));
      const gone = settled.map((each) => (each.every(Boolean) ? 1 : 0));
      const underWay = entries.map((_, entry) => this.batchesWith(span, entry));
      expect({
        count: [...span.count],
        gone: Array.from(span.gone, (one) => (one === 0 ? 0 : 1)),
        left: span.left,
        values: span.values,
        progress: [...span.progress].toSorted(byNumber),
        underWay: [...span.underWay].toSorted(byNumber),
      }).toEqual({
        count: entries.map(({ length }) => length),
        gone,
        left: gone.filter((one) => one === 0).length,
        values: entries.flat().length,
        progress: settled.flatMap((each, entry) =>
          gone[entry] || !each.includes(true) ? [] : [[entry, runsOf(each)]],
        ),
        underWay: underWay.flatMap((count, entry) => (count > 0 ? [[entry, count]] : [])),
      });
    }
  }

  #expectRows(inLog: readonly number[]): void {
    const { rows } = this.state;
    expect(rows.map(({ left }) => left)).toEqual(
      rows.map(
        ({ firstSeq, count }) => inLog.filter((number) => number > firstSeq && number <= firstSeq + count).length,
      ),
    );
    const [first] = rows;
    const inRows = this.all.flatMap((_, seq) => (seq >= (first?.firstSeq ?? NEVER) ? [seq] : []));
    const isIn = (seq: number, { firstSeq, count } = this.state.rowOf(seq)!) =>
      firstSeq <= seq && seq < firstSeq + count;
    expect(inRows.filter((seq) => !isIn(seq))).toEqual([]);
    if (first) expect(this.state.rowOf(first.firstSeq - 1)).toBeUndefined();
    // What was written as settled, beside the rows that stand, is what has left them.
    const runs = [...this.#recorded, ...this.pending.settled];
    const left = this.all.flatMap(({ series }, seq) =>
      seq >= this.flushedThrough &&
      runs.some((run) => run.series === series && run.firstSeq <= seq && seq <= run.lastSeq)
        ? [seq + 1]
        : [],
    );
    const gone = this.all.flatMap(({ fate }, seq) => (seq >= this.flushedThrough && fate === 'gone' ? [seq + 1] : []));
    expect(left).toEqual(gone);
  }

  #expectLanes(asset: number): void {
    const ids = SERIES.filter((id) => ASSETS[id - 1] === asset && !this.held.has(id));
    const live = ids.flatMap((id) => this.liveOf(id)).toSorted((one, other) => one - other);
    const oldest = this.state.rows.findLast(({ firstSeq }) => firstSeq < live[0]!);
    // The world is opened as run 1 at 0 ms, and knows nothing of other runs: their values arrived then.
    const oldestAtMs = oldest?.run === 1 ? oldest.monotonicMs : 0;
    const free = ids
      .flatMap((id) => this.entriesOf(id))
      .filter(({ span, entry }) => this.batchesWith(span, entry) === 0);
    const open = free.flatMap(({ span, entry }) =>
      this.entries.get(span)![entry]!.filter((one) => this.value(one).fate !== 'gone'),
    );
    expect(this.lanes(asset)).toEqual({
      asset,
      live: live.length,
      oldestLiveAtMs: oldest ? oldestAtMs : NEVER,
      backlog: open.length,
      oldestBacklogAt: Math.min(NEVER, ...free.map(({ span }) => span.place)),
    });
    const { liveUnderWay, backlogUnderWay } = this.asset(asset);
    expect({ live: liveUnderWay, backlog: backlogUnderWay }).toEqual(this.lanesUnderWay(asset));
  }

  /** All that somebody may keep who is told of changes alone. */
  signs() {
    const { state } = this;
    return {
      lanes: new Map([...state.assets.values()].map((asset) => [asset, JSON.stringify(this.lanes(asset.asset))])),
      spans: new Map(state.spans.map((span) => [span, { changes: span.changes, state: signOf(span) }])),
      spanChanges: state.spanChanges,
    };
  }
}

function signOf({ gone, left, progress, underWay }: Span): string {
  return JSON.stringify([[...gone], left, [...progress], [...underWay.keys()]]);
}

/** Runs of `true`, as settled ranges are written. */
function runsOf(settled: readonly boolean[]): number[] {
  return settled.flatMap((one, i) => {
    const edges: number[] = [];
    if (one && !settled[i - 1]) edges.push(i);
    if (one && !settled[i + 1]) edges.push(i + 1);
    return edges;
  });
}
