import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SeriesCatalogue } from '../../src/buffer/series.ts';
import { STAMPED_HERE, ValueColumns } from '../../src/buffer/value-columns.ts';
import { ValueStore } from '../../src/buffer/value-store.ts';
import { openDatabase } from '../../src/database.ts';

/** A gateway that boots in 1970: ten seconds after the machine's start its wall clock stands at 1970-01-01 00:00:10. */
const BOOT_MS = 10_000;
const TRUE_MS = Date.UTC(2026, 10, 21, 3, 0, 0);

let folder: string;
let store: ValueStore;
let catalogue: SeriesCatalogue;

function open(boot: string, monotonicMs: number, wallMs: number): void {
  const path = join(folder, 'buffer.db');
  store = new ValueStore(openDatabase(path), path, {
    bounds: { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' },
    foldAfterMs: 1_000,
    foldValues: 1_000,
  });
  catalogue = new SeriesCatalogue(store.open({ boot, monotonicMs, wallMs }).series);
}

function accept(times: { timeMs: number; stamped: boolean }[], monotonicMs: number, wallMs: number): void {
  const columns = new ValueColumns();
  const series = catalogue.idOf(1, 'flow', undefined, undefined);
  for (const { timeMs, stamped } of times) columns.add(series, timeMs, 1, stamped ? STAMPED_HERE : 0);
  store.commit({ columns, newSeries: catalogue.takeNew(), monotonicMs, wallMs });
}

/** What leaves in one post, once the true time is known at `monotonicMs` after the start. */
function posted(monotonicMs: number, lane: 'live' | 'backlog' = 'live') {
  const trustedOffsetMs = TRUE_MS - monotonicMs;
  const { batch } = store.take({ asset: 1, lane, maxValues: 100, maxBytes: 10_000, trustedOffsetMs });
  const body = JSON.parse(new TextDecoder().decode(batch!.body)) as { values: { data: { timestamp: string }[] }[] };
  return {
    times: body.values[0]!.data.map(({ timestamp }) => Date.parse(timestamp)),
    corrected: batch!.corrected,
    doubtful: batch!.doubtful,
  };
}

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-stamps-'));
});
afterEach(() => {
  store.close();
  rmSync(folder, { recursive: true, force: true });
});

describe('a time that the agent gave in 1970', () => {
  it('leaves as the true time, by how long before now it was', () => {
    open('this', BOOT_MS, BOOT_MS);
    accept([{ timeMs: 12_000, stamped: true }], 12_000, 12_000);
    expect(posted(60_000)).toEqual({ times: [TRUE_MS - 48_000], corrected: 1, doubtful: 0 });
  });

  it('is corrected in a segment too, and after a restart of the agent', () => {
    open('this', BOOT_MS, BOOT_MS);
    accept([{ timeMs: 12_000, stamped: true }], 12_000, 12_000);
    store.close();
    open('this', 20_000, 20_000);
    store.tidy({ monotonicMs: 500_000 });
    expect(posted(600_000, 'backlog')).toEqual({ times: [TRUE_MS - 588_000], corrected: 1, doubtful: 0 });
  });

  it('leaves as it is, and is counted, where the machine has been started since', () => {
    open('earlier', BOOT_MS, BOOT_MS);
    accept([{ timeMs: 12_000, stamped: true }], 12_000, 12_000);
    store.close();
    open('this', BOOT_MS, BOOT_MS);
    expect(posted(60_000)).toEqual({ times: [12_000], corrected: 0, doubtful: 1 });
  });

  it('that the plant gave is the plant’s business', () => {
    open('this', BOOT_MS, BOOT_MS);
    accept([{ timeMs: 12_000, stamped: false }], 12_000, 12_000);
    expect(posted(60_000)).toEqual({ times: [12_000], corrected: 0, doubtful: 0 });
  });
});

describe('a wall clock that jumps by two weeks', () => {
  it.each([-14, 14])('loses, drops and reorders nothing: %i days', (days) => {
    open('this', BOOT_MS, TRUE_MS);
    const jump = days * 86_400_000;
    accept([{ timeMs: TRUE_MS, stamped: true }], 11_000, TRUE_MS);
    accept([{ timeMs: TRUE_MS + jump, stamped: true }], 12_000, TRUE_MS + jump);
    accept([{ timeMs: TRUE_MS + jump + 1_000, stamped: true }], 13_000, TRUE_MS + jump + 1_000);
    expect(store.facts().dropped).toEqual([]);
    // In the order of acceptance, whatever the times say.
    expect(posted(14_000).times).toEqual([TRUE_MS, TRUE_MS + jump, TRUE_MS + jump + 1_000]);
  });
});
