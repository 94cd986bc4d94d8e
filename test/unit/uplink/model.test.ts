import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openDatabase } from '../../../src/base/database.ts';
import type { OutgoingBuffer } from '../../../src/buffer/client/lanes.ts';
import { StoredValues } from '../../../src/buffer/client/stored-values.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import type { StoreFacts } from '../../../src/buffer/store-facts.ts';
import { ValueStore } from '../../../src/buffer/value-store.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { MemoryBuffer } from '../doubles/memory-buffer.ts';
import { DirectPlatform, type Ledger, Plant, type Posted, type Reply, refusal, TAKEN } from './plant.ts';

const ASSETS = 6;
const SERIES_AN_ASSET = 3;

/** Log events that report the state of the platform. */
const OUTAGES = new Set([
  'uplink.away',
  'uplink.signed_out',
  'uplink.none_visible',
  'uplink.all_refused',
  'uplink.back',
]);

interface Accepted {
  number: number;
  asset: number;
  series: number;
  timeMs: number;
}

const keyOf = ({ series, timeMs }: Omit<Accepted, 'number'>) => `${series} ${timeMs}`;

/** Buffer that the test fills: in memory, or the real one on disk. */
interface Feed {
  outgoing: OutgoingBuffer;
  accept(values: readonly Accepted[]): void;
  /** Flushes old values. */
  tick(): void;
  waiting(): number;
  quarantined(): number;
  close(): void;
}

function memoryFeed(clock: ManualClock): Feed {
  const buffer = new MemoryBuffer();
  return {
    outgoing: buffer,
    accept: (values) => buffer.accept(values.map((value) => ({ ...value, acceptedMs: clock.monotonicMs() }))),
    tick: () => buffer.flush(clock.monotonicMs() - 4_000),
    waiting: () => buffer.waiting,
    quarantined: () => buffer.quarantined.length,
    close: () => expect(buffer.inProgress.size).toBe(0),
  };
}

function storedFeed(clock: ManualClock): Feed {
  const folder = mkdtempSync(join(tmpdir(), 'tagferry-uplink-'));
  const path = join(folder, 'buffer.db');
  const bounds = { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' as const };
  const opening = ValueStore.open(
    openDatabase(path),
    path,
    { bounds, flushAfterMs: 4_000, flushValues: 100_000 },
    { monotonicMs: clock.monotonicMs(), wallMs: 0, boot: 'one' },
  );
  const { store } = opening;
  const catalogue = new SeriesCatalogue(opening.series);
  let latest = opening.facts;
  const note = (facts: StoreFacts): void => {
    latest = facts;
    stored.update(facts.lanes);
  };
  const port = {
    take: async (request: Parameters<ValueStore['take']>[0]) => store.take(request),
    settle: async (batch: number) => store.settle(batch),
    release: async (batch: number) => store.release(batch),
    divide: async (batch: number) => store.divide(batch),
    quarantine: async (batch: number, why: Parameters<ValueStore['quarantine']>[1]) => store.quarantine(batch, why),
    holdSeries: async (series: readonly number[]) => store.holdSeries(series),
  };
  const stored: StoredValues = new StoredValues(port, clock, note);
  const commit = (columns?: ValueColumns): void =>
    note(
      store.commit({
        columns,
        newSeries: catalogue.takeUnsaved(),
        monotonicMs: clock.monotonicMs(),
      }),
    );
  return {
    outgoing: stored,
    accept(values) {
      const columns = new ValueColumns();
      for (const { asset, series, timeMs, number } of values) {
        columns.add(catalogue.idOf(asset, `s${series}`, undefined, undefined), timeMs, number, 0);
      }
      commit(columns);
    },
    tick() {
      note(store.maintain({ monotonicMs: clock.monotonicMs() }));
      commit();
    },
    waiting: () => latest.logValues + latest.segmentValues,
    quarantined: () => latest.quarantined,
    close() {
      store.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/**
 * Returns the values whose order the agent may change (docs/reference/verdicts.md): values that were rejected alone, and
 * those of trials and probes that looked for a value that the platform accepts.
 */
function unorderedValues(logged: Plant['logged'], posts: Ledger['posts']): Set<number> {
  const rejected = new Set<unknown>();
  const taken: { asset: unknown; atMs: number; isSearch: boolean }[] = [];
  let isRejectingAll = false;
  for (const { event, asset, assets, atMs, kind, trial } of logged) {
    if (event === 'uplink.series_waits') for (const id of (assets as number[]) ?? [asset]) rejected.add(id);
    const isSearch = (isRejectingAll && trial === true) || (kind === 'probe' && rejected.has(asset));
    if (event === 'uplink.taken') taken.push({ asset, atMs: atMs as number, isSearch });
    if (OUTAGES.has(event)) isRejectingAll = event === 'uplink.all_refused';
  }
  // No other batch of an asset is in flight during a search.
  const isSearch = ({ asset, atMs }: Posted) =>
    taken.findLast((batch) => batch.asset === asset && batch.atMs <= atMs)?.isSearch === true;
  const isAlone = ({ values, status }: Ledger['posts'][number]) => values === 1 && (status === 400 || status === 413);
  const numbersOf = ({ series }: Posted) => series.flatMap(({ data }) => data.map(({ number }) => number));
  return new Set(posts.filter((post) => isSearch(post) || isAlone(post)).flatMap(numbersOf));
}

/** Accepts values for ten minutes while posts fail in every way, then waits until all values are delivered or quarantined. */
async function live(seed: number, makeFeed: (clock: ManualClock) => Feed): Promise<void> {
  const clock = new ManualClock(Date.UTC(2026, 10, 21), seed);
  const feed = makeFeed(clock);
  const accepted: Accepted[] = [];
  const invalid = new Set<number>();
  let isFailing = true;
  let reply: Reply | undefined = TAKEN;
  const forbidden = new Set<number>();
  const platform = new DirectPlatform(clock, (post) => {
    if (isFailing && clock.random() < 0.05) return undefined;
    if (isFailing && reply?.status !== 204) return reply;
    if (isFailing && forbidden.has(post.asset)) return { status: 403 };
    const isBad = post.series.some(({ data }) => data.some(({ number }) => invalid.has(number)));
    return isBad ? refusal() : TAKEN;
  });
  const options = { postIntervalMs: 2_000, postMaxValues: 200, drainOrder: seed % 2 ? 'live-first' : 'oldest-first' };
  const plant = new Plant(clock, platform, {
    options: options as object,
    requestsPerMinute: 600,
    outgoing: feed.outgoing,
    level: 'debug',
  });
  await plant.uplink.start();
  const refusesAll = seed % 3 === 0;
  const replies: (Reply | undefined)[] = [
    TAKEN,
    TAKEN,
    TAKEN,
    undefined,
    { status: 500 },
    { status: 429, headers: { 'retry-after': '3' } },
    { status: 401 },
    { status: 503, headers: { 'retry-after': '2' } },
    ...(refusesAll ? [{ status: 400, body: 'a proxy' }, { status: 413 }] : []),
  ];
  for (let second = 0; second < 600; second++) {
    if (second % 20 === 0) reply = replies[Math.floor(clock.random() * replies.length)];
    if (second % 30 === 0) {
      forbidden.clear();
      if (clock.random() < 0.5) forbidden.add(1 + Math.floor(clock.random() * ASSETS));
    }
    const values: Accepted[] = [];
    for (let i = Math.floor(clock.random() * 12); i > 0; i--) {
      const asset = 1 + Math.floor(clock.random() * ASSETS);
      const series = asset * 10 + Math.floor(clock.random() * SERIES_AN_ASSET);
      // Many values of a series have the same time, and some are late.
      const timeMs = Math.floor(clock.wallMs() / 5_000) * 5_000 - (clock.random() < 0.1 ? 20_000 : 0);
      const value = { number: accepted.length, asset, series, timeMs };
      if (clock.random() < 0.01) invalid.add(value.number);
      accepted.push(value);
      values.push(value);
    }
    feed.accept(values);
    feed.tick();
    await clock.advance(1_000);
  }
  isFailing = false;
  for (let minute = 0; minute < 90 && feed.waiting() > 0; minute++) {
    // Rejected values are quarantined only after a valid value was accepted.
    const asset = 1 + (minute % ASSETS);
    const value = { number: accepted.length, asset, series: asset * 10, timeMs: Math.floor(clock.wallMs()) };
    accepted.push(value);
    feed.accept([value]);
    for (let i = 0; i < 12; i++) {
      await clock.advance(5_000);
      feed.tick();
    }
  }
  const stopped = plant.uplink.stop(0);
  await clock.advance(1_000);
  await stopped;

  const delivered = platform.ledger.numbers;
  expect(feed.waiting()).toBe(0);
  expect([...delivered].filter((number) => invalid.has(number))).toEqual([]);
  expect(delivered.size + invalid.size).toBe(accepted.length);
  expect(feed.quarantined()).toBe(invalid.size);
  expect(plant.counts.delivered).toBe(delivered.size);
  // Of the valid values of a series with the same time, the platform stores the one that was accepted last.
  const last = new Map<string, number>();
  for (const value of platform.ledger.taken) last.set(keyOf(value), value.number);
  const expected = new Map<string, number>();
  for (const value of accepted) if (!invalid.has(value.number)) expected.set(keyOf(value), value.number);
  const isUnordered = unorderedValues(plant.logged, platform.ledger.posts);
  const unordered = new Set(accepted.filter(({ number }) => isUnordered.has(number)).map(keyOf));
  expect([...last].filter(([key, number]) => !unordered.has(key) && expected.get(key) !== number)).toEqual([]);
  feed.close();
}

describe('randomized uplink run delivers or quarantines each accepted value once, in order,', () => {
  it.each([1, 2, 3, 4, 5, 6, 12, 18, 27, 72, 137, 191])('with a memory buffer, seed %d', (seed) =>
    live(seed, memoryFeed),
  );
  it.each([1, 2, 3, 4, 6, 21])('with the disk store, seed %d', (seed) => live(seed, storedFeed));
});
