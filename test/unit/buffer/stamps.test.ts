import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../../src/base/database.ts';
import { STAMPED_HERE, ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import type { StoreFacts } from '../../../src/buffer/store-facts.ts';
import { ValueStore } from '../../../src/buffer/value-store.ts';
import type { Settings } from '../../../src/config/settings.ts';
import { createMetrics } from '../../../src/ops/metrics.ts';
import { commitColumns } from '../doubles/commit-columns.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { openFlow } from '../doubles/open-flow.ts';

/** A gateway that boots in 1970: ten seconds after boot its wall clock shows 1970-01-01 00:00:10. */
const BOOT_MS = 10_000;
const TRUE_MS = Date.UTC(2026, 10, 21, 3, 0, 0);
const DAY_MS = 86_400_000;

let folder: string;
let store: ValueStore;
let catalogue: SeriesCatalogue;

function open(boot: string, monotonicMs: number, wallMs: number, maxAgeMs = 0): void {
  const path = join(folder, 'buffer.db');
  const opening = ValueStore.open(
    openDatabase(path),
    path,
    {
      bounds: { maxBytes: 0, maxAgeMs, minFree: { bytes: 0 }, full: 'drop-oldest' },
      flushAfterMs: 1_000,
      flushValues: 1_000,
    },
    { boot, monotonicMs, wallMs },
  );
  store = opening.store;
  catalogue = new SeriesCatalogue(opening.series);
}

function accept(times: { timeMs: number; stamped: boolean }[], monotonicMs: number): void {
  const columns = new ValueColumns();
  const series = catalogue.idOf(1, 'flow', undefined, undefined);
  for (const { timeMs, stamped } of times) columns.add(series, timeMs, 1, stamped ? STAMPED_HERE : 0);
  store.commit({ columns, newSeries: catalogue.takeUnsaved(), monotonicMs });
}

/** Returns the values of a post once the true time is known, `monotonicMs` after boot. */
function posted(monotonicMs: number, lane: 'live' | 'backlog' = 'live') {
  const { batch, times } = taken(monotonicMs, TRUE_MS, lane);
  return { times, corrected: batch.corrected, doubtful: batch.doubtful };
}

/** `trueMs`: the trusted time at that moment. */
function taken(monotonicMs: number, trueMs: number, lane: 'live' | 'backlog' = 'live') {
  const trustedOffsetMs = trueMs - monotonicMs;
  const { batch } = store.take({ asset: 1, lane, maxValues: 100, maxBytes: 10_000, trustedOffsetMs });
  const body = JSON.parse(new TextDecoder().decode(batch!.body)) as { values: { data: { timestamp: string }[] }[] };
  return { batch: batch!, times: body.values[0]!.data.map(({ timestamp }) => Date.parse(timestamp)) };
}

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-stamps-'));
});
afterEach(() => {
  store.close();
  rmSync(folder, { recursive: true, force: true });
});

describe('timestamp assigned while the clock shows 1970', () => {
  it('is posted with the corrected time', () => {
    open('this', BOOT_MS, BOOT_MS);
    accept([{ timeMs: 12_000, stamped: true }], 12_000);
    expect(posted(60_000)).toEqual({ times: [TRUE_MS - 48_000], corrected: 1, doubtful: 0 });
  });

  it('is corrected in a segment and after an agent restart', () => {
    open('this', BOOT_MS, BOOT_MS);
    accept([{ timeMs: 12_000, stamped: true }], 12_000);
    store.close();
    open('this', 20_000, 20_000);
    store.maintain({ monotonicMs: 500_000 });
    expect(posted(600_000, 'backlog')).toEqual({ times: [TRUE_MS - 588_000], corrected: 1, doubtful: 0 });
  });

  it('is posted unchanged and counted after a reboot', () => {
    open('earlier', BOOT_MS, BOOT_MS);
    accept([{ timeMs: 12_000, stamped: true }], 12_000);
    store.close();
    open('this', BOOT_MS, BOOT_MS);
    expect(posted(60_000)).toEqual({ times: [12_000], corrected: 0, doubtful: 1 });
  });

  it('is corrected even if values from the previous boot precede it', () => {
    open('earlier', BOOT_MS, TRUE_MS - DAY_MS);
    accept([{ timeMs: TRUE_MS - DAY_MS, stamped: true }], 12_000);
    store.close();
    open('this', BOOT_MS, BOOT_MS);
    accept([{ timeMs: 12_000, stamped: true }], 12_000);
    expect(posted(60_000)).toEqual({ times: [TRUE_MS - DAY_MS, TRUE_MS - 48_000], corrected: 1, doubtful: 0 });
  });

  // Found by `scripts/prove mixed --seed 4001`: one of ten values per second replaced another.
  it('is corrected by a consistent offset, even though the platform reports whole seconds', () => {
    open('this', BOOT_MS, BOOT_MS);
    accept([{ timeMs: 12_000, stamped: true }], 12_000);
    const first = taken(60_000, TRUE_MS);
    store.settle(first.batch.id);
    accept([{ timeMs: 12_600, stamped: true }], 12_600);
    const second = taken(60_600, TRUE_MS);
    expect(second.times[0]! - first.times[0]!).toBe(600);
    store.release(second.batch.id);
    expect(taken(61_000, TRUE_MS + 900).times).toEqual(second.times);
  });

  it('is corrected by a new offset after a larger clock change', () => {
    open('this', BOOT_MS, BOOT_MS);
    accept([{ timeMs: 12_000, stamped: true }], 12_000);
    const first = taken(60_000, TRUE_MS);
    store.release(first.batch.id);
    expect(taken(60_000, TRUE_MS + DAY_MS).times).toEqual([first.times[0]! + DAY_MS]);
  });

  it.each([
    ['a later run', 'this', 70_000],
    ['a run after a reboot', 'next', BOOT_MS],
  ])('is corrected by the same offset in %s after a lost response', (_what, boot, monotonicMs) => {
    open('this', BOOT_MS, BOOT_MS);
    accept([{ timeMs: 12_000, stamped: true }], 12_000);
    const first = taken(60_000, TRUE_MS);
    store.close();
    open(boot, monotonicMs, TRUE_MS);
    expect(taken(monotonicMs + 1_000, TRUE_MS + 11_800).times).toEqual(first.times);
  });

  it('is corrected by the offset from a run without values', () => {
    open('this', BOOT_MS, BOOT_MS);
    accept([{ timeMs: 12_000, stamped: true }], 12_000);
    store.close();
    open('this', 30_000, TRUE_MS);
    const first = taken(60_000, TRUE_MS);
    store.close();
    open('this', 70_000, TRUE_MS);
    expect(taken(71_000, TRUE_MS + 11_800).times).toEqual(first.times);
  });

  it('is not changed if provided by the source', () => {
    open('this', BOOT_MS, BOOT_MS);
    accept([{ timeMs: 12_000, stamped: false }], 12_000);
    expect(posted(60_000)).toEqual({ times: [12_000], corrected: 0, doubtful: 0 });
  });
});

describe('1970 timestamp of a moved value', () => {
  const NOW = { columns: undefined, newSeries: [], wallMs: TRUE_MS };
  const moveTo = (key: string, monotonicMs: number) => {
    const from = catalogue.idOf(1, 'flow', undefined, undefined);
    const to = catalogue.get(catalogue.idOf(1, key, undefined, undefined))!;
    store.operator.retarget({ pairs: [{ from, to }] });
    catalogue.takeUnsaved();
    store.commit({ ...NOW, monotonicMs });
  };

  // The run that moves the value started two minutes later with a correct wall clock.
  it.each(['log', 'segment'])(
    'is corrected by the clock of its original run if the value is moved out of the %s',
    (at) => {
      open('this', BOOT_MS, BOOT_MS);
      accept([{ timeMs: 12_000, stamped: true }], 12_000);
      store.close();
      open('this', 130_000, TRUE_MS);
      accept([{ timeMs: TRUE_MS + 1_000, stamped: true }], 131_000);
      if (at === 'segment') store.maintain({ monotonicMs: 500_000 });
      moveTo('other', 600_000);
      expect(posted(600_000).times).toEqual([TRUE_MS - 118_000, TRUE_MS + 1_000]);
    },
  );

  it('is not changed after a reboot, even if the value is moved repeatedly', () => {
    open('earlier', BOOT_MS, BOOT_MS);
    accept([{ timeMs: 12_000, stamped: true }], 12_000);
    store.close();
    open('this', BOOT_MS, BOOT_MS);
    moveTo('other', 20_000);
    expect(posted(60_000)).toEqual({ times: [12_000], corrected: 0, doubtful: 0 });
  });

  it('is not changed when the value leaves quarantine', () => {
    open('earlier', BOOT_MS, BOOT_MS);
    accept([{ timeMs: 12_000, stamped: true }], 12_000);
    store.close();
    open('this', BOOT_MS, BOOT_MS);
    accept([{ timeMs: 13_000, stamped: true }], 13_000);
    const { batch } = taken(20_000, TRUE_MS);
    store.quarantine(batch.id, { status: 400, message: 'no', atMs: 1 });
    store.commit({ ...NOW, monotonicMs: 20_000 });
    store.operator.requeue({ after: 0, through: 9 });
    store.commit({ ...NOW, monotonicMs: 20_000 });
    expect(posted(60_000)).toEqual({ times: [12_000, TRUE_MS - 7_000], corrected: 0, doubtful: 0 });
  });
});

describe('two-week wall clock jump', () => {
  it.each([-14, 14])('does not lose, drop or reorder values with a maximum age of one week: %i days', (days) => {
    open('this', BOOT_MS, TRUE_MS, 7 * DAY_MS);
    const jump = days * DAY_MS;
    const seen: StoreFacts['dropped'] = [];
    // Each value is flushed before the next one, because limits drop flushed values.
    const step = (timeMs: number, monotonicMs: number) => {
      accept([{ timeMs, stamped: true }], monotonicMs);
      for (let facts = store.maintain({ monotonicMs: monotonicMs + 500_000 }); ; ) {
        seen.push(...facts.dropped);
        if (!facts.dirty) break;
        const at = monotonicMs + 500_000;
        facts = store.commit({ columns: undefined, newSeries: [], monotonicMs: at });
      }
    };
    step(TRUE_MS, 1_000_000);
    step(TRUE_MS + jump, 2_000_000);
    step(TRUE_MS + jump + 1_000, 3_000_000);
    expect(store.facts().segmentValues).toBe(3);
    // Also after restarts of the agent and the machine.
    for (const boot of ['this', 'next']) {
      store.close();
      open(boot, 4_000_000, TRUE_MS - jump, 7 * DAY_MS);
      const { dropped, dirty } = store.commit({
        columns: undefined,
        newSeries: [],
        monotonicMs: 4_000_000,
      });
      seen.push(...dropped);
      expect(dirty).toBe(false);
    }
    expect(seen).toEqual([]);
    // In order of acceptance, not of time.
    expect(posted(4_100_000, 'backlog').times).toEqual([TRUE_MS, TRUE_MS + jump, TRUE_MS + jump + 1_000]);
  });

  it('does not extend the maximum age', () => {
    open('this', BOOT_MS, TRUE_MS, 7 * DAY_MS);
    accept([{ timeMs: TRUE_MS, stamped: true }], 11_000);
    store.maintain({ monotonicMs: 500_000 });
    const later = { columns: undefined, newSeries: [], monotonicMs: 8 * DAY_MS, wallMs: TRUE_MS - 14 * DAY_MS };
    store.commit(later);
    expect(store.commit(later).dropped).toEqual([{ reason: 'age', values: 1 }]);
  });
});

describe('CLOCK_UNTRUSTED', () => {
  /** Posts a value accepted in 1970 and a later one, with the buffer as opened by the agent. */
  async function sent(clockUntrusted: Settings['clockUntrusted']) {
    open('this', BOOT_MS, BOOT_MS);
    const clock = new ManualClock(12_000);
    const metrics = createMetrics(() => ({}) as never);
    const more = { clock, metrics, trustedTime: { nowMs: () => TRUE_MS, isExpected: () => false } };
    const flow = await openFlow(join(folder, 'state'), { clockUntrusted }, more);
    try {
      const columns = new ValueColumns();
      const series = flow.catalogue.idOf(1, 'flow', undefined, undefined);
      columns.add(series, 12_000, 1, STAMPED_HERE);
      columns.add(series, TRUE_MS, 2, STAMPED_HERE);
      await commitColumns(flow.committer, columns);
      const batch = await flow.outgoing.take({ asset: 1, lane: 'live', maxValues: 100, maxBytes: 10_000 });
      const body = JSON.parse(new TextDecoder().decode(batch!.whole.body)) as {
        values: { data: { timestamp: string }[] }[];
      };
      const { values } = metrics.restamped;
      const counted = (outcome: string) => values.find(({ labels }) => labels.outcome === outcome)?.value ?? 0;
      return {
        times: body.values[0]!.data.map(({ timestamp }) => Date.parse(timestamp)),
        corrected: counted('corrected'),
        doubtful: counted('doubtful'),
      };
    } finally {
      await flow.stop();
    }
  }

  it('set to “send” posts and counts unchanged untrusted timestamps', async () => {
    expect(await sent('send')).toEqual({ times: [12_000, TRUE_MS], corrected: 0, doubtful: 1 });
  });

  it('set to “correct” posts and counts corrected timestamps', async () => {
    const { times, ...counted } = await sent('correct');
    expect(counted).toEqual({ corrected: 1, doubtful: 0 });
    expect(times[0]).not.toBe(12_000);
    expect(times[1]).toBe(TRUE_MS);
  });
});
