import { rmSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { freshFolder, newFolder } from '../../fresh-folder.ts';
import { commitColumns } from '../doubles/commit-columns.ts';
import { openFlow } from '../doubles/open-flow.ts';
import { StoreFolder } from './store-folder.ts';

const STEP_MS = 500;

/**
 * Accepts values of four series of two assets twice per second, and records the acceptance time of each unsettled
 * value.
 */
class Outage {
  readonly world = new StoreFolder(newFolder('tagferry-oldest-age-'));
  readonly open = new Map<number, number>();
  nowMs = 1_000;
  #next = 1;

  /** The fourth series has a value every five seconds. */
  accept(steps: number): void {
    for (let i = 0; i < steps; i++) {
      this.nowMs += STEP_MS;
      const keys = ['1/a', '1/b', '2/c', ...(this.nowMs % 5_000 === 0 ? ['2/d'] : [])];
      const readings: Record<string, number[]> = {};
      for (const key of keys) {
        this.open.set(this.#next, this.nowMs);
        readings[key] = [this.#next++];
      }
      this.world.commit(readings, { monotonicMs: this.nowMs });
    }
  }

  /** Runs all due background work. */
  maintain(): void {
    const { store } = this.world;
    for (let facts = store.facts(); facts.maintenanceDue; ) facts = store.maintain({ monotonicMs: this.nowMs });
    this.world.commit({}, { monotonicMs: this.nowMs });
  }

  post(asset: number): void {
    const { store } = this.world;
    for (const lane of ['backlog', 'live'] as const) {
      const { batch } = store.take({ asset, lane, maxValues: 150, maxBytes: 100_000 });
      if (!batch) continue;
      const body = JSON.parse(new TextDecoder().decode(batch.body)) as { values: { data: { value: number }[] }[] };
      for (const { value } of body.values.flatMap(({ data }) => data)) this.open.delete(value);
      store.settle(batch.id);
    }
  }

  /** Difference between reported and true age, in seconds. */
  get error(): number {
    const truth = this.open.size === 0 ? 0 : this.nowMs - Math.min(...this.open.values());
    const reported = this.nowMs - (this.world.store.facts().oldestAcceptedMs ?? this.nowMs);
    return Math.abs(reported - truth) / 1_000;
  }
}

describe('oldest value age', () => {
  it('is accurate to within five seconds during an outage, a restart and backlog draining', () => {
    const outage = new Outage();
    const { world } = outage;
    const errors: number[] = [];
    try {
      for (let minute = 0; minute < 40; minute++) {
        outage.accept(120);
        outage.maintain();
        errors.push(outage.error);
      }
      expect(world.store.facts().segmentValues).toBeGreaterThan(10_000);
      for (let posts = 0; outage.open.size > 0; posts++) {
        outage.post(1 + (posts % 2));
        errors.push(outage.error);
        expect(posts).toBeLessThan(500);
      }
      expect(Math.max(...errors)).toBeLessThanOrEqual(5);
      outage.accept(240);
      outage.maintain();
      const { nowMs } = outage;
      world.store.close();
      world.open({}, nowMs);
      expect(outage.error).toBeLessThanOrEqual(5);
    } finally {
      world.store.close();
      rmSync(world.folder, { recursive: true, force: true });
    }
  });
});

describe('buffer with a pending value', () => {
  const folder = freshFolder('oldest-age');

  it('reports an increasing age without further commits', async () => {
    let aheadMs = 0;
    const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + aheadMs };
    const flow = await openFlow(folder.path, {}, { clock });
    try {
      expect(flow.oldestAgeMs).toBe(0);
      const columns = new ValueColumns();
      columns.add(flow.catalogue.idOf(1, 'flow', undefined, undefined), Date.UTC(2026, 10, 21), 5, 1);
      await commitColumns(flow.committer, columns);
      aheadMs = 3_600_000;
      expect(flow.oldestAgeMs).toBeGreaterThanOrEqual(aheadMs);
    } finally {
      await flow.stop();
    }
  });
});
