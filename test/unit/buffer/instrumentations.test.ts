import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../../src/base/database.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import { ValueStore } from '../../../src/buffer/value-store.ts';

let folder: string;
let store: ValueStore;
let catalogue: SeriesCatalogue;
let nowMs = 1_000;

function open(): void {
  const path = join(folder, 'buffer.db');
  const bounds = { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' } as const;
  const opening = ValueStore.open(
    openDatabase(path),
    path,
    { bounds, flushAfterMs: 1_000, flushValues: 1_000 },
    { boot: 'this', monotonicMs: nowMs, wallMs: nowMs },
  );
  store = opening.store;
  catalogue = new SeriesCatalogue(opening.series);
}

/** Accepts one value of `flow` per instrumentation. */
function accept(...instrumentations: (number | undefined)[]): void {
  const columns = new ValueColumns();
  for (const [at, one] of instrumentations.entries()) {
    columns.add(catalogue.idOf(881, one === undefined ? `k${at}` : 'flow', undefined, undefined, one), ++nowMs, 1, 0);
  }
  store.commit({ columns, newSeries: catalogue.takeUnsaved(), monotonicMs: nowMs });
}

/** Takes all batches, and returns for each the instrumentation of the batch and of its series. */
function targets(lane: 'live' | 'backlog') {
  const seen: { of: number | undefined; series: (number | undefined)[] }[] = [];
  for (;;) {
    const request = { asset: 881, maxValues: 100, maxBytes: 100_000, oneInstrumentation: true };
    const { batch } = store.take({ ...request, lane, alongValues: 100 });
    if (!batch) return seen;
    const series = batch.series.map((id) => catalogue.get(id)!.instrumentation);
    seen.push({ of: batch.instrumentation, series });
    store.settle(batch.id);
  }
}

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-instrumentations-'));
  open();
});
afterEach(() => {
  store.close();
  rmSync(folder, { recursive: true, force: true });
});

describe('asset with several instrumentations', () => {
  it('has a separate series for each, even with identical keys and after a restart', () => {
    const ids = [4711, 4712, undefined].map((one) => catalogue.idOf(881, 'flow', undefined, undefined, one));
    expect(new Set(ids).size).toBe(3);
    accept(4711, 4712);
    store.close();
    open();
    expect(catalogue.idOf(881, 'flow', undefined, undefined, 4712)).toBe(ids[1]);
    expect(catalogue.get(ids[0]!)).toMatchObject({ asset: 881, instrumentation: 4711 });
  });

  it('never mixes values from two instrumentations in one batch', () => {
    accept(4711, 4712, 4711, 4712, 4713);
    expect(targets('live')).toEqual([4711, 4712, 4713].map((of) => ({ of, series: [of] })));
    accept(4711, 4712, 4713);
    nowMs += 600_000;
    store.maintain({ monotonicMs: nowMs });
    expect(targets('backlog')).toEqual([4711, 4712, 4713].map((of) => ({ of, series: [of] })));
  });

  it('posts series without an instrumentation separately', () => {
    accept(undefined, 4711, undefined);
    const alone = { of: undefined, series: [undefined] };
    expect(targets('live')).toEqual([alone, alone, { of: 4711, series: [4711] }]);
  });

  it('alternates between instrumentations even if values from the first are never accepted', () => {
    accept(4711, 4712);
    const request = { asset: 881, lane: 'live', maxValues: 10, maxBytes: 10_000, oneInstrumentation: true } as const;
    const seen: (number | undefined)[] = [];
    for (let turn = 0; turn < 4; turn++) {
      const { batch } = store.take(request);
      seen.push(batch!.instrumentation);
      store.release(batch!.id);
    }
    expect(seen).toEqual([4711, 4712, 4711, 4712]);
  });

  it('combines values from all instrumentations in one batch if the path contains no instrumentation', () => {
    accept(4711, 4712);
    const { batch } = store.take({ asset: 881, lane: 'live', maxValues: 10, maxBytes: 10_000 });
    expect(batch!.series).toHaveLength(2);
  });
});
