import { describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { Compaction } from '../../src/buffer/compaction/compaction.ts';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { unpackDirectory } from '../../src/buffer/span.ts';
import { openFlow } from '../doubles/open-flow.ts';
import { freshFolder } from '../fresh-folder.ts';
import { end, MemoryStore, readingsIn } from './memory-store.ts';

const SERIES = [1, 2, 3, 4];
const STEP_MS = 500;

/** Values of four series, of two assets, that are accepted twice a second; `acceptedMs` of each that is not settled, by its reading. */
class Outage {
  readonly store = new MemoryStore([1, 1, 2, 2]);
  readonly open = new Map<number, number>();
  nowMs = 0;

  constructor() {
    this.store.state.times.open(1, 0, []);
  }

  /** The fourth series has a value every five seconds. */
  accept(steps: number): void {
    for (let i = 0; i < steps; i++) {
      this.nowMs += STEP_MS;
      const ids = SERIES.filter((id) => id < 4 || this.nowMs % 5_000 === 0);
      const before = this.store.values;
      this.store.row(ids, 1, this.nowMs);
      for (let number = before + 1; number <= this.store.values; number++) this.open.set(number, this.nowMs);
    }
  }

  post(asset: number, maxValues: number): void {
    const batch = this.store.take({ asset, lane: 'backlog', maxValues });
    if (!batch) return;
    for (const readings of readingsIn(batch).values()) for (const reading of readings) this.open.delete(reading);
    end(this.store, batch, 'settle');
  }

  compact(): number {
    const { state, pending, segments } = this.store;
    let count = 0;
    const size = { values: 1_000, segments: 8 };
    for (;;) {
      const compaction = Compaction.choose(state, pending, { size, maxValues: 1e6 });
      if (!compaction) return count;
      while (!compaction.step(segments));
      count++;
    }
  }

  /** Seconds by which the age that is told differs from the truth. */
  get error(): number {
    const truth = this.open.size === 0 ? 0 : this.nowMs - Math.min(...this.open.values());
    const told = this.nowMs - (this.store.state.oldestAcceptedMs() ?? this.nowMs);
    return (told - truth) / 1_000;
  }
}

describe('the age of the oldest value', () => {
  it('is within five seconds of the truth through an outage and while the backlog drains', () => {
    const outage = new Outage();
    const errors: number[] = [];
    const note = () => errors.push(outage.error);
    for (let flush = 0; flush < 20; flush++) {
      outage.accept(60);
      note();
      outage.store.flushAll();
      note();
    }
    expect(outage.compact()).toBeGreaterThan(0);
    note();
    for (let posts = 0; outage.open.size > 0; posts++) {
      outage.post(1 + (posts % 2), 150);
      note();
      expect(posts).toBeLessThan(200);
    }
    expect(Math.max(...errors.map(Math.abs))).toBeLessThanOrEqual(5);
  });

  it('stays known after a restart', () => {
    const outage = new Outage();
    outage.accept(240);
    outage.store.flushAll();
    outage.store.commit();
    const rows = outage.store.table<{ directory: Uint8Array }>('span');
    const again = unpackDirectory(rows[0]!.directory);
    expect(again.map(({ leadSeconds }) => leadSeconds)).toEqual([120, 120, 120, 115]);
  });
});

describe('a buffer in which a value waits', () => {
  const folder = freshFolder('oldest-age');

  it('gets older though nothing is committed', async () => {
    let aheadMs = 0;
    const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + aheadMs };
    const flow = await openFlow(folder.path, {}, { clock });
    try {
      expect(flow.oldestAgeMs).toBe(0);
      const columns = new ValueColumns();
      columns.add(flow.catalogue.idOf(1, 'flow', undefined, undefined), Date.UTC(2026, 10, 21), 5, 1);
      await flow.committer.append(columns);
      aheadMs = 3_600_000;
      expect(flow.oldestAgeMs).toBeGreaterThanOrEqual(aheadMs);
    } finally {
      await flow.stop();
    }
  });
});
