import { expect } from 'vitest';
import { lanesOf } from '../../src/buffer/asset-lanes.ts';
import { BodyWriter } from '../../src/buffer/batches/body-writer.ts';
import { SegmentReader } from '../../src/buffer/batches/segment-reader.ts';
import { releaseSlice, setAsideSegment, settleSlice } from '../../src/buffer/batches/settle.ts';
import { leaveLanes, takeBatch } from '../../src/buffer/batches/take.ts';
import { Flush } from '../../src/buffer/compaction/flush.ts';
import { Maintenance } from '../../src/buffer/compaction/maintenance.ts';
import { packSegment, type SegmentValues, unpackSegment } from '../../src/buffer/format/segment.ts';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { Pending } from '../../src/buffer/pending.ts';
import { ReadLeases } from '../../src/buffer/read-leases.ts';
import { newSpan, openValues, type Span, segmentId } from '../../src/buffer/span.ts';
import { type AssetState, type BatchState, StoreState } from '../../src/buffer/state.ts';

/** A value of the log as the disk has it: its place in the order of acceptance, and its reading. */
interface LogValue {
  series: number;
  seq: number;
  reading: number;
}

interface Segment {
  series: number;
  readings: readonly number[];
}

/**
 * The parts of a store in memory, without a database: its state, what is pending, and what the disk would hold after each commit. Readings
 * are numbered as they come; so a value is told by its reading, and has to keep the time and the flags that it came with.
 */
export class SpanWorld {
  readonly state = new StoreState();
  readonly pending = new Pending();
  readonly flush = new Flush(this.state, this.pending);
  /** Segments by number, as the last commit left them. */
  readonly onDisk = new Map<number, Uint8Array>();
  /** Segments that were read, but for those that the reader still had. */
  readonly read: number[] = [];
  readonly segments: SegmentReader;
  /** Segments that did not read were set aside, so many values each. */
  readonly lost: number[] = [];
  /** Segments that do not read yet, and are not given up for it. */
  readonly awaited = new Set<number>();
  #rowsOnDisk: { id: number; values: LogValue[] }[] = [];
  /** By reading: the time and the flags of each value. */
  readonly #came = new Map<number, [timeMs: number, flags: number]>();
  readonly #seriesOf = new Map<number, number>();

  /** Series 1, 2 and so on; all of asset 1 unless `assetOf` says else. */
  constructor(series = 2, assetOf: (id: number) => number = () => 1) {
    const { state, pending } = this;
    state.times.open(1, 0, []);
    for (let id = 1; id <= series; id++) {
      state.addSeries({
        id,
        asset: assetOf(id),
        key: `k${id}`,
        group: undefined,
        unit: undefined,
        instrumentation: undefined,
      });
    }
    this.segments = new SegmentReader(
      (id) => {
        this.read.push(id);
        return this.awaited.has(id) ? undefined : (pending.segments.get(id) ?? this.onDisk.get(id));
      },
      (span, entry, bytes) => {
        if (this.awaited.has(segmentId(span.id, entry))) return;
        this.lost.push(setAsideSegment(state, pending, span, entry, bytes));
      },
    );
  }

  get asset() {
    return this.state.assets.get(1)!;
  }

  lanes() {
    return lanesOf(this.state, this.asset);
  }

  /** The next value: its time is its reading, unless it is said to be late. */
  #value(series: number, lateBy = 0): [timeMs: number, reading: number, flags: number] {
    const reading = this.#came.size + 1;
    const value = [reading - lateBy, reading, reading % 8] as const;
    this.#came.set(reading, [value[0], value[2]]);
    this.#seriesOf.set(reading, series);
    return [...value];
  }

  /** With what time a value came, and of which series. */
  timeOf(reading: number): number {
    return this.#came.get(reading)![0];
  }

  seriesOf(reading: number): number {
    return this.#seriesOf.get(reading)!;
  }

  /** The readings of values, once it is clear that they are what came. */
  #readingsOf({ timeMs, value, flags }: Pick<SegmentValues, 'timeMs' | 'value' | 'flags'>): number[] {
    const readings = [...value];
    for (const [i, reading] of readings.entries()) {
      const [time, flag] = this.#came.get(reading) ?? [];
      if (timeMs[i] !== time || flags[i] !== flag)
        expect.fail(`${reading} came at ${time} with ${flag}: ${timeMs[i]} with ${flags[i]}`);
    }
    return readings;
  }

  /** A row of the log with so many values of each of these series. */
  row(
    ids: readonly number[],
    values: number,
    monotonicMs = this.state.nextRow * 10,
    { run = 1, lateBy = 0 }: { run?: number; lateBy?: number } = {},
  ): void {
    const { state } = this;
    const columns = new ValueColumns();
    for (let i = 0; i < values; i++) for (const id of ids) columns.add(id, ...this.#value(id, lateBy));
    const { length: count } = columns;
    const { nextSeq: firstSeq } = state;
    const onDisk = Array.from({ length: count }, (_, i) => {
      return { series: columns.series[i]!, seq: firstSeq + i, reading: columns.value[i]! };
    });
    this.#rowsOnDisk.push({ id: state.nextRow, values: onDisk });
    state.rows.push({ id: state.nextRow++, firstSeq, count, left: count, isLoaded: true, run, monotonicMs });
    state.takeIn(columns);
  }

  /** A row of the log that becomes a span at once. */
  span(ids: readonly number[], values: number): Span {
    this.row(ids, values);
    this.flush.begin(this.state.rows.length);
    this.flush.finish();
    return this.state.spans.at(-1)!;
  }

  /** A span as it stands on disk, behind all there are. Its segments are those of the given counts, series by series. */
  addSpan(
    counts: readonly (readonly [series: number, count: number])[],
    head: { acceptedMs: number; run?: number },
  ): Span {
    const { state } = this;
    const { nextPlace: place } = state;
    const packed = counts.map(([series, count]) => {
      const came = Array.from({ length: count }, () => this.#value(series));
      const timeMs = Float64Array.from(came, ([time]) => time);
      const value = Float64Array.from(came, ([, reading]) => reading);
      const flags = Uint8Array.from(came, ([, , flag]) => flag);
      const bytes = packSegment({ count, timeMs, value, flags }, 0, count, { series, place });
      return { series, count, lastTimeMs: timeMs.at(-1)!, leadSeconds: 0, bytes };
    });
    const span = newSpan({ id: state.nextSpan++, place: state.nextPlace++, run: 1, ...head }, packed);
    for (const [entry, { bytes }] of packed.entries()) this.onDisk.set(segmentId(span.id, entry), bytes);
    state.addSpan(span);
    return span;
  }

  /** A batch of what waits in the log, of these series; it bars no other. */
  take(maxValues: number, onlySeries?: readonly number[], lane: 'live' | 'backlog' = 'live'): BatchState {
    const { state, segments } = this;
    state.distribute();
    const request = { asset: 1, lane, maxValues, maxBytes: 1e6, ...(onlySeries && { onlySeries }) };
    const { batch } = takeBatch(state, segments, new BodyWriter(), request)!;
    leaveLanes(batch);
    return batch;
  }

  settle(batch: BatchState): void {
    this.state.batches.delete(batch.id);
    for (const slice of batch.slices) settleSlice(this.state, this.pending, this.segments, slice);
  }

  release(batch: BatchState): void {
    this.state.batches.delete(batch.id);
    for (const slice of batch.slices) releaseSlice(this.state, slice);
  }

  /** What is pending is on disk. */
  commit(): void {
    const { pending, onDisk } = this;
    for (const { id } of pending.droppedSpans)
      for (const segment of [...onDisk.keys()])
        if (segment >= segmentId(id, 0) && segment < segmentId(id + 1, 0)) onDisk.delete(segment);
    for (const id of pending.goneSegments) onDisk.delete(id);
    for (const [id, packed] of pending.segments) onDisk.set(id, packed);
    this.#rowsOnDisk = this.#rowsOnDisk.filter(({ id }) => id > pending.dropRowsThrough);
    for (const { series, firstSeq, lastSeq } of pending.settled)
      for (const row of this.#rowsOnDisk)
        row.values = row.values.filter((one) => one.series !== series || one.seq < firstSeq || one.seq > lastSeq);
    pending.clear();
  }

  /** What of a segment is not settled. */
  readings(span: Span, entry: number): number[] {
    const id = segmentId(span.id, entry);
    const { count, ...values } = unpackSegment((this.pending.segments.get(id) ?? this.onDisk.get(id))!);
    const readings = this.#readingsOf(values);
    const isSettled = (at: number) => (span.progress.get(entry) ?? []).filter((edge) => edge <= at).length % 2 === 1;
    const head = [values.series, values.place, count, Math.max(...values.timeMs)];
    const directory = [span.series[entry], span.place, span.count[entry], span.lastTimeMs[entry]];
    if (String(head) !== String(directory)) expect.fail(`the directory has ${directory}, the segment ${head}`);
    return readings.filter((_, at) => !isSettled(at));
  }

  /** The spans, and what stands in each of their segments. */
  spans(): { id: number; place: number; run: number; acceptedMs: number; segments: Segment[] }[] {
    return this.state.spans.map((span) => ({
      id: span.id,
      place: span.place,
      run: span.run,
      acceptedMs: span.acceptedMs,
      segments: [...span.series]
        .map((series, entry) => ({ series, entry }))
        .filter(({ entry }) => !span.gone[entry])
        .map(({ series, entry }) => ({ series, readings: this.readings(span, entry) })),
    }));
  }

  /** All that stands of a series, in the order of acceptance: what its segments hold, and then the log. */
  standing(series: number): number[] {
    const { state } = this;
    const found = this.spans().flatMap(({ segments }) =>
      segments.filter((one) => one.series === series).flatMap(({ readings }) => readings),
    );
    const { queue, flushedSeq } = state.seriesOf(series);
    for (let at = queue.popped; at < queue.end; at++)
      if (!queue.isSettled(at)) found.push(...this.#readingsOf(queue.copy(at, 1)));
    for (const { columns, firstSeq } of state.arrivalsThrough(Number.POSITIVE_INFINITY))
      for (let i = 0; i < columns.length; i++)
        if (columns.series[i] === series && firstSeq + i > flushedSeq) found.push(columns.value[i]!);
    return found;
  }

  /** Of every series. */
  everything(): number[][] {
    return this.state.series.flatMap((one) => (one ? [this.standing(one.series.id)] : []));
  }

  /** What is pending, in numbers of spans, segments and rows. */
  changes() {
    const { segments, newSpans, goneSegments, changedSpans, droppedSpans, progress, settled, dropRowsThrough } =
      this.pending;
    const ids = (spans: Iterable<Span>) => [...spans].map(({ id }) => id);
    const places = (numbers: Iterable<number>) =>
      [...numbers].map((id) => [Math.floor(id / segmentId(1, 0)), id % segmentId(1, 0)]);
    return {
      segments: places(segments.keys()),
      newSpans: ids(newSpans),
      goneSegments: places(goneSegments),
      changedSpans: ids(changedSpans),
      droppedSpans: ids(droppedSpans),
      progress: places(progress.keys()),
      settled,
      dropRowsThrough,
    };
  }

  #assetOf(span: Span, entry: number): AssetState {
    return this.state.seriesOf(span.series[entry]!).asset;
  }

  /** What is counted fits what stands, and what a commit leaves on disk is what memory says. */
  check(): void {
    const { state } = this;
    const { spans } = state;
    const counted = { segmentValues: 0, series: new Map<number, number[]>(), assets: new Map<number, number>() };
    for (const { series } of state.series.flatMap((one) => one ?? [])) counted.series.set(series.id, [0, 0]);
    for (const { asset } of state.assets.values()) counted.assets.set(asset, 0);
    for (const span of spans) {
      for (const [entry, id] of span.series.entries()) {
        const { asset, held } = state.seriesOf(id);
        const open = openValues(span, entry);
        counted.series.get(id)![0]!++;
        if (!span.gone[entry]) counted.series.get(id)![1]!++;
        counted.segmentValues += open;
        if (!held && !span.underWay.has(entry))
          counted.assets.set(asset.asset, counted.assets.get(asset.asset)! + open);
      }
      expect(span.left).toBe([...span.gone].filter((gone) => gone === 0).length);
    }
    expect({
      segmentValues: state.segmentValues,
      series: new Map(state.series.flatMap((one) => (one ? [[one.series.id, [one.entries, one.segments]]] : []))),
      assets: new Map([...state.assets.values()].map(({ asset, backlog }) => [asset, backlog])),
    }).toEqual(counted);
    expect(spans.map(({ place }) => place)).toEqual(spans.map(({ place }) => place).sort((a, b) => a - b));
    for (const asset of state.assets.values()) {
      const isAlive = ({ span, from, to }: AssetState['places'][0]) => span.gone.subarray(from, to).includes(0);
      const places = asset.places.filter(isAlive);
      const isOwn = (span: Span, entry: number) => this.#assetOf(span, entry) === asset;
      const wanted = spans.flatMap((span) =>
        [...span.series.keys()]
          .filter((from) => isOwn(span, from) && (from === 0 || !isOwn(span, from - 1)))
          .map((from) => {
            let to = from + 1;
            while (to < span.series.length && isOwn(span, to)) to++;
            return { span, from, to };
          })
          .filter(isAlive),
      );
      expect(places).toEqual(wanted);
    }
    const before = this.everything();
    this.commit();
    expect([...this.onDisk.keys()].sort((a, b) => a - b)).toEqual(
      spans
        .flatMap((span) =>
          [...span.series.keys()].filter((entry) => !span.gone[entry]).map((at) => segmentId(span.id, at)),
        )
        .sort((a, b) => a - b),
    );
    expect(this.everything()).toEqual(before);
    const inLog = this.#rowsOnDisk.flatMap(({ values }) => values);
    expect(state.logValues).toBe(inLog.length);
    for (const [at, { series }] of state.series.flatMap((one) => one ?? []).entries()) {
      const readings = inLog.filter((one) => one.series === series.id).map(({ reading }) => reading);
      expect(readings.length === 0 ? [] : before[at]!.slice(-readings.length)).toEqual(readings);
    }
  }
}

/** All from the one to the other, both with them. */
export const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i);

/**
 * Two assets. Series 1 and 3 have segments, of which a part is settled, a part under way and one gone; 2 has none; 4 has one, and is held; in
 * the log stand values of 1, 2 and 4, some settled, some under way.
 */
export function mixedWorld(): SpanWorld {
  const world = new SpanWorld(5, (id) => (id === 4 ? 2 : 1));
  const { state } = world;
  world.span([1, 3, 4], 6);
  world.span([1, 3], 4);
  world.settle(world.take(3, [1], 'backlog'));
  world.take(5, [1], 'backlog');
  const gone = world.span([1], 2);
  state.loseEntry(gone, 0);
  state.dropSpan(gone);
  world.pending.dropSpan(gone);
  world.span([3], 3);
  const part = world.span([1, 3], 2);
  state.loseEntry(part, 1);
  world.pending.dropSegment(part, 1);
  world.row([1, 2, 4], 5);
  world.row([1, 2], 5, undefined, { lateBy: 7 });
  const [first, second] = [world.take(2, [2]), world.take(4, [2])];
  world.settle(second!);
  state.holdSeries([4]);
  expect(first!.slices.length).toBe(1);
  world.check();
  return world;
}

/** Finds nothing due at any time. */
export function idleMaintenance({ state, pending, segments, flush }: SpanWorld): Maintenance {
  const limits = { flushAfterMs: 1e9, flushValues: 1e9 };
  const maxGroupValues = () => Number.POSITIVE_INFINITY;
  return new Maintenance({ state, pending, segments, flush, readers: new ReadLeases(), limits, maxGroupValues });
}
