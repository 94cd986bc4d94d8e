import Database from 'better-sqlite3';
import { expect } from 'vitest';
import { lanesOf } from '../../src/buffer/asset-lanes.ts';
import { BodyWriter } from '../../src/buffer/batches/body-writer.ts';
import { SegmentReader } from '../../src/buffer/batches/segment-reader.ts';
import { releaseSlice, settleSlice } from '../../src/buffer/batches/settle.ts';
import { leaveLanes, takeBatch } from '../../src/buffer/batches/take.ts';
import type { AssetLanes, Batch, TakeRequest } from '../../src/buffer/client/lanes.ts';
import { Flush } from '../../src/buffer/compaction/flush.ts';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { Pending } from '../../src/buffer/pending.ts';
import type { Span } from '../../src/buffer/span.ts';
import { type AssetState, StoreState } from '../../src/buffer/state.ts';
import { prepareStatements, prepareTables, type Statements } from '../../src/buffer/tables.ts';

/**
 * What a store is made of, without the store around it: its state, what is pending, its flush, and tables that stand in memory. Rows of the
 * log stand nowhere but in the state. A value's reading is the number of values there were with it, and its time too unless it is given.
 */
export class MemoryStore {
  readonly state = new StoreState();
  readonly pending = new Pending();
  readonly flush = new Flush(this.state, this.pending);
  readonly body = new BodyWriter();
  readonly statements: Statements;
  readonly segments: SegmentReader;
  values = 0;
  readonly #database = new Database(':memory:');

  /** `assets`: of which asset each series is; they are numbered from 1. `instrumentations`: likewise. */
  constructor(assets: readonly number[], instrumentations: readonly (number | undefined)[] = []) {
    prepareTables(this.#database);
    this.statements = prepareStatements(this.#database);
    this.segments = new SegmentReader(
      (id) => this.pending.segments.get(id) ?? this.statements.getSegment.get(id),
      (span, entry, bytes) => this.missed(span, entry, bytes),
    );
    for (const [i, asset] of assets.entries()) {
      const instrumentation = instrumentations[i];
      this.state.addSeries({ id: i + 1, asset, key: `k${i + 1}`, group: undefined, unit: undefined, instrumentation });
    }
  }

  /** A segment does not read. */
  missed(span: Span, entry: number, _bytes: Uint8Array | undefined): void {
    expect.fail(`segment ${entry} of span ${span.id} does not read`);
  }

  /** A row of the log: a value of each of these series, one after the other. */
  accept(
    ids: readonly number[],
    more: { monotonicMs?: number; timeOf?(number: number, series: number): number; flags?: number; run?: number } = {},
  ): void {
    const { state } = this;
    const columns = new ValueColumns();
    for (const id of ids) {
      const number = ++this.values;
      columns.add(id, more.timeOf?.(number, id) ?? number, number, more.flags ?? 0);
    }
    const { length: count } = columns;
    const { nextSeq: firstSeq } = state;
    const row = { id: state.nextRow++, firstSeq, count, left: count, isLoaded: true, run: more.run ?? 1 };
    state.rows.push({ ...row, monotonicMs: more.monotonicMs ?? row.id * 10 });
    state.takeIn(columns);
  }

  /** A row with so many values of each of these series, series by series in turn. */
  row(ids: readonly number[], values: number, monotonicMs?: number): void {
    const more = monotonicMs === undefined ? {} : { monotonicMs };
    this.accept(Array.from({ length: values }, () => ids).flat(), more);
  }

  flushAll(): void {
    this.flush.begin(this.state.rows.length);
    this.flush.finish();
  }

  /** What `row` brings, and all that the log holds, becomes a span. */
  span(ids: readonly number[], values: number): Span {
    this.row(ids, values);
    this.flushAll();
    return this.state.spans.at(-1)!;
  }

  /** What is pending stands in the tables. */
  commit(): void {
    this.#database.transaction(() => this.pending.write(this.statements))();
    this.pending.clear();
  }

  /** All rows of a table, in order. */
  table<Row>(name: string): Row[] {
    return this.#database.prepare<[], Row>(`SELECT * FROM ${name} ORDER BY 1`).all();
  }

  lanes(asset = 1): AssetLanes {
    return lanesOf(this.state, this.state.assets.get(asset)!);
  }

  asset(asset = 1): AssetState {
    return this.state.assets.get(asset)!;
  }

  take(request: Partial<TakeRequest>): Batch | undefined {
    this.state.distribute();
    const whole = { asset: 1, lane: 'live', maxValues: 1_000, maxBytes: 1e6, ...request } as const;
    return takeBatch(this.state, this.segments, this.body, whole)?.answer;
  }
}

/** Readings of a body, by key. */
export function readingsIn({ body }: Pick<Batch, 'body'>): Map<string, number[]> {
  const { values } = JSON.parse(new TextDecoder().decode(body)) as {
    values: { key: string; data: { value: number }[] }[];
  };
  return new Map(values.map(({ key, data }) => [key, data.map(({ value }) => value)]));
}

/** `k1: 1 2, k2: 3`: the readings are the numbers of the values in the order in which they came. */
export const told = (batch: Batch | undefined) =>
  batch && [...readingsIn(batch)].map(([key, readings]) => `${key}: ${readings.join(' ')}`).join(', ');

/** So many values of the first series, then of the second and so on. */
export const seriesOfCounts = (...counts: number[]) =>
  counts.flatMap((count, i) => Array.from({ length: count }, () => i + 1));

export function end(store: MemoryStore, batch: Batch, how: 'settle' | 'release'): void {
  const { state, pending, segments } = store;
  const ended = state.batches.get(batch.id)!;
  state.batches.delete(batch.id);
  leaveLanes(ended);
  for (const slice of ended.slices) {
    if (how === 'settle') settleSlice(state, pending, segments, slice);
    else releaseSlice(state, slice);
  }
}

/** Takes, and lets the values wait again. */
export function look(store: MemoryStore, request: Partial<TakeRequest>): string | undefined {
  const batch = store.take(request);
  if (batch) end(store, batch, 'release');
  return told(batch);
}
