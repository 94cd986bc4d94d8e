/** Operator calls: step sizes, damaged rows, log rows. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../../src/base/database.ts';
import type { Note } from '../../../src/buffer/client/notes.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import type { WithdrawalCursor } from '../../../src/buffer/operator/withdrawing.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import { ValueStore } from '../../../src/buffer/value-store.ts';
import { newFolder } from '../../fresh-folder.ts';

/** Tolerance for the segment that fills a page or step. */
const PAGE_VALUES = 5_000;
const STEP_VALUES = 10_000;
const SEGMENT_VALUES = 2_048;

let folder: string;
let database: Database;
let store: ValueStore;
let catalogue: SeriesCatalogue;
let nowMs: number;

beforeEach(() => {
  folder = newFolder('tagferry-operator-');
  nowMs = 1_000;
  const path = join(folder, 'buffer.db');
  database = openDatabase(path);
  const bounds = { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' } as const;
  const options = { bounds, flushAfterMs: 1_000, flushValues: 100_000 };
  const opened = ValueStore.open(database, path, options, { boot: 'one', monotonicMs: nowMs, wallMs: 0 });
  store = opened.store;
  catalogue = new SeriesCatalogue(opened.series);
});
afterEach(() => {
  store.close();
  rmSync(folder, { recursive: true, force: true });
});

function commit(columns?: ValueColumns, notes: Note[] = []): void {
  store.commit({ columns, newSeries: catalogue.takeUnsaved(), notes, monotonicMs: nowMs });
}

const flowOf = (asset: number) => catalogue.idOf(asset, 'flow', undefined, undefined);

/** Values of asset 1. */
function accept(count: number): void {
  const columns = new ValueColumns(count);
  for (let i = 0; i < count; i++) columns.add(flowOf(1), ++nowMs, i, 0);
  commit(columns);
}

function flush(): void {
  nowMs += 1e6;
  for (let steps = 0; steps < 100 && store.maintain({ monotonicMs: nowMs }).maintenanceDue; steps++);
  commit();
}

describe('export', () => {
  it('returns each value once and in order, in pages', () => {
    accept(3 * PAGE_VALUES);
    flush();
    expect(store.facts()).toMatchObject({ logValues: 0, segmentValues: 3 * PAGE_VALUES });
    const id = store.operator.beginExport({});
    const readings: number[] = [];
    const pages: number[] = [];
    for (let done = false; !done; ) {
      const page = store.operator.exportPage(id);
      readings.push(...page.columns.value);
      pages.push(page.columns.length);
      ({ done } = page);
    }
    expect(readings).toEqual(Array.from({ length: 3 * PAGE_VALUES }, (_, i) => i));
    expect(Math.max(...pages)).toBeLessThan(PAGE_VALUES + SEGMENT_VALUES);
  });
});

describe('purge', () => {
  it('includes values moved by compaction between two steps', () => {
    // The oldest time is last, so the first spans contain nothing to purge.
    for (let i = 16; i > 0; i--) {
      const columns = new ValueColumns(1);
      columns.add(flowOf(1), i, i, 0);
      commit(columns);
      nowMs += 1e6;
      store.maintain({ monotonicMs: nowMs });
      commit();
    }
    expect(store.facts()).toMatchObject({ logValues: 0, segmentValues: 16, maintenanceDue: true });
    let purged = 0;
    let cursor: WithdrawalCursor | undefined;
    do {
      const step = store.operator.purge({ beforeMs: 5, cursor, stepSegments: 1 });
      purged += step.values;
      ({ cursor } = step);
      store.maintain({ monotonicMs: ++nowMs });
      commit();
    } while (cursor);
    expect([purged, store.facts().segmentValues]).toEqual([4, 12]);
    flush();
    expect(store.facts()).toMatchObject({ maintenanceDue: false });
  });
});

describe('retarget', () => {
  const retarget = (cursor?: WithdrawalCursor) => {
    const pairs = [{ from: flowOf(1), to: catalogue.get(flowOf(2))! }];
    return store.operator.retarget({ pairs, cursor });
  };

  it('moves ten thousand values per step', () => {
    accept(2 * STEP_VALUES);
    flush();
    const steps: number[] = [];
    let cursor: WithdrawalCursor | undefined;
    do {
      const step = retarget(cursor);
      steps.push(step.values);
      ({ cursor } = step);
      commit();
    } while (cursor);
    expect(Math.max(...steps)).toBeLessThan(STEP_VALUES + SEGMENT_VALUES);
    expect(steps.reduce((sum, values) => sum + values, 0)).toBe(2 * STEP_VALUES);
    const listed = store.operator
      .list({ after: 0, limit: 9 })
      .map(({ asset, live, backlog }) => [asset, live + backlog]);
    expect(listed).toEqual([
      [1, 0],
      [2, 2 * STEP_VALUES],
    ]);
  });

  it('leaves no rows with moved values in the log', () => {
    accept(10);
    const rows = () => database.prepare('SELECT id FROM log').pluck().all();
    const before = rows();
    expect(retarget().values).toBe(10);
    commit();
    expect([before.length, rows().length]).toEqual([1, 1]);
    expect(rows()).not.toEqual(before);
    expect(store.facts()).toMatchObject({ logValues: 10, segmentValues: 0 });
  });

  it('creates the target as the newest series', () => {
    accept(10);
    retarget();
    catalogue.takeUnsaved();
    commit();
    expect(database.prepare('SELECT since FROM series ORDER BY id').pluck().all()).toEqual([1, 2]);
  });
});

describe('quarantine listing', () => {
  it('shows the first values of each row and marks damaged rows', () => {
    accept(7);
    const { batch } = store.take({ asset: 1, lane: 'live', maxValues: 9, maxBytes: 10_000 });
    store.quarantine(batch!.id, { status: 422, message: 'no such unit', atMs: 5 });
    commit();
    const shown = () => store.operator.showQuarantine({ after: 0, limit: 9 });
    const row = { series: flowOf(1), count: 7, status: 422, message: 'no such unit', atMs: 5 };
    expect(shown()).toMatchObject([{ ...row, value: [0, 1, 2, 3, 4], damaged: false }]);
    database.exec(`UPDATE quarantine SET message = 'no such tag'`);
    expect(shown()).toMatchObject([{ ...row, message: 'no such tag', timeMs: [], value: [], damaged: true }]);
    expect(store.operator.requeue({ after: 0, through: 9 })).toMatchObject({ values: 0, after: undefined });
    commit();
    expect(shown()).toHaveLength(1);
  });
});

describe('value notes', () => {
  it('are found by prefix, and skipped if damaged', () => {
    const notes = ['a/1', 'a/2', 'a/3', 'b/1'].map((name) => ({ name, text: `of ${name}` }));
    commit(undefined, notes);
    expect(store.notes('a/')).toEqual(notes.slice(0, 3));
    commit(undefined, [{ name: 'a/1', text: undefined }]);
    database.exec(`UPDATE note SET text = 'else' WHERE name = 'a/2'`);
    expect(store.notes('a/')).toEqual([notes[2]]);
  });
});
