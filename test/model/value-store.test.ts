import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Batch } from '../../src/buffer/lanes.ts';
import { SeriesCatalogue } from '../../src/buffer/series.ts';
import { ValueColumns } from '../../src/buffer/value-columns.ts';
import { ValueStore } from '../../src/buffer/value-store.ts';
import type { WithdrawalCursor } from '../../src/buffer/withdrawing.ts';
import { openDatabase } from '../../src/database.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

/**
 * Random work on the store beside a model of a few lines: what was accepted, and what became of it. A crash throws the
 * store away without closing it; what it had on disk is opened anew.
 */
class World {
  readonly clock: ManualClock;
  readonly path: string;
  store!: ValueStore;
  catalogue!: SeriesCatalogue;
  #database!: ReturnType<typeof openDatabase>;
  /** Every accepted value by its number, which is also its reading. */
  accepted = new Map<number, { asset: number; key: string; timeMs: number }>();
  delivered: number[][] = [];
  deliveredOnce = new Set<number>();
  quarantined = new Set<number>();
  purged = new Set<number>();
  /** Values that were accepted anew, in another place or at another time: their order is another. */
  moved = new Set<number>();
  exporting: { id: number; standing: Set<number>; found: number[] } | undefined;
  underWay: { batch: Batch; numbers: number[] }[][] = [];
  #next = 0;
  time = 1_000_000;

  constructor(folder: string, seed: number) {
    this.clock = new ManualClock(0, seed);
    this.path = join(folder, 'buffer.db');
    this.open();
  }

  open(): void {
    this.#database = openDatabase(this.path);
    this.store = new ValueStore(this.#database, this.path, {
      bounds: { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' },
      foldAfterMs: 50,
      foldValues: 400,
    });
    const opened = this.store.open({ monotonicMs: this.clock.monotonicMs(), wallMs: 0, boot: 'same' });
    expect(opened.facts.damaged).toEqual([]);
    this.catalogue = new SeriesCatalogue(opened.series);
    this.underWay = [];
    this.exporting = undefined;
  }

  crash(): void {
    // Without a checkpoint and without a word: the file and its WAL stay as the last commit left them.
    this.#database.close();
    this.open();
  }

  random(below: number): number {
    return Math.floor(this.clock.random() * below);
  }

  append(): void {
    const columns = new ValueColumns();
    const count = 1 + this.random(60);
    const numbers: [number, { asset: number; key: string; timeMs: number }][] = [];
    for (let i = 0; i < count; i++) {
      const asset = 1 + this.random(4);
      const key = `k${this.random(3)}`;
      this.time += this.random(3);
      // Now and then a value that is late, or has the time of another.
      const timeMs = this.random(10) === 0 ? this.time - this.random(2000) : this.time;
      const number = this.#next++;
      columns.add(this.catalogue.idOf(asset, key, undefined, undefined), timeMs, number, 0);
      numbers.push([number, { asset, key, timeMs }]);
    }
    this.commit(columns);
    for (const [number, value] of numbers) this.accepted.set(number, value);
  }

  commit(columns?: ValueColumns): void {
    this.store.commit({
      columns,
      newSeries: this.catalogue.takeNew(),
      monotonicMs: this.clock.monotonicMs(),
      wallMs: this.clock.wallMs(),
    });
  }

  take(): void {
    const { batch } = this.store.take({
      asset: 1 + this.random(4),
      lane: this.random(2) ? 'live' : 'backlog',
      maxValues: 1 + this.random(200),
      maxBytes: 2_000 + this.random(20_000),
      alongValues: this.random(2) ? 50 : 0,
    });
    if (batch) this.underWay.push([{ batch, numbers: numbersIn(batch) }]);
  }

  /** Ends a batch. Of a divided one the first part first, and nothing of it overtakes a part that waits again. */
  end(): void {
    const at = this.random(this.underWay.length);
    const group = this.underWay[at];
    const under = group?.shift();
    if (!group || !under) return;
    if (group.length === 0) this.underWay.splice(at, 1);
    const kind = this.random(10);
    if (kind < 6) {
      this.store.settle(under.batch.id);
      this.delivered.push(under.numbers);
      for (const number of under.numbers) this.deliveredOnce.add(number);
    } else if (kind < 8) {
      for (const { batch } of [under, ...group.splice(0)]) this.store.release(batch.id);
      this.underWay = this.underWay.filter((one) => one.length > 0);
    } else {
      const { batches } = this.store.divide(under.batch.id);
      if (batches.length === 0) {
        this.store.quarantine(under.batch.id, { status: 400, message: 'no', atMs: 0 });
        for (const number of under.numbers) this.quarantined.add(number);
      } else {
        const parts = batches.map((batch) => ({ batch, numbers: numbersIn(batch) }));
        expect(parts.flatMap((part) => part.numbers).sort()).toEqual([...under.numbers].sort());
        group.unshift(...parts);
        if (!this.underWay.includes(group)) this.underWay.push(group);
      }
    }
  }

  step(): void {
    const kind = this.random(20);
    this.clock.jumpWall(this.random(5));
    if (kind < 7) this.append();
    else if (kind < 12) this.take();
    else if (kind < 17) this.end();
    else if (kind < 19) this.store.tidy({ monotonicMs: this.clock.monotonicMs() });
    else this.commit();
  }

  /** What happens while the platform is away: what was under way comes back, and nobody takes anything. */
  async outage(turns: number): Promise<void> {
    for (const { batch } of this.underWay.splice(0).flat()) this.store.release(batch.id);
    for (let turn = 0; turn < turns; turn++) {
      if (this.random(4) > 0) this.append();
      else if (this.random(2)) this.commit();
      this.store.tidy({ monotonicMs: this.clock.monotonicMs() });
      await this.clock.advance(this.random(120));
    }
  }

  /** What should stand in the buffer, under way or not, as long as nothing crashed. */
  standing(): Set<number> {
    const left = [...this.accepted.keys()].filter(
      (number) => !this.deliveredOnce.has(number) && !this.quarantined.has(number) && !this.purged.has(number),
    );
    return new Set(left);
  }

  idle(): Set<number> {
    const sent = new Set(this.underWay.flat().flatMap((one) => one.numbers));
    return new Set([...this.standing()].filter((number) => !sent.has(number)));
  }

  /** Runs steps until a pass brings nothing. */
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

  /** An operator's purge: some asset, or what is older than some time. */
  purge(): { wanted: number; gone: number } {
    const asset = 1 + this.random(4);
    const beforeMs = this.random(2) ? this.time - this.random(300) : undefined;
    const series =
      beforeMs !== undefined && this.random(2) ? undefined : this.catalogue.ofAsset(asset).map((one) => one.id);
    const wanted = [...this.idle()].filter((number) => {
      const value = this.accepted.get(number)!;
      return (series === undefined || value.asset === asset) && (beforeMs === undefined || value.timeMs < beforeMs);
    });
    const gone = this.#passes((cursor) => this.store.purge({ series, beforeMs, cursor, stepSegments: 3 }));
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
    const gone = this.#passes((cursor) => this.store.retarget({ pairs, cursor, stepSegments: 3 }));
    for (const number of wanted) {
      this.accepted.get(number)!.asset = to;
      this.moved.add(number);
    }
    return { wanted: wanted.length, gone };
  }

  requeue(): number {
    this.commit();
    const { last } = this.store.countQuarantine();
    let values = 0;
    for (let after: number | undefined = 0; after !== undefined; ) {
      const step = this.store.requeue({ after, through: last });
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
      this.exporting = { id: this.store.beginExport({ pageSegments: 4 }), standing: this.standing(), found: [] };
      return;
    }
    const { columns, done } = this.store.exportPage(this.exporting.id);
    this.exporting.found.push(...columns.value.subarray(0, columns.length));
    if (!done) return;
    const { id, standing, found } = this.exporting;
    this.store.endExport(id);
    this.exporting = undefined;
    expect(found.length).toBe(new Set(found).size);
    expect(found.filter((number) => !standing.has(number))).toEqual([]);
    const now = this.standing();
    const missing = [...standing].filter(
      (number) => now.has(number) && !this.moved.has(number) && !found.includes(number),
    );
    expect(missing).toEqual([]);
  }

  /** Everything that is left comes out. */
  drain(): void {
    for (const { batch } of this.underWay.splice(0).flat()) this.store.release(batch.id);
    for (let quiet = 0; quiet < 3; ) {
      let took = false;
      for (let asset = 1; asset <= 4; asset++) {
        for (const lane of ['backlog', 'live'] as const) {
          const { batch } = this.store.take({ asset, lane, maxValues: 500, maxBytes: 100_000 });
          if (!batch) continue;
          took = true;
          this.store.settle(batch.id);
          const numbers = numbersIn(batch);
          this.delivered.push(numbers);
          for (const number of numbers) this.deliveredOnce.add(number);
        }
      }
      this.store.tidy({ monotonicMs: this.clock.monotonicMs() + 1_000_000 });
      this.commit();
      quiet = took ? 0 : quiet + 1;
    }
  }
}

function numbersIn(batch: Batch): number[] {
  const body = JSON.parse(new TextDecoder().decode(batch.body)) as { values: { data: { value: number }[] }[] };
  return body.values.flatMap((key) => key.data.map((point) => point.value));
}

/** Everything was delivered once or stands in quarantine; of values with equal times the later accepted came later. */
function expectInOrder(world: World): void {
  const numbers = world.delivered.flat();
  expect(numbers.length).toBe(new Set(numbers).size);
  expect(numbers.length + world.quarantined.size).toBe(world.accepted.size);
  const last = new Map<string, number>();
  for (const number of numbers) {
    const { asset, key, timeMs } = world.accepted.get(number)!;
    const place = `${asset}/${key}/${timeMs}`;
    expect(last.get(place) ?? -1).toBeLessThan(number);
    last.set(place, number);
  }
}

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-model-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** Seeds that once failed stay in the list. */
const SEEDS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 987, 999, 1044];

describe('whatever happens to the store', () => {
  it.each(SEEDS)('no accepted value is lost and none is invented, seed %i', async (seed) => {
    const world = new World(folder, seed);
    for (let turn = 0; turn < 600; turn++) {
      world.step();
      await world.clock.advance(world.random(20));
      if (world.random(60) === 0) world.crash();
    }
    world.crash();
    world.drain();
    const found = new Set([...world.deliveredOnce, ...world.quarantined]);
    expect([...world.accepted.keys()].filter((number) => !found.has(number))).toEqual([]);
    expect([...found].filter((number) => !world.accepted.has(number))).toEqual([]);
    const { facts } = world.store.take({ asset: 1, lane: 'live', maxValues: 1, maxBytes: 1000 });
    expect(facts).toMatchObject({ logValues: 0, segmentValues: 0 });
  });

  it.each(SEEDS)('whatever operators do, no value that they did not purge is lost, seed %i', async (seed) => {
    const world = new World(folder, seed + 200);
    for (let turn = 0; turn < 400; turn++) {
      world.step();
      await world.clock.advance(world.random(20));
      const kind = world.random(40);
      if (kind === 0) world.purge();
      if (kind === 1) world.retarget();
      if (kind === 2) world.requeue();
      if (kind === 3) world.crash();
    }
    world.crash();
    world.drain();
    const found = new Set([...world.deliveredOnce, ...world.quarantined, ...world.purged]);
    expect([...world.accepted.keys()].filter((number) => !found.has(number))).toEqual([]);
  });

  it.each(SEEDS)('without a crash operators move, purge and export exactly what stands, seed %i', async (seed) => {
    const world = new World(folder, seed + 300);
    for (let turn = 0; turn < 400; turn++) {
      world.step();
      await world.clock.advance(world.random(20));
      const kind = world.random(60);
      if (kind === 0) {
        const { wanted, gone } = world.purge();
        expect(gone).toBe(wanted);
      } else if (kind === 1) {
        const { wanted, gone } = world.retarget();
        expect(gone).toBe(wanted);
      } else if (kind === 2) {
        const { size } = world.quarantined;
        expect(world.requeue()).toBe(size);
      } else if (kind < 20) world.export();
      const { logValues, segmentValues } = world.store.facts();
      expect(logValues + segmentValues).toBe(world.standing().size);
    }
    const listed = world.store.list({ after: 0, limit: 1000 });
    expect(listed.reduce((sum, row) => sum + row.live + row.backlog, 0)).toBe(world.standing().size);
    world.drain();
    const numbers = world.delivered.flat();
    expect(numbers.length).toBe(new Set(numbers).size);
    expect(numbers.length + world.quarantined.size + world.purged.size).toBe(world.accepted.size);
  });

  it.each(SEEDS)(
    'without a crash nothing is delivered twice, and equal times arrive in the order of acceptance, seed %i',
    async (seed) => {
      const world = new World(folder, seed + 100);
      for (let turn = 0; turn < 600; turn++) {
        world.step();
        await world.clock.advance(world.random(20));
      }
      world.drain();
      expectInOrder(world);
    },
  );

  it.each(SEEDS)('outages fold what came in, all of it once and in its order, seed %i', async (seed) => {
    const world = new World(folder, seed + 400);
    for (let turn = 0; turn < 12; turn++) {
      await world.outage(1 + world.random(40));
      expect(world.store.facts().logValues + world.store.facts().segmentValues).toBe(world.standing().size);
      for (let step = world.random(30); step > 0; step--) world.step();
    }
    world.drain();
    expectInOrder(world);
  });
});

describe('the store', () => {
  it('counts as live what lies behind the backlog in time, and not what lies before it', () => {
    const { store, catalogue } = new World(folder, 1);
    const commit = (...times: number[]) => {
      const columns = new ValueColumns();
      for (const timeMs of times) columns.add(catalogue.idOf(1, 'flow', undefined, undefined), timeMs, 1, 0);
      return store.commit({ columns, newSeries: catalogue.takeNew(), monotonicMs: 0, wallMs: 0 });
    };
    commit(1_000);
    store.tidy({ monotonicMs: 1_000_000 });
    expect(commit(500, 1_000, 1_001, 2_000).lanes).toMatchObject([{ asset: 1, live: 2, backlog: 1 }]);
  });

  it('keeps what it quarantined, bit for bit', () => {
    const world = new World(folder, 5);
    world.append();
    const { batch } = world.store.take({
      asset: [...world.accepted.values()][0]!.asset,
      lane: 'live',
      maxValues: 500,
      maxBytes: 50_000,
    });
    const numbers = numbersIn(batch!);
    world.store.quarantine(batch!.id, { status: 422, message: 'unit unknown', atMs: 7 });
    world.commit();
    world.crash();
    const kept = world.store.showQuarantine({ after: 0, limit: 100 });
    expect(kept.flatMap((row) => row.value)).toEqual(expect.arrayContaining(numbers.slice(0, 1)));
    expect(world.requeue()).toBe(numbers.length);
    world.crash();
    world.drain();
    expect(numbers.every((number) => world.deliveredOnce.has(number))).toBe(true);
    expect(kept.every((row) => row.status === 422 && row.message === 'unit unknown')).toBe(true);
  });
});
