import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { closeUntouched, openDatabase } from '../../../src/base/database.ts';
import type { Batch } from '../../../src/buffer/client/lanes.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import type { WithdrawalCursor } from '../../../src/buffer/operator/withdrawing.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import type { StepSize, StoreFacts, ValueStoreOptions } from '../../../src/buffer/store-facts.ts';
import { ValueStore } from '../../../src/buffer/value-store.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

interface Accepted {
  asset: number;
  key: string;
  timeMs: number;
  /** Number of the commit. */
  commit: number;
  /** Monotonic time. */
  acceptedMs: number;
}

/**
 * Random operations on a store and a small model, which contains the accepted values and the outcome of each. After a
 * crash, the store is opened with the database and WAL of the latest commit, and compared with the model.
 */
export class World {
  readonly clock: ManualClock;
  readonly path: string;
  store!: ValueStore;
  catalogue!: SeriesCatalogue;
  #database!: ReturnType<typeof openDatabase>;
  /** Accepted values by number, which is also the reading. */
  accepted = new Map<number, Accepted>();
  delivered: number[][] = [];
  deliveredOnce = new Set<number>();
  quarantined = new Set<number>();
  /** Values settled or quarantined since the latest commit, which a crash undoes. */
  #settledSince = new Set<number>();
  #quarantinedSince = new Set<number>();
  /** Delivered values restored by a crash: only these can be delivered twice. */
  again = new Set<number>();
  /** Values dropped due to a limit, determined by an export. Their number equals the reported one. */
  dropped = new Set<number>();
  #reported: StoreFacts['dropped'] = [];
  #bounds: { maxBytes: number; maxAgeMs: number };
  readonly #checkpointPages: number;
  readonly #stepSize: StepSize;
  purged = new Set<number>();
  /** Values that were moved or requeued, so their order changed. */
  moved = new Set<number>();
  exporting: { id: number; standing: Set<number>; found: number[] } | undefined;
  inFlight: { batch: Batch; numbers: number[] }[][] = [];
  /**
   * Latest time passed to the store. `drain` runs ahead of the clock, and the store retains that time across a crash.
   */
  #latestMs = 0;
  #next = 0;
  #commits = 0;
  time = 1_000_000;

  constructor(folder: string, seed: number, bounds: { maxBytes?: number; maxAgeMs?: number } = {}) {
    this.clock = new ManualClock(0, seed);
    this.#bounds = { maxBytes: 0, maxAgeMs: 0, ...bounds };
    // Leaves few or all commits in the WAL at a crash.
    this.#checkpointPages = this.random(2) ? 40 : 1000;
    this.path = join(folder, 'buffer.db');
    // Step sizes from one or two series to everything at once.
    const chance = new ManualClock(0, seed + 5_000);
    const upTo = (most: number) => 1 + Math.floor(chance.random() * most);
    this.#stepSize = { values: 20 + upTo(400), segments: 1 + upTo(14) };
    this.open();
  }

  get #options(): ValueStoreOptions {
    return {
      bounds: { ...this.#bounds, minFree: { bytes: 0 }, full: 'drop-oldest' },
      flushAfterMs: 50,
      flushValues: 400,
      stepSize: this.#stepSize,
    };
  }

  /** Applies limits, as a reload does. */
  rebind(bounds: { maxBytes: number; maxAgeMs: number }): void {
    this.#bounds = bounds;
    this.store.configure(this.#options);
  }

  open(): void {
    this.#database = openDatabase(this.path, { checkpointPages: this.#checkpointPages });
    const now = { monotonicMs: this.clock.monotonicMs(), wallMs: 0, boot: 'same' };
    const opened = ValueStore.open(this.#database, this.path, this.#options, now);
    this.store = opened.store;
    expect(opened.facts.damaged).toEqual([]);
    this.catalogue = new SeriesCatalogue(opened.series);
    this.inFlight = [];
    this.exporting = undefined;
  }

  /** Closes the files without a checkpoint and opens the store again. */
  crash(): void {
    const before = this.#bytesOnDisk();
    closeUntouched(this.#database, this.path);
    expect(this.#bytesOnDisk().every((bytes, i) => bytes.equals(before[i]!))).toBe(true);
    for (const number of this.#settledSince) this.again.add(number);
    for (const number of this.#quarantinedSince) this.quarantined.delete(number);
    this.#recorded();
    this.open();
    // Uncommitted drops are undone; reported drops are not.
    if (this.#reported.length > 0) this.#findDropped();
    const { logValues, segmentValues } = this.store.facts();
    expect(logValues + segmentValues).toBe(this.standing().size);
  }

  #bytesOnDisk(): Buffer[] {
    return [this.path, `${this.path}-wal`].map((file) => readFileSync(file));
  }

  #recorded(): void {
    this.#settledSince.clear();
    this.#quarantinedSince.clear();
  }

  random(below: number): number {
    return Math.floor(this.clock.random() * below);
  }

  append(): void {
    const columns = new ValueColumns();
    const count = 1 + this.random(60);
    const commit = this.#commits++;
    const acceptedMs = this.clock.monotonicMs();
    for (let i = 0; i < count; i++) {
      const asset = 1 + this.random(4);
      const key = `k${this.random(3)}`;
      this.time += this.random(3);
      // Some values are late or have the time of another value.
      const timeMs = this.random(10) === 0 ? this.time - this.random(2000) : this.time;
      const number = this.#next++;
      columns.add(this.catalogue.idOf(asset, key, undefined, undefined), timeMs, number, 0);
      this.accepted.set(number, { asset, key, timeMs, commit, acceptedMs });
    }
    this.commit(columns);
  }

  commit(columns?: ValueColumns): void {
    let { dirty } = this.#commitOnce(columns);
    // A limit first drops values in memory; the next commit stores and counts the drop.
    while (dirty) {
      if (this.random(8) === 0) {
        this.crash();
        return;
      }
      ({ dirty } = this.#commitOnce());
    }
    if (this.#reported.length > 0) this.#findDropped();
  }

  #commitOnce(columns?: ValueColumns): StoreFacts {
    const facts = this.store.commit({
      columns,
      newSeries: this.catalogue.takeUnsaved(),
      monotonicMs: this.clock.monotonicMs(),
    });
    this.#recorded();
    this.#reported.push(...facts.dropped.filter(({ reason }) => reason === 'bytes' || reason === 'age'));
    return facts;
  }

  /** Checks that the oldest values of each series were dropped, as many as reported, and no others. */
  #findDropped(): void {
    const reported = this.#reported.splice(0);
    const id = this.store.operator.beginExport({});
    const found = new Set<number>();
    for (let done = false; !done; ) {
      const page = this.store.operator.exportPage(id);
      for (const number of page.columns.value.subarray(0, page.columns.length)) found.add(number);
      ({ done } = page);
    }
    this.store.operator.endExport(id);
    const standing = this.standing();
    const gone = [...standing].filter((number) => !found.has(number));
    expect([...found].filter((number) => !standing.has(number))).toEqual([]);
    expect(gone.length).toBe(reported.reduce((sum, { values }) => sum + values, 0));
    const seriesOf = (number: number) => `${this.accepted.get(number)!.asset}/${this.accepted.get(number)!.key}`;
    const lastGone = new Map<string, number>();
    for (const number of gone) lastGone.set(seriesOf(number), Math.max(lastGone.get(seriesOf(number)) ?? -1, number));
    expect([...found].filter((number) => number < (lastGone.get(seriesOf(number)) ?? -1))).toEqual([]);
    if (reported.every(({ reason }) => reason === 'age')) {
      const nowMs = Math.max(this.clock.monotonicMs(), this.#latestMs);
      const young = gone.filter((number) => nowMs - this.accepted.get(number)!.acceptedMs <= this.#bounds.maxAgeMs);
      expect(young).toEqual([]);
    }
    for (const number of gone) this.dropped.add(number);
  }

  /** Checks that a batch's values were waiting. Only deliveries undone by a crash are repeated. */
  #expectWaiting(batch: Batch): number[] {
    const numbers = numbersIn(batch);
    const inFlight = new Set(this.inFlight.flat().flatMap((one) => one.numbers));
    expect(numbers.filter((number) => !this.#stands(number) || inFlight.has(number))).toEqual([]);
    return numbers;
  }

  take(): void {
    const { batch } = this.store.take({
      asset: 1 + this.random(4),
      lane: this.random(2) ? 'live' : 'backlog',
      maxValues: 1 + this.random(200),
      maxBytes: 2_000 + this.random(20_000),
      alongValues: this.random(2) ? 50 : 0,
    });
    if (batch) this.inFlight.push([{ batch, numbers: this.#expectWaiting(batch) }]);
  }

  #settle(batch: Batch, numbers: number[]): void {
    this.store.settle(batch.id);
    this.delivered.push(numbers);
    for (const number of numbers) {
      this.deliveredOnce.add(number);
      this.again.delete(number);
      this.#settledSince.add(number);
    }
  }

  /** Ends a batch, or the first part of a split one. If a part is released, the later parts are released too. */
  end(): void {
    const at = this.random(this.inFlight.length);
    const group = this.inFlight[at];
    const under = group?.shift();
    if (!group || !under) return;
    if (group.length === 0) this.inFlight.splice(at, 1);
    const kind = this.random(10);
    if (kind < 6) {
      this.#settle(under.batch, under.numbers);
    } else if (kind < 8) {
      for (const { batch } of [under, ...group.splice(0)]) this.store.release(batch.id);
      this.inFlight = this.inFlight.filter((one) => one.length > 0);
    } else {
      const { batches } = this.store.divide(under.batch.id);
      if (batches.length === 0) {
        this.store.quarantine(under.batch.id, { status: 400, message: 'no', atMs: 0 });
        for (const number of under.numbers) {
          this.quarantined.add(number);
          this.#quarantinedSince.add(number);
        }
      } else {
        const parts = batches.map((batch) => ({ batch, numbers: numbersIn(batch) }));
        expect(parts.flatMap((part) => part.numbers).sort()).toEqual([...under.numbers].sort());
        group.unshift(...parts);
        if (!this.inFlight.includes(group)) this.inFlight.push(group);
      }
    }
  }

  step(): void {
    const kind = this.random(20);
    this.clock.jumpWall(this.random(5));
    if (kind < 7) this.append();
    else if (kind < 12) this.take();
    else if (kind < 17) this.end();
    else if (kind < 19) this.maintain();
    else this.commit();
  }

  /** Performs a maintenance step, and commits its drops, as the agent does. */
  maintain(monotonicMs = this.clock.monotonicMs()): StoreFacts {
    const before = this.store.facts();
    this.#latestMs = Math.max(this.#latestMs, monotonicMs);
    const facts = this.store.maintain({ monotonicMs });
    if (facts.logValues + facts.segmentValues === before.logValues + before.segmentValues) return facts;
    this.commit();
    return this.store.facts();
  }

  /** Outage: batches in flight are released, and no batch is taken. */
  async outage(turns: number): Promise<void> {
    for (const { batch } of this.inFlight.splice(0).flat()) this.store.release(batch.id);
    for (let turn = 0; turn < turns; turn++) {
      if (this.random(4) > 0) this.append();
      else if (this.random(2)) this.commit();
      this.maintain();
      await this.clock.advance(this.random(120));
    }
  }

  /**
   * Long outage: values are flushed from arrivals, and small spans are compacted. Commits, posts and crashes interrupt flushes and
   * compactions. Returns the number of compaction steps.
   */
  async longOutage(turns: number): Promise<number> {
    for (const { batch } of this.inFlight.splice(0).flat()) this.store.release(batch.id);
    let compactions = 0;
    for (let turn = 0; turn < turns; turn++) {
      this.append();
      for (let steps = this.random(4), maintenanceDue = true; steps > 0 && maintenanceDue; steps--) {
        const before = this.store.facts();
        const facts = this.maintain();
        maintenanceDue = facts.maintenanceDue;
        if (facts.spans === before.spans || facts.logValues !== before.logValues) continue;
        compactions++;
        if (this.random(3) === 0)
          for (let posts = this.random(6); posts > 0; posts--) this.random(2) ? this.take() : this.end();
        if (this.random(6) === 0) this.commit();
        if (this.random(12) === 0) this.crash();
      }
      await this.clock.advance(this.random(20));
    }
    return compactions;
  }

  /** Values that the buffer should contain, in flight or not. */
  standing(): Set<number> {
    return new Set([...this.accepted.keys()].filter((number) => this.#stands(number)));
  }

  #stands(number: number): boolean {
    if (this.quarantined.has(number) || this.purged.has(number) || this.dropped.has(number)) return false;
    return this.accepted.has(number) && (!this.deliveredOnce.has(number) || this.again.has(number));
  }

  idle(): Set<number> {
    const sent = new Set(this.inFlight.flat().flatMap((one) => one.numbers));
    return new Set([...this.standing()].filter((number) => !sent.has(number)));
  }

  /** Runs steps until a pass finds no values. */
  #passes(
    step: (cursor: WithdrawalCursor | undefined) => { values: number; cursor: WithdrawalCursor | undefined },
  ): number {
    let total = 0;
    for (let before = -1; before !== total; ) {
      before = total;
      let cursor: WithdrawalCursor | undefined;
      do {
        const one = step(cursor);
        total += one.values;
        cursor = one.cursor;
        if (this.random(3) === 0) this.commit();
      } while (cursor);
    }
    this.commit();
    return total;
  }

  /** Purges an asset, or values older than a time. */
  purge(): { wanted: number; gone: number } {
    const asset = 1 + this.random(4);
    const beforeMs = this.random(2) ? this.time - this.random(300) : undefined;
    const series =
      beforeMs !== undefined && this.random(2) ? undefined : this.catalogue.ofAsset(asset).map((one) => one.id);
    const wanted = [...this.idle()].filter((number) => {
      const value = this.accepted.get(number)!;
      return (series === undefined || value.asset === asset) && (beforeMs === undefined || value.timeMs < beforeMs);
    });
    const gone = this.#passes((cursor) => this.store.operator.purge({ series, beforeMs, cursor, stepSegments: 3 }));
    for (const number of wanted) this.purged.add(number);
    return { wanted: wanted.length, gone };
  }

  retarget(): { wanted: number; gone: number } {
    const from = 1 + this.random(4);
    const to = (from % 4) + 1;
    const wanted = [...this.idle()].filter((number) => this.accepted.get(number)!.asset === from);
    const pairs = this.catalogue.ofAsset(from).map((one) => {
      const id = this.catalogue.idOf(to, one.key, one.group, one.unit);
      return { from: one.id, to: this.catalogue.get(id)! };
    });
    const gone = this.#passes((cursor) => this.store.operator.retarget({ pairs, cursor, stepSegments: 3 }));
    for (const number of wanted) {
      this.accepted.get(number)!.asset = to;
      this.moved.add(number);
    }
    return { wanted: wanted.length, gone };
  }

  requeue(): number {
    this.commit();
    const { last } = this.store.operator.countQuarantine();
    let values = 0;
    for (let after: number | undefined = 0; after !== undefined; ) {
      const step = this.store.operator.requeue({ after, through: last });
      values += step.values;
      after = step.after;
    }
    for (const number of this.quarantined) this.moved.add(number);
    this.quarantined.clear();
    this.commit();
    return values;
  }

  export(): void {
    if (!this.exporting) {
      this.exporting = {
        id: this.store.operator.beginExport({ pageSegments: 4 }),
        standing: this.standing(),
        found: [],
      };
      return;
    }
    const { columns, done } = this.store.operator.exportPage(this.exporting.id);
    this.exporting.found.push(...columns.value.subarray(0, columns.length));
    if (!done) return;
    const { id, standing, found } = this.exporting;
    this.store.operator.endExport(id);
    this.exporting = undefined;
    const came = new Set(found);
    expect(found.length).toBe(came.size);
    expect(found.filter((number) => !standing.has(number))).toEqual([]);
    const missing = [...standing].filter(
      (number) => !came.has(number) && !this.moved.has(number) && this.#stands(number),
    );
    expect(missing).toEqual([]);
  }

  /** Delivers all remaining values. */
  drain(): void {
    for (const { batch } of this.inFlight.splice(0).flat()) this.store.release(batch.id);
    for (let quiet = 0; quiet < 3; ) {
      let took = false;
      for (let asset = 1; asset <= 4; asset++) {
        for (const lane of ['backlog', 'live'] as const) {
          const { batch } = this.store.take({ asset, lane, maxValues: 500, maxBytes: 100_000 });
          if (!batch) continue;
          took = true;
          this.#settle(batch, this.#expectWaiting(batch));
        }
      }
      this.maintain(this.clock.monotonicMs() + 1_000_000);
      this.commit();
      quiet = took ? 0 : quiet + 1;
    }
  }
}

export function numbersIn(batch: Batch): number[] {
  const body = JSON.parse(new TextDecoder().decode(batch.body)) as { values: { data: { value: number }[] }[] };
  return body.values.flatMap((key) => key.data.map((point) => point.value));
}
