/**
 * What the store counts, beside a plain list of its values: whatever is taken in, flushed, taken, ended or lost, the state says of every
 * series, row, span and lane what counting all values anew says, and a commit writes just that.
 */
import { describe, expect, it } from 'vitest';
import {
  quarantineBatch,
  releaseSlice,
  setAsideSegment,
  settleRuns,
  settleSlice,
} from '../../src/buffer/batches/settle.ts';
import { divideBatch, leaveLanes } from '../../src/buffer/batches/take.ts';
import type { Batch, TakeRequest } from '../../src/buffer/client/lanes.ts';
import type { SettledRun } from '../../src/buffer/format/log-row.ts';
import { unpackSegment } from '../../src/buffer/format/segment.ts';
import { unpackRanges } from '../../src/buffer/format/settled-ranges.ts';
import { NO_QUEUE } from '../../src/buffer/series-queue.ts';
import { markGone, newSpan, type Span, segmentId, unpackDirectory } from '../../src/buffer/span.ts';
import type { QuarantineRow, SpanRow } from '../../src/buffer/tables.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { MemoryStore, readingsIn } from './memory-store.ts';

/** Three assets; two of them have series of several instrumentations, or of none. */
const ASSETS = [1, 1, 1, 2, 2, 3];
const INSTRUMENTATIONS = [7, 8, 7, undefined, undefined, 9];
const SERIES = ASSETS.map((_, i) => i + 1);
const NEVER = Number.POSITIVE_INFINITY;

interface Value {
  series: number;
  timeMs: number;
  fate: 'waits' | 'under way' | 'gone';
}

interface TakenBatch {
  lane: 'live' | 'backlog';
  along: boolean;
  asset: number;
  numbers: number[];
}

/** A store in memory, and all that was ever accepted: the number of a value is its reading, and one more than its place in the order. */
class Books extends MemoryStore {
  readonly clock: ManualClock;
  readonly all: Value[] = [];
  readonly batches = new Map<number, TakenBatch>();
  /** The values that were put into each segment. */
  readonly entries = new Map<Span, number[][]>();
  readonly held = new Set<number>();
  readonly quarantined: { series: number; readings: number[]; status: number; message: string; atMs: number }[] = [];
  readonly aside: { what: string; place: number; bytes: Uint8Array | null }[] = [];
  readonly #backlogTimes = new Map<number, number>();
  #recorded: SettledRun[] = [];
  #flushedThrough = 0;
  #timeMs = 1_000;

  constructor(seed: number) {
    super(ASSETS, INSTRUMENTATIONS);
    this.clock = new ManualClock(0, seed);
  }

  random(below: number): number {
    return Math.floor(this.clock.random() * below);
  }

  #of(number: number): Value {
    return this.all[number - 1]!;
  }

  #standing(): number[] {
    return this.all.flatMap(({ fate }, i) => (fate === 'gone' ? [] : [i + 1]));
  }

  #inLog(number: number): boolean {
    return number > this.#flushedThrough;
  }

  #end(numbers: readonly number[], fate: Value['fate']): void {
    for (const number of numbers) if (this.#of(number).fate !== 'gone') this.#of(number).fate = fate;
  }

  come(): void {
    const ids = Array.from({ length: 1 + this.random(9) }, () => SERIES[this.random(SERIES.length)]!);
    this.accept(ids, {
      timeOf: (_, series) => {
        this.#timeMs += this.random(3);
        const timeMs = this.random(4) === 0 ? this.#timeMs - this.random(40) : this.#timeMs;
        this.all.push({ series, timeMs, fate: 'waits' });
        return timeMs;
      },
    });
  }

  flushSome(): void {
    const { rows } = this.state;
    if (rows.length === 0) return;
    const count = 1 + this.random(rows.length);
    const last = rows[count - 1]!;
    const before = new Set(this.state.spans);
    this.flush.begin(count);
    if (this.random(2)) this.flush.finish();
    else while (this.flush.isUnderWay) this.flush.step({ values: 1 + this.random(20), segments: 1 + this.random(3) });
    this.#flushedThrough = last.firstSeq + last.count;
    for (const span of this.state.spans) if (!before.has(span)) this.entries.set(span, this.#readingsOf(span));
  }

  #readingsOf(span: Span): number[][] {
    return Array.from(span.series, (_, entry) => [...this.segments.read(span, entry)!.value]);
  }

  /** Values of the log that may be posted live, in their order. */
  #liveOf(series: number): number[] {
    const { backlogTimeMs } = this.state.seriesOf(series);
    const waits = this.#standing().filter((number) => this.#inLog(number) && this.#of(number).series === series);
    return waits.filter((number) => this.#of(number).fate === 'waits' && this.#of(number).timeMs > backlogTimeMs);
  }

  #backlogOf(series: number): number[] {
    return this.#standing().filter((number) => !this.#inLog(number) && this.#of(number).series === series);
  }

  #underWay(span: Span, entry: number): number {
    const numbers = this.entries.get(span)![entry]!;
    const holding = [...this.batches.values()].filter((batch) => batch.numbers.some((one) => numbers.includes(one)));
    return holding.length;
  }

  /** Segments of the series, those of which nothing is left aside. */
  #entriesOf(series: number): { span: Span; entry: number }[] {
    return this.state.spans.flatMap((span) =>
      [...span.series.keys()]
        .filter((entry) => span.series[entry] === series && !span.gone[entry])
        .map((entry) => ({ span, entry })),
    );
  }

  /** Whether the series has something in its oldest segment, and nothing under way in the span of that. */
  #mayTakeBacklog(series: number): boolean {
    const [first, ...others] = this.#entriesOf(series);
    const inSpan = [first, ...others].filter((one) => one?.span === first?.span);
    return first !== undefined && inSpan.every((one) => this.#underWay(one!.span, one!.entry) === 0);
  }

  takeSome(): void {
    const asset = 1 + this.random(3);
    const ofAsset = SERIES.filter((id) => ASSETS[id - 1] === asset);
    const request: TakeRequest = {
      asset,
      lane: this.random(2) ? 'live' : 'backlog',
      maxValues: 1 + this.random(12),
      maxBytes: this.random(4) === 0 ? 300 + this.random(400) : 1e6,
      alongValues: this.random(3) * 4,
      oneInstrumentation: this.random(3) === 0,
      ...(this.random(5) === 0 ? { onlySeries: ofAsset.slice(this.random(2)) } : {}),
    };
    const wanted = ofAsset.filter((id) => (request.onlySeries ? request.onlySeries.includes(id) : !this.held.has(id)));
    const isBusy = this.#lanesUnderWay(asset)[request.lane] > 0;
    const live = new Map(SERIES.map((id) => [id, this.#liveOf(id)]));
    const backlog = new Map(SERIES.map((id) => [id, this.#backlogOf(id)]));
    const isThere = wanted.some((id) =>
      request.lane === 'live' ? live.get(id)!.length > 0 : this.#mayTakeBacklog(id),
    );
    const batch = this.take(request);
    expect(batch !== undefined).toBe(!isBusy && isThere);
    if (!batch) return;
    const found = [...readingsIn(batch)].map(([key, readings]) => ({ id: Number(key.slice(1)), readings }));
    const numbers = found.flatMap(({ readings }) => readings);
    const liveNumbers = numbers.filter((number) => this.#inLog(number));
    const targets = new Set(found.map(({ id }) => INSTRUMENTATIONS[id - 1] ?? -id));
    for (const { id, readings } of found) {
      expect(wanted).toContain(id);
      const old = readings.filter((number) => !this.#inLog(number));
      const fresh = readings.filter((number) => this.#inLog(number));
      // Nothing is left out, and nothing overtakes what is under way.
      expect(readings).toEqual([...backlog.get(id)!.slice(0, old.length), ...live.get(id)!.slice(0, fresh.length)]);
      expect(old.every((number) => this.#of(number).fate === 'waits')).toBe(true);
    }
    if (request.oneInstrumentation) expect(targets.size).toBe(1);
    expect(numbers.length).toBeLessThanOrEqual(request.maxValues);
    expect(batch.body.length).toBeLessThanOrEqual(request.maxBytes);
    if (request.lane === 'backlog') expect(liveNumbers).toEqual([]);
    else expect(numbers.length - liveNumbers.length).toBeLessThanOrEqual(request.alongValues!);
    const { instrumentation } = this.state.seriesOf(batch.series[0]!).series;
    expect(batch).toStrictEqual({
      id: this.state.nextBatch - 1,
      asset,
      series: found.map(({ id }) => id),
      ...(instrumentation === undefined ? {} : { instrumentation }),
      values: numbers.length,
      liveValues: liveNumbers.length,
      backlogValues: numbers.length - liveNumbers.length,
      body: batch.body,
      corrected: 0,
      doubtful: 0,
    });
    this.#end(numbers, 'under way');
    const along = this.state.batches.get(batch.id)!.along;
    expect(along).toBe(numbers.length > liveNumbers.length);
    this.batches.set(batch.id, { lane: request.lane, along, asset, numbers });
  }

  #lanesUnderWay(asset: number) {
    const batches = [...this.batches.values()].filter((one) => one.asset === asset);
    return {
      live: batches.filter(({ lane }) => lane === 'live').length,
      backlog: batches.filter(({ lane, along }) => lane === 'backlog' || along).length,
    };
  }

  endSome(): void {
    const [id, taken] = [...this.batches][this.random(this.batches.size)] ?? [];
    if (id === undefined || !taken) return;
    const { state, pending, segments } = this;
    const batch = state.batches.get(id)!;
    const kind = this.random(6);
    if (kind === 0) {
      this.#divide(id, taken);
      return;
    }
    state.batches.delete(id);
    this.batches.delete(id);
    leaveLanes(batch);
    if (kind < 3) {
      for (const slice of batch.slices) settleSlice(state, pending, segments, slice);
      this.#end(taken.numbers, 'gone');
    } else if (kind < 5) {
      for (const slice of batch.slices) releaseSlice(state, slice);
      this.#end(taken.numbers, 'waits');
    } else {
      const words = { status: 422, message: 'x'.repeat(this.random(2) ? 400 : 600), atMs: this.random(1e6) };
      for (const { series, value } of batch.slices)
        this.quarantined.push({
          series: series.series.id,
          readings: [...value],
          ...words,
          message: words.message.slice(0, 500),
        });
      quarantineBatch(state, pending, segments, batch, words);
      this.#end(taken.numbers, 'gone');
    }
  }

  #divide(id: number, taken: TakenBatch): void {
    const { state } = this;
    const whole = state.batches.get(id)!;
    const series = [...new Set(whole.slices.map((slice) => slice.series.series.id))];
    const readings = whole.slices.flatMap((slice) =>
      Array.from(slice.value, (value) => [slice.series.series.id, value]),
    );
    const first = new Set(series.slice(0, series.length >> 1));
    const half = readings.length >> 1;
    const expected =
      series.length > 1
        ? [readings.filter(([one]) => first.has(one!)), readings.filter(([one]) => !first.has(one!))]
        : [readings.slice(0, half), readings.slice(half)];
    const parts = divideBatch(state, this.body, whole);
    if (readings.length === 1) {
      expect(parts).toEqual([]);
      return;
    }
    expect(parts.map((part) => partsOf(part))).toEqual(expected.map((part) => part.toSorted(byNumber)));
    expect(state.batches.has(id)).toBe(false);
    this.batches.delete(id);
    for (const part of parts) {
      const numbers = [...readingsIn(part).values()].flat();
      expect([part.asset, part.values, part.liveValues + part.backlogValues]).toEqual([
        taken.asset,
        numbers.length,
        numbers.length,
      ]);
      this.batches.set(part.id, { ...taken, numbers });
    }
  }

  holdSome(): void {
    this.held.clear();
    for (const id of SERIES) if (this.random(4) === 0) this.held.add(id);
    this.state.holdSeries([...this.held, 99]);
  }

  #someEntry(): { span: Span; entry: number } | undefined {
    const places = SERIES.flatMap((id) => this.#entriesOf(id));
    return places[this.random(places.length)];
  }

  loseSome(): void {
    const place = this.#someEntry();
    if (!place) return;
    const { span, entry } = place;
    const bytes = this.random(2) ? undefined : Uint8Array.of(1, 2, this.random(9));
    const standing = this.entries.get(span)![entry]!.filter((number) => this.#of(number).fate !== 'gone');
    expect(setAsideSegment(this.state, this.pending, span, entry, bytes)).toBe(standing.length);
    this.aside.push({ what: 'segment', place: segmentId(span.id, entry), bytes: bytes ?? null });
    this.#end(standing, 'gone');
  }

  /** What nobody has under way is taken out of a segment. */
  withdrawSome(): void {
    const place = this.#someEntry();
    if (!place || this.#underWay(place.span, place.entry) > 0) return;
    const { span, entry } = place;
    const numbers = this.entries.get(span)![entry]!;
    const runs = Array.from({ length: 1 + this.random(3) }, () => {
      const from = this.random(numbers.length);
      return { from, to: from + 1 + this.random(numbers.length - from) };
    });
    const going = numbers.filter((_, i) => runs.some(({ from, to }) => from <= i && i < to));
    const standing = going.filter((number) => this.#of(number).fate !== 'gone');
    expect(settleRuns(this.state, this.pending, this.segments, span, entry, runs)).toBe(standing.length);
    this.#end(going, 'gone');
  }

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
      expect(read).toEqual({ ...standing, progress: new Map(), underWay: new Map(), changes: 0 });
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
    const standing = this.#standing();
    const inLog = standing.filter((number) => this.#inLog(number));
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
    const named = new Set(inLog.map((number) => this.#of(number).series));
    expect(state.seriesInLog()).toBe(named.size);
    for (const id of SERIES) {
      const { queue, segments, entries, backlogTimeMs, lastSeq, held } = state.seriesOf(id);
      const own = this.#entriesOf(id);
      const latest = Math.max(
        this.#backlogTimes.get(id) ?? Number.NEGATIVE_INFINITY,
        ...own.map(({ span, entry }) =>
          Math.max(...this.entries.get(span)![entry]!.map((number) => this.#of(number).timeMs)),
        ),
      );
      this.#backlogTimes.set(id, own.length > 0 ? latest : Number.NEGATIVE_INFINITY);
      const waits = inLog.filter((number) => this.#of(number).series === id && this.#of(number).fate === 'waits');
      const late = waits.filter((number) => this.#of(number).timeMs <= backlogTimeMs);
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
      const settled = entries.map((numbers) => numbers.map((number) => this.#of(number).fate === 'gone'));
      const gone = settled.map((each) => (each.every(Boolean) ? 1 : 0));
      const underWay = entries.map((_, entry) => this.#underWay(span, entry));
      expect({
        count: [...span.count],
        gone: [...span.gone],
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
      seq >= this.#flushedThrough &&
      runs.some((run) => run.series === series && run.firstSeq <= seq && seq <= run.lastSeq)
        ? [seq + 1]
        : [],
    );
    const gone = this.all.flatMap(({ fate }, seq) => (seq >= this.#flushedThrough && fate === 'gone' ? [seq + 1] : []));
    expect(left).toEqual(gone);
  }

  #expectLanes(asset: number): void {
    const ids = SERIES.filter((id) => ASSETS[id - 1] === asset && !this.held.has(id));
    const live = ids.flatMap((id) => this.#liveOf(id)).toSorted((one, other) => one - other);
    const oldest = this.state.rows.findLast(({ firstSeq }) => firstSeq < live[0]!);
    const free = ids
      .flatMap((id) => this.#entriesOf(id))
      .filter(({ span, entry }) => this.#underWay(span, entry) === 0);
    const open = free.flatMap(({ span, entry }) =>
      this.entries.get(span)![entry]!.filter((one) => this.#of(one).fate !== 'gone'),
    );
    expect(this.lanes(asset)).toEqual({
      asset,
      live: live.length,
      oldestLiveAtMs: oldest?.monotonicMs ?? NEVER,
      backlog: open.length,
      oldestBacklogAt: Math.min(NEVER, ...free.map(({ span }) => span.place)),
    });
    const { liveUnderWay, backlogUnderWay } = this.asset(asset);
    expect({ live: liveUnderWay, backlog: backlogUnderWay }).toEqual(this.#lanesUnderWay(asset));
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

const byNumber = ([one]: readonly unknown[], [other]: readonly unknown[]) => Number(one) - Number(other);

/** `[key, reading]` of each value, by key. */
function partsOf(part: Batch): [number, number][] {
  const readings = [...readingsIn(part)].flatMap(([key, values]) =>
    values.map((value): [number, number] => [Number(key.slice(1)), value]),
  );
  return readings.toSorted(byNumber);
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

describe('the books of a store', () => {
  it.each([1, 2, 3, 4])('hold after each step what counting every value anew gives, seed %i', (seed) => {
    const books = new Books(seed);
    const { state } = books;
    const steps = [
      () => books.come(),
      () => books.come(),
      () => books.takeSome(),
      () => books.takeSome(),
      () => books.takeSome(),
      () => books.endSome(),
      () => books.endSome(),
      () => books.endSome(),
      () => books.flushSome(),
      () => books.record(),
      () => (books.random(3) === 0 ? books.holdSome() : undefined),
      () => (books.random(3) === 0 ? books.loseSome() : books.withdrawSome()),
    ];
    for (let turn = 0; turn < 160; turn++) {
      const before = books.signs();
      state.touched.clear();
      steps[books.random(steps.length)]!();
      books.expectCounted();
      const after = books.signs();
      for (const [asset, lanes] of after.lanes)
        if (before.lanes.get(asset) !== lanes) expect(state.touched).toContain(asset);
      for (const [span, { changes, state: now }] of after.spans) {
        const earlier = before.spans.get(span);
        if (earlier && earlier.state !== now) expect(changes).toBeGreaterThan(earlier.changes);
      }
      const hasMoved =
        [...before.spans.keys()].some((one) => !after.spans.has(one)) || after.spans.size > before.spans.size;
      if (hasMoved) expect(after.spanChanges).toBeGreaterThan(before.spanChanges);
    }
    expect(books.all.length).toBeGreaterThan(80);
  });
});

describe('the state of a store', () => {
  const SERIES_3 = { id: 3, asset: 2, key: 'k', group: undefined, unit: undefined, instrumentation: undefined };

  it('knows a series once, and none that was not brought', () => {
    const store = new MemoryStore([1, 1]);
    const { state } = store;
    store.row([1], 2);
    const first = state.seriesOf(1);
    expect(state.addSeries({ ...SERIES_3, id: 1, key: 'another' })).toBe(first);
    expect([state.seriesOf(1).series.key, store.asset().series.length]).toEqual(['k1', 2]);
    expect(() => state.seriesOf(3)).toThrow('series 3 is not known to the store');
    const added = state.addSeries(SERIES_3);
    expect([state.seriesOf(3), [...state.assets.keys()]]).toEqual([added, [1, 2]]);
    const { asset, queue, series, ...rest } = added;
    expect(rest).toEqual({
      ...{ flushedSeq: -1, segments: 0, entries: 0, lastSeq: -1, held: false },
      backlogTimeMs: Number.NEGATIVE_INFINITY,
    });
    expect([asset, queue, series]).toEqual([state.assets.get(2), NO_QUEUE, { ...SERIES_3, since: 0 }]);
    expect(asset).toEqual({
      ...{ asset: 2, series: [added], places: [], backlog: 0, liveUnderWay: 0, backlogUnderWay: 0, nextSeries: 0 },
      lastTarget: Number.NEGATIVE_INFINITY,
    });
  });

  it('has spans in the order of acceptance, however they come, and drops each once', () => {
    const { state, asset } = (() => {
      const store = new MemoryStore([1, 1]);
      return { state: store.state, asset: store.asset() };
    })();
    const spans = [3, 1, 2, 2].map((place, i) =>
      newSpan({ id: i + 1, place, run: 1, acceptedMs: 10 * place }, [
        { series: 1, count: 2, lastTimeMs: place },
        { series: 2, count: 1, lastTimeMs: 9 },
      ]),
    );
    for (const span of spans) state.addSpan(span);
    const order = [2, 3, 4, 1];
    const places = () => [state.spans.map(({ id }) => id), asset.places.map(({ span }) => span.id)];
    expect(places()).toEqual([order, order]);
    expect(asset.places.map(({ from, to }) => [from, to])).toEqual(order.map(() => [0, 2]));
    expect([state.segmentValues, asset.backlog, state.spanChanges]).toEqual([12, 12, 4]);
    const ages = () => state.oldestAgeMs(25);
    // Of another run than this one: as long as it is known to have waited.
    expect(ages()).toBe(25);
    state.times.open(1, 0, []);
    expect(ages()).toBe(15);
    const entries = () => [1, 2].map((id) => state.seriesOf(id).entries);
    for (const _ of [1, 2]) {
      state.dropSpan(spans[1]!);
      expect([places(), entries(), ages()]).toEqual([
        [
          [3, 4, 1],
          [3, 4, 1],
        ],
        [3, 3],
        5,
      ]);
    }
    expect(state.spanChanges).toBe(6);
    for (const span of spans) state.dropSpan(span);
    expect([places(), entries(), ages()]).toEqual([[[], []], [0, 0], 0]);
  });

  it('counts of a span that comes what is not gone of it, and decides anew what waits late', () => {
    const store = new MemoryStore([1, 1]);
    const { state } = store;
    for (const _ of [1, 2]) store.row([1, 2], 1);
    const span = newSpan({ id: 1, place: 1, run: 1, acceptedMs: 0 }, [
      { series: 1, count: 4, lastTimeMs: 2 },
      { series: 2, count: 5, lastTimeMs: 9 },
    ]);
    span.gone[1] = 1;
    span.progress.set(0, [1, 2]);
    state.addSpan(span);
    const told = (id: number) => {
      const { segments, entries, backlogTimeMs, queue } = state.seriesOf(id);
      return { segments, entries, backlogTimeMs, live: [queue.arrived, queue.arrivedSeq], late: queue.arrivedLate };
    };
    // Of the first series the values 1 and 3, at those times.
    expect([told(1), told(2)]).toEqual([
      { segments: 1, entries: 1, backlogTimeMs: 2, live: [1, 2], late: 1 },
      { segments: 0, entries: 1, backlogTimeMs: Number.NEGATIVE_INFINITY, live: [2, 1], late: 0 },
    ]);
    expect([state.segmentValues, store.asset().backlog]).toEqual([3, 3]);
  });

  it('does not count again what a flush under way has taken of a series, nor give it to its queue', () => {
    for (const ids of [
      [1, 2],
      [2, 1],
    ]) {
      const store = new MemoryStore([1, 1]);
      const { state, flush } = store;
      for (const _ of [1, 2]) store.row(ids, 1);
      flush.begin(2);
      flush.step({ values: 1, segments: 1 });
      const live = () => [1, 2].map((id) => state.seriesOf(id).queue.waiting + state.seriesOf(id).queue.arrived);
      expect([live(), flush.isUnderWay]).toEqual([[0, 2], true]);
      // As a compaction brings one.
      state.addSpan(newSpan({ id: 9, place: 0, run: 1, acceptedMs: 0 }, [{ series: 1, count: 1, lastTimeMs: 0 }]));
      expect(live()).toEqual([0, 2]);
      state.distribute();
      expect([live(), state.seriesOf(1).queue]).toEqual([[0, 2], NO_QUEUE]);
    }
  });

  it('takes of each row what has left it, where a run of values goes over several', () => {
    const store = new MemoryStore([1]);
    for (const count of [2, 1, 3, 2]) store.row([1], count);
    store.state.distribute();
    const lefts = () => store.state.rows.map(({ left }) => left);
    expect(store.state.leaveRows(store.state.seriesOf(1), 1, 5)).toEqual({ series: 1, firstSeq: 1, lastSeq: 5 });
    expect([lefts(), store.state.logValues]).toEqual([[1, 0, 0, 2], 3]);
    store.state.leaveRows(store.state.seriesOf(1), 0, 1);
    store.state.leaveRows(store.state.seriesOf(1), 6, 2);
    expect([lefts(), store.state.logValues]).toEqual([[0, 0, 0, 0], 0]);
  });

  it('is as old as the first row that holds something, where there is no span', () => {
    const store = new MemoryStore([1]);
    const { state } = store;
    state.times.open(1, 0, []);
    for (const monotonicMs of [10, 20, 30]) store.row([1], 1, monotonicMs);
    expect(state.oldestAgeMs(100)).toBe(90);
    state.rows[0]!.left = 0;
    expect(state.oldestAgeMs(100)).toBe(80);
    for (const row of state.rows) row.left = 0;
    expect(state.oldestAgeMs(100)).toBe(0);
    expect([-1, 0, 1, 2, 9].map((seq) => state.rowOf(seq)?.id)).toEqual([undefined, 1, 2, 3, 3]);
  });

  it('gives its arrivals to the queues up to a place, and counts what is left', () => {
    const store = new MemoryStore([1, 2]);
    const { state } = store;
    for (const _ of [1, 2, 3]) store.row([1, 2], 1);
    const { queue } = state.seriesOf(1);
    const counted = () => [queue.length, queue.waiting, queue.arrived, queue.arrivedSeq, state.holdsOnlyArrivals];
    expect(counted()).toEqual([0, 0, 3, 0, true]);
    expect([-1, 0, 1, 2, 4, 99].map((seq) => state.arrivalsThrough(seq).length)).toEqual([0, 1, 1, 2, 3, 3]);
    state.distribute(-1);
    expect(counted()).toEqual([0, 0, 3, 0, true]);
    state.distribute(1);
    expect(counted()).toEqual([1, 1, 2, 2, false]);
    state.dropArrivals(2);
    expect(state.arrivalsThrough(99).map(({ firstSeq }) => firstSeq)).toEqual([4]);
    state.distribute();
    expect([queue.length, queue.arrived, state.arrivalsThrough(99).length]).toEqual([2, 0, 0]);
    expect([queue.seqAt(0), queue.seqAt(1)]).toEqual([0, 4]);
  });
});
