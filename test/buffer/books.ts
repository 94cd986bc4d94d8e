import { expect } from 'vitest';
import {
  quarantineBatch,
  releaseSlice,
  setAsideSegment,
  settleRuns,
  settleSlice,
} from '../../src/buffer/batches/settle.ts';
import { divideBatch, leaveLanes } from '../../src/buffer/batches/take.ts';
import type { Batch, TakeRequest } from '../../src/buffer/client/lanes.ts';
import { type Span, segmentId } from '../../src/buffer/span.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { MemoryStore, readingsIn } from './memory-store.ts';

/** Three assets; two of them have series of several instrumentations, or of none. */
export const ASSETS = [1, 1, 1, 2, 2, 3];
const INSTRUMENTATIONS = [7, 8, 7, undefined, undefined, 9];
export const SERIES = ASSETS.map((_, i) => i + 1);

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
export class Books extends MemoryStore {
  readonly clock: ManualClock;
  readonly all: Value[] = [];
  readonly batches = new Map<number, TakenBatch>();
  /** The values that were put into each segment. */
  readonly entries = new Map<Span, number[][]>();
  readonly held = new Set<number>();
  readonly quarantined: { series: number; readings: number[]; status: number; message: string; atMs: number }[] = [];
  readonly aside: { what: string; place: number; bytes: Uint8Array | null }[] = [];
  protected flushedThrough = 0;
  #timeMs = 1_000;

  constructor(seed: number) {
    super(ASSETS, INSTRUMENTATIONS);
    this.clock = new ManualClock(0, seed);
    this.state.times.open(1, 0, []);
  }

  random(below: number): number {
    return Math.floor(this.clock.random() * below);
  }

  protected value(number: number): Value {
    return this.all[number - 1]!;
  }

  protected standing(): number[] {
    return this.all.flatMap(({ fate }, i) => (fate === 'gone' ? [] : [i + 1]));
  }

  protected isInLog(number: number): boolean {
    return number > this.flushedThrough;
  }

  #end(numbers: readonly number[], fate: Value['fate']): void {
    for (const number of numbers) if (this.value(number).fate !== 'gone') this.value(number).fate = fate;
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
    this.flushedThrough = last.firstSeq + last.count;
    for (const span of this.state.spans) if (!before.has(span)) this.entries.set(span, this.#readingsOf(span));
  }

  #readingsOf(span: Span): number[][] {
    return Array.from(span.series, (_, entry) => [...this.segments.read(span, entry)!.value]);
  }

  /** Values of the log that may be posted live, in their order. */
  protected liveOf(series: number): number[] {
    const { backlogTimeMs } = this.state.seriesOf(series);
    const waits = this.standing().filter((number) => this.isInLog(number) && this.value(number).series === series);
    return waits.filter((number) => this.value(number).fate === 'waits' && this.value(number).timeMs > backlogTimeMs);
  }

  #backlogOf(series: number): number[] {
    return this.standing().filter((number) => !this.isInLog(number) && this.value(number).series === series);
  }

  protected batchesWith(span: Span, entry: number): number {
    const numbers = this.entries.get(span)![entry]!;
    const holding = [...this.batches.values()].filter((batch) => batch.numbers.some((one) => numbers.includes(one)));
    return holding.length;
  }

  /** Segments of the series, those of which nothing is left aside. */
  protected entriesOf(series: number): { span: Span; entry: number }[] {
    return this.state.spans.flatMap((span) =>
      [...span.series.keys()]
        .filter((entry) => span.series[entry] === series && !span.gone[entry])
        .map((entry) => ({ span, entry })),
    );
  }

  /** Whether the series has something in its oldest segment, and nothing under way in the span of that. */
  #mayTakeBacklog(series: number): boolean {
    const [first, ...others] = this.entriesOf(series);
    const inSpan = [first, ...others].filter((one) => one?.span === first?.span);
    return first !== undefined && inSpan.every((one) => this.batchesWith(one!.span, one!.entry) === 0);
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
    const isBusy = this.lanesUnderWay(asset)[request.lane] > 0;
    const live = new Map(SERIES.map((id) => [id, this.liveOf(id)]));
    const backlog = new Map(SERIES.map((id) => [id, this.#backlogOf(id)]));
    const isThere = wanted.some((id) =>
      request.lane === 'live' ? live.get(id)!.length > 0 : this.#mayTakeBacklog(id),
    );
    const batch = this.take(request);
    expect(batch !== undefined).toBe(!isBusy && isThere);
    if (!batch) return;
    const found = [...readingsIn(batch)].map(([key, readings]) => ({ id: Number(key.slice(1)), readings }));
    const numbers = found.flatMap(({ readings }) => readings);
    const liveNumbers = numbers.filter((number) => this.isInLog(number));
    const targets = new Set(found.map(({ id }) => INSTRUMENTATIONS[id - 1] ?? -id));
    for (const { id, readings } of found) {
      expect(wanted).toContain(id);
      const old = readings.filter((number) => !this.isInLog(number));
      const fresh = readings.filter((number) => this.isInLog(number));
      // Nothing is left out, and nothing overtakes what is under way.
      expect(readings).toEqual([...backlog.get(id)!.slice(0, old.length), ...live.get(id)!.slice(0, fresh.length)]);
      expect(old.every((number) => this.value(number).fate === 'waits')).toBe(true);
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

  protected lanesUnderWay(asset: number) {
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
    const places = SERIES.flatMap((id) => this.entriesOf(id));
    return places[this.random(places.length)];
  }

  loseSome(): void {
    const place = this.#someEntry();
    if (!place) return;
    const { span, entry } = place;
    const bytes = this.random(2) ? undefined : Uint8Array.of(1, 2, this.random(9));
    const standing = this.entries.get(span)![entry]!.filter((number) => this.value(number).fate !== 'gone');
    expect(setAsideSegment(this.state, this.pending, span, entry, bytes)).toBe(standing.length);
    this.aside.push({ what: 'segment', place: segmentId(span.id, entry), bytes: bytes ?? null });
    this.#end(standing, 'gone');
  }

  /** What nobody has under way is taken out of a segment. */
  withdrawSome(): void {
    const place = this.#someEntry();
    if (!place || this.batchesWith(place.span, place.entry) > 0) return;
    const { span, entry } = place;
    const numbers = this.entries.get(span)![entry]!;
    const runs = Array.from({ length: 1 + this.random(3) }, () => {
      const from = this.random(numbers.length);
      return { from, to: from + 1 + this.random(numbers.length - from) };
    });
    const going = numbers.filter((_, i) => runs.some(({ from, to }) => from <= i && i < to));
    const standing = going.filter((number) => this.value(number).fate !== 'gone');
    expect(settleRuns(this.state, this.pending, this.segments, span, entry, runs)).toBe(standing.length);
    this.#end(going, 'gone');
  }
}

export const byNumber = ([one]: readonly unknown[], [other]: readonly unknown[]) => Number(one) - Number(other);

/** `[key, reading]` of each value, by key. */
function partsOf(part: Batch): [number, number][] {
  const readings = [...readingsIn(part)].flatMap(([key, values]) =>
    values.map((value): [number, number] => [Number(key.slice(1)), value]),
  );
  return readings.toSorted(byNumber);
}
