/** Parts of the buffer, each for itself: bounds, the reserve, ages, lanes, the committer's moments, what is forgotten. */
import { existsSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../src/base/database.ts';
import { AcceptanceTimes } from '../../src/buffer/acceptance-times.ts';
import { Committer } from '../../src/buffer/client/committer.ts';
import { SeriesKeeping } from '../../src/buffer/client/series-keeping.ts';
import { StoredValues } from '../../src/buffer/client/stored-values.ts';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { knownSeries } from '../../src/buffer/idle-series.ts';
import { OriginFile } from '../../src/buffer/recovery/origin-file.ts';
import { SeriesCopy } from '../../src/buffer/recovery/series-copy.ts';
import { SeriesCatalogue } from '../../src/buffer/series.ts';
import { DiskGauge, excessBytes, minFreeBytes } from '../../src/buffer/space/bounds.ts';
import { giveUpReserve, Reserve } from '../../src/buffer/space/reserve.ts';
import { StoreState } from '../../src/buffer/state.ts';
import type { CommitRequest, StoreFacts } from '../../src/buffer/store-facts.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { memoryFolder } from '../memory-folder.ts';

const MiB = 1024 * 1024;
let folder: string;
let path: string;
beforeEach(() => {
  folder = memoryFolder('tagferry-buffer-parts-');
  path = join(folder, 'buffer.db');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const disk = (facts = {}) => {
  const use = { bytes: 0, walBytes: 0, usedBytes: 0, reusableBytes: 0, freeBytes: 1e9, totalBytes: 1e12 };
  return { ...use, ...facts };
};
const bounds = (maxBytes = 0) => ({ maxBytes, maxAgeMs: 0, minFree: { bytes: 5 }, full: 'drop-oldest' as const });

describe('the bounds', () => {
  it('leave room for the WAL, count what is used, and are none at 0', () => {
    expect(excessBytes(disk({ usedBytes: 1e12 }), bounds(0))).toBe(0);
    expect(excessBytes(disk({ usedBytes: 7 * MiB }), bounds(8 * MiB))).toBe(0);
    expect(excessBytes(disk({ usedBytes: 7 * MiB + 1 }), bounds(8 * MiB))).toBe(1);
    expect(excessBytes(disk({ usedBytes: 7 * MiB, walBytes: MiB + 3 }), bounds(8 * MiB))).toBe(3);
    expect(excessBytes(disk({ usedBytes: 996_000_001 }), bounds(1e9))).toBe(1);
    expect([minFreeBytes(disk(), bounds()), minFreeBytes(disk(), { ...bounds(), minFree: { share: 0.5 } })]).toEqual([
      5, 5e11,
    ]);
  });

  it('are measured by pages that hold something, and by file and WAL', () => {
    const database = openDatabase(path);
    database.exec(`CREATE TABLE t (x); INSERT INTO t VALUES (zeroblob(200000)); DELETE FROM t;`);
    const { bytes, walBytes, usedBytes, reusableBytes, freeBytes, totalBytes } = new DiskGauge(database, path).read();
    const pages = database.pragma('page_count', { simple: true }) as number;
    expect([usedBytes + reusableBytes, walBytes]).toEqual([pages * 1024, statSync(`${path}-wal`).size]);
    expect(bytes).toBe(pages * 1024 + walBytes);
    expect(reusableBytes).toBeGreaterThan(190_000);
    expect(usedBytes).toBeLessThan(20_000);
    expect(totalBytes).toBeGreaterThanOrEqual(freeBytes);
    database.close();
  });
});

describe('the reserve', () => {
  const file = () => statSync(`${path}.reserve`, { throwIfNoEntry: false })?.size;
  const opened = (facts = {}, maxBytes = 0) => {
    const reserve = new Reserve(path, bounds(maxBytes));
    reserve.open(disk(facts));
    return [reserve.bytes, file(), reserve.isThere, reserve.isOwed];
  };

  it.each([
    ['on a large disk', {}, 0, 2 * MiB],
    ['on one of 16 MiB', { totalBytes: 16 * MiB }, 0, MiB],
    ['on a tiny one', { totalBytes: MiB }, 0, 256 * 1024],
    ['where nobody knows how large it is', { totalBytes: 0 }, 0, 2 * MiB],
    ['of a bounded buffer', {}, 8 * MiB, MiB],
  ])('has its size %s', (_, facts, maxBytes, bytes) => {
    expect(opened(facts, maxBytes)).toEqual([bytes, bytes, true, false]);
  });

  it('is owed where a disk has no room for it, twice over, and not where nobody knows', () => {
    expect(opened({ freeBytes: 4 * MiB - 1 })).toEqual([2 * MiB, undefined, false, true]);
    expect(opened({ freeBytes: 0, totalBytes: 0 })).toEqual([2 * MiB, undefined, false, false]);
    expect(opened({ freeBytes: 4 * MiB })).toEqual([2 * MiB, 2 * MiB, true, false]);
  });

  it.each([
    [MiB, true],
    [MiB - 1, false],
    [2 * MiB, true],
    [2 * MiB + 1, false],
  ])('of %d bytes from before is as good as new: %s', (bytes, isThere) => {
    writeFileSync(`${path}.reserve`, new Uint8Array(bytes));
    expect(opened({ freeBytes: 0 })).toEqual([2 * MiB, bytes, isThere, !isThere]);
  });

  it('is given up for its space, and left in part when the store closes', () => {
    const reserve = new Reserve(path, bounds());
    reserve.open(disk());
    reserve.giveUp();
    expect([file(), reserve.isThere, reserve.isOwed]).toEqual([undefined, false, true]);
    reserve.leave(72_000);
    expect(file()).toBeUndefined();
    reserve.leave(100_000);
    expect([file(), reserve.isThere]).toEqual([90_000, true]);
    reserve.leave(1e9);
    expect(file()).toBe(90_000);
    reserve.make();
    expect([file(), reserve.isOwed]).toEqual([2 * MiB, false]);
    expect([giveUpReserve(`${path}.reserve`), giveUpReserve(`${path}.reserve`), file()]).toEqual([
      true,
      false,
      undefined,
    ]);
    expect(giveUpReserve(folder)).toBe(false);
    expect(existsSync(folder)).toBe(true);
  });
});

describe('how old a value is', () => {
  it('is counted by the run that took it in, and by what later ones lasted', () => {
    const times = new AcceptanceTimes();
    times.open(3, 5_000, [
      { id: 1, beganMs: 100, lastMs: 900 },
      { id: 2, beganMs: 50, lastMs: 250 },
    ]);
    expect([times.ageMs(3, 6_000, 6_500), times.ageMs(3, 6_000, 5_500)]).toEqual([500, 0]);
    expect(times.ageMs(2, 200, 5_007)).toBe(50 + 7);
    expect(times.ageMs(1, 400, 5_007)).toBe(500 + 200 + 7);
    // Of a run that nobody knows: as old as this one.
    expect(times.ageMs(9, 400, 5_007)).toBe(7);
    expect([times.arrivalMs(3, 42), times.arrivalMs(1, 42), times.arrivalOf(undefined)]).toEqual([42, 5_000, 0]);
  });
});

describe('the lanes that the uplink sees', () => {
  it('are those of the last answer, without what waits for nothing', () => {
    const values = new StoredValues({} as never, new ManualClock(), () => {});
    let changes = 0;
    const end = values.onChange(() => changes++);
    const lane = (asset: number, live: number, backlog: number) => ({
      asset,
      live,
      oldestLiveAtMs: 0,
      backlog,
      oldestBacklogAt: 0,
    });
    values.update([lane(1, 1, 0), lane(2, 0, 1), lane(3, 0, 0)]);
    expect([...values.lanes().keys()]).toEqual([1, 2]);
    values.update([]);
    expect(changes).toBe(1);
    end();
    values.update([lane(1, 0, 0), lane(2, 5, 1)]);
    expect([[...values.lanes().values()], changes]).toEqual([[lane(2, 5, 1)], 1]);
  });
});

describe('the committer', () => {
  const FACTS = { dirty: false, maintenanceDue: false, short: false, spare: false, oversized: false } as StoreFacts;
  function world(answer: (request: CommitRequest) => Promise<StoreFacts> = async () => FACTS, intervalMs = 1_000) {
    const clock = new ManualClock();
    const commits: CommitRequest[] = [];
    const maintained: number[] = [];
    let early = 0;
    const port = {
      commit: (request: CommitRequest) => {
        commits.push(request);
        return answer(request);
      },
      maintain: async ({ monotonicMs }: { monotonicMs: number }) => {
        maintained.push(monotonicMs);
        return FACTS;
      },
      giveSpaceBack: async () => FACTS,
    };
    const catalogue = new SeriesCatalogue();
    const onEarly = () => void early++;
    const options = { clock, catalogue, intervalMs, values: 100, onFacts: () => {}, onEarly };
    const committer = new Committer(port as never, options);
    const append = (count: number, notes: { name: string; text: string }[] = []) => {
      const columns = new ValueColumns();
      for (let i = 0; i < count; i++) columns.add(catalogue.idOf(1, `k${i}`, undefined, undefined), i, i, 0);
      return committer.append(columns, notes);
    };
    return { clock, commits, maintained, committer, catalogue, append, early: () => early };
  }

  it('waits for its interval, comes early for who waits for it, and says so', async () => {
    const { clock, commits, append, committer, early } = world();
    await append(1);
    const second = append(1);
    await clock.advance(50);
    expect(commits).toHaveLength(1);
    committer.hurry();
    await clock.advance(49);
    expect([commits.length, early()]).toEqual([1, 0]);
    await clock.advance(1);
    await second;
    expect([commits.length, early()]).toEqual([2, 1]);
    const third = append(1);
    await clock.advance(999);
    expect(commits).toHaveLength(2);
    await clock.advance(1);
    await third;
    expect([commits.length, early()]).toEqual([3, 1]);
    committer.hurry();
    await committer.close();
    // Nothing waited.
    expect(commits).toHaveLength(3);
  });

  it('asks for maintenance now and then though nothing happens, and carries notes and no empty ones', async () => {
    const { clock, commits, maintained, append, committer } = world();
    const first = append(1, [{ name: 'n', text: 't' }]);
    await first;
    const only = append(0, [{ name: 'm', text: 'u' }]);
    await clock.advance(1_000);
    await only;
    const none = append(2);
    await clock.advance(1_000);
    await none;
    expect(commits.map(({ notes }) => notes)).toEqual([
      [{ name: 'n', text: 't' }],
      [{ name: 'm', text: 'u' }],
      undefined,
    ]);
    expect(commits.map(({ columns }) => columns?.length)).toEqual([1, undefined, 2]);
    await clock.advance(60_000);
    expect(maintained.length).toBeGreaterThan(2);
    // Each is told the time: they come after the last commit, one after the other.
    expect(maintained.every((atMs, i) => atMs > (maintained[i - 1] ?? 2_000))).toBe(true);
    expect(commits).toHaveLength(3);
    await committer.close();
    await expect(append(1)).rejects.toMatchObject({ code: 'buffer.closing' });
  });

  it('writes what waits before it closes', async () => {
    const { commits, append, committer } = world();
    await append(1);
    const waits = append(2);
    await committer.close();
    expect(commits.map(({ columns }) => columns?.length)).toEqual([1, 2]);
    await waits;
  });

  it('brings the new series again after a commit that failed, and flushes whoever waits', async () => {
    let isBroken = true;
    const { clock, commits, append, committer } = world(async () => {
      if (isBroken) throw Object.assign(new Error('no'), { code: 'EIO' });
      return FACTS;
    });
    await expect(append(2)).rejects.toMatchObject({ code: 'store.unwritable' });
    isBroken = false;
    await clock.advance(10_000);
    const after = append(1);
    await Promise.all([committer.flush(), committer.flush(), after]);
    expect(commits[0]!.newSeries.map(({ key }) => key)).toEqual(['k0', 'k1']);
    expect(commits[1]!.newSeries.map(({ key }) => key)).toEqual(['k0', 'k1']);
    await committer.close();
  });

  it('names the series of what waits and of what comes to who watches', async () => {
    const { append, committer, clock } = world();
    await append(1);
    const waits = append(2);
    const { named, end } = committer.watchSeries();
    const later = append(3);
    expect(named.size).toBe(3);
    end();
    const last = append(5);
    expect(named.size).toBe(3);
    await clock.advance(2_000);
    await Promise.all([waits, later, last]);
    await committer.close();
  });
});

describe('series that are forgotten', () => {
  const catalogueOf = (count: number) => {
    const catalogue = new SeriesCatalogue();
    for (let i = 0; i < count; i++)
      catalogue.idOf(1 + (i % 2), `k${i}`, undefined, undefined, i % 3 === 0 ? 12 : undefined);
    return catalogue;
  };

  it('are unknown by number, asset and instrumentation, and their numbers stand for others later', () => {
    const catalogue = catalogueOf(6);
    const ids = [...catalogue.all()].map(({ id }) => id);
    expect(catalogue.ofInstrumentation(12).map(({ key }) => key)).toEqual(['k0', 'k3']);
    expect(catalogue.ofInstrumentation(1)).toEqual([]);
    // Not saved yet: the store would not know them.
    catalogue.forget(ids);
    expect(catalogue.size).toBe(6);
    const news = catalogue.takeNew();
    catalogue.returnNew(news.splice(0, 2));
    catalogue.forget(ids);
    expect([...catalogue.all()].map(({ key }) => key)).toEqual(['k0', 'k1']);
    expect(catalogue.takeNew().map(({ key }) => key)).toEqual(['k0', 'k1']);
    const { forgettings } = catalogue;
    expect(forgettings).toBe(2);
    for (const id of ids.slice(0, 2)) expect(catalogue.isCurrent(id, 0)).toBe(true);
    for (const id of ids.slice(2))
      expect([catalogue.get(id), catalogue.isCurrent(id, 1), catalogue.isCurrent(id, 2)]).toEqual([
        undefined,
        false,
        true,
      ]);
    expect([catalogue.ofAsset(1).length, catalogue.ofAsset(2).length, catalogue.ofAsset(3).length]).toEqual([1, 1, 0]);
  });

  it('are not the ones whose name alone is lost: nothing is written of these', () => {
    const state = new StoreState();
    const unnamed = { key: 'k', group: undefined, unit: undefined, instrumentation: undefined };
    for (const [id, asset] of [12, 0, 12].entries()) state.addSeries({ id: id + 1, asset, ...unnamed });
    expect(knownSeries(state).map(({ id }) => id)).toEqual([1, 3]);
  });

  it('are looked for now and then, at longer intervals while there are few', async () => {
    const clock = new ManualClock();
    const catalogue = catalogueOf(4);
    catalogue.takeNew();
    const ids = [...catalogue.all()].map(({ id }) => id);
    const told: number[][] = [];
    let asked = 0;
    let idle: number[] = [ids[0]!, ids[1]!];
    const keeping = new SeriesKeeping({
      port: {
        idleSeries: async () => {
          asked++;
          return idle;
        },
        forgetSeries: async () => {},
      },
      catalogue,
      committer: { watchSeries: () => ({ named: new Set([ids[1]!]), end: () => true }) },
      clock,
      isKept: () => false,
      onForgotten: (series) => told.push([...series]),
    });
    const [one, beside] = await Promise.all([keeping.keep(), keeping.keep()]);
    expect([one, beside, asked, told]).toEqual([1, 0, 1, [[ids[0]!]]]);
    idle = [];
    const found: number[] = [];
    for (let second = 0; second < 3_600; second++) {
      await clock.advance(1_000);
      await keeping.keep();
      found.push(asked);
    }
    expect(asked).toBeGreaterThan(10);
    expect(asked).toBeLessThan(40);
    expect(told).toHaveLength(1);
  });

  it('are known by their copy as far as its lines read, of two lines by the later', () => {
    const copy = new SeriesCopy(path);
    const series = (id: number, key: string, since = 1) => ({
      id,
      asset: 1,
      key,
      group: undefined,
      unit: undefined,
      instrumentation: undefined,
      since,
    });
    expect(copy.read().size).toBe(0);
    expect(copy.append([], () => [])).toBe(true);
    expect(existsSync(`${path}.series`)).toBe(false);
    expect(copy.append([series(1, 'a'), series(2, 'b')], () => [])).toBe(true);
    writeFileSync(`${path}.series`, '[1,1,"gar', { flag: 'a' });
    copy.append([series(1, 'newer', 2), series(2, 'older', 0)], () => []);
    expect([...copy.read().values()].map(({ key }) => key)).toEqual(['newer', 'b']);
    expect([...copy.read(new Set([2])).keys()]).toEqual([2]);
    const before = statSync(`${path}.series`).size;
    copy.keep([series(1, 'newer', 2), series(2, 'b')]);
    expect(statSync(`${path}.series`).size).toBe(before);
    copy.keep([series(1, 'third', 3)]);
    expect([...copy.read().values()].map(({ key }) => key)).toEqual(['third']);
    expect(new SeriesCopy(join(folder, 'none', 'x')).append([series(1, 'a')], () => [])).toBe(false);
  });

  it('leave the copy small: it is made anew where it has grown far beyond what is known', () => {
    const copy = new SeriesCopy(path);
    const known = [
      { id: 1, asset: 1, key: 'k', group: undefined, unit: undefined, instrumentation: undefined, since: 1 },
    ];
    let asked = 0;
    const all = () => {
      asked++;
      return known;
    };
    const append = () => copy.append(known, all);
    append();
    expect(asked).toBe(0);
    writeFileSync(`${path}.series`, '\n'.repeat(MiB + 1_000), { flag: 'a' });
    append();
    expect(asked).toBe(1);
    expect(statSync(`${path}.series`).size).toBeLessThan(200);
    expect(copy.read().size).toBe(1);
    const many = Array.from({ length: 100 }, () => known[0]!);
    writeFileSync(`${path}.series`, '\n'.repeat(MiB + 100 * 2 * 60));
    copy.append(known, () => many);
    expect(statSync(`${path}.series`).size).toBeGreaterThan(MiB);
  });
});

describe('an older file', () => {
  it('that somebody took away does not come back, nor one that reads; one that is empty is there', () => {
    const origin = new OriginFile(path);
    expect([origin.mayComeBack, [...origin.pages()]]).toEqual([false, []]);
    writeFileSync(path, '');
    expect(origin.mayComeBack).toBe(false);
    writeFileSync(path, 'something');
    expect(origin.mayComeBack).toBe(false);
    origin.close();
    origin.close();
  });
});
