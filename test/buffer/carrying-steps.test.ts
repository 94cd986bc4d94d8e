/** What each step of carrying does to both files and to memory: how much it takes, what it leaves out, when it waits, how it ends. */
import { mkdirSync, readdirSync, readlinkSync, realpathSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { packSegment } from '../../src/buffer/format/segment.ts';
import { Pending } from '../../src/buffer/pending.ts';
import { Carrying } from '../../src/buffer/recovery/carrying.ts';
import { OriginFile } from '../../src/buffer/recovery/origin-file.ts';
import { SqlitePages } from '../../src/buffer/recovery/sqlite-pages.ts';
import { newSpan, type Span, segmentId } from '../../src/buffer/span.ts';
import { StoreState } from '../../src/buffer/state.ts';
import { originSum } from '../../src/buffer/tables.ts';
import { memoryFolder } from '../memory-folder.ts';
import { HandMadeBuffer, seriesOf } from './hand-made-buffer.ts';

const PAGE = 1024;
/** Spans 1 and 2 stood in the old file; 3 and what follows never did. */
const BELOW = 3;

let folder: string;
let old: string;
let buffer: HandMadeBuffer;
beforeEach(() => {
  folder = realpathSync(memoryFolder('tagferry-carrying-steps-'));
  old = join(folder, 'old');
  buffer = new HandMadeBuffer(join(folder, 'buffer.db'));
});
afterEach(() => {
  buffer.close();
  rmSync(folder, { recursive: true, force: true });
});

/** So many values that are no decimals: eight bytes each. */
function packed(series: number, count: number): Uint8Array {
  const numbers = Float64Array.from({ length: count }, (_, i) => Math.sqrt(i + 2));
  return packSegment(
    { count, timeMs: new Float64Array(count), value: numbers, flags: new Uint8Array(count) },
    0,
    count,
    { series, place: 1 },
  );
}

type Segments = Record<string, Uint8Array | string>;
/** Segments of the old file, by span and entry. */
function setAside(segments: Segments, sql = '', path = old): void {
  const file = new HandMadeBuffer(path);
  const add = file.database.prepare('INSERT INTO segment VALUES (?, ?)');
  for (const [at, bytes] of Object.entries(segments)) {
    const [span, entry] = at.split('.').map(Number);
    add.run(segmentId(span!, entry!), bytes);
  }
  file.sql(sql).close();
}

/** Each entry of the spans is of a series of its own, 1 and so on, with so many values. */
function world(
  spans: Record<number, number[]>,
  { maxSegments, held = [], names = ['old'] }: { maxSegments?: number; held?: number[]; names?: string[] } = {},
) {
  for (const name of names) buffer.statements.addOrigin.run(name, BELOW, originSum(name, BELOW));
  const state = new StoreState();
  let series = 0;
  const all: Span[] = [];
  for (const [id, counts] of Object.entries(spans)) {
    const entries = counts.map((count) => ({ series: ++series, count, lastTimeMs: 0 }));
    for (const entry of entries) state.addSeries(seriesOf(entry.series, 7));
    all.push(newSpan({ id: Number(id), place: Number(id), run: 1, acceptedMs: 0 }, entries));
  }
  state.holdSeries(held);
  for (const span of all) state.addSpan(span);
  state.touched.clear();
  const pending = new Pending();
  const lost: string[] = [];
  const lose = (span: Span, entry: number) => {
    lost.push(`${span.id}.${entry}`);
    state.loseEntry(span, entry);
  };
  const { database, statements } = buffer;
  const carrying = Carrying.resume(join(folder, 'buffer.db'), { database, statements, state, pending })!.begin(
    lose,
    maxSegments,
  );
  const asset = state.assets.get(7)!;
  const carried = () =>
    database
      .prepare<[], number>('SELECT id FROM segment ORDER BY id')
      .pluck()
      .all()
      .map((id) => `${Math.floor(id / 2 ** 20)}.${id % 2 ** 20}`);
  const picture = () => ({
    carried: carried(),
    lost: [...lost],
    backlog: asset.backlog,
    underWay: all.flatMap((span) => [...span.underWay].map(([entry, batches]) => [`${span.id}.${entry}`, batches])),
    isTouched: state.touched.has(asset),
    isCarried: pending.isCarried,
  });
  /** So many steps until nothing is due at that time. */
  const run = (nowMs = 0) => {
    let steps = 0;
    for (; carrying.isDue(nowMs) && steps < 500; steps++) carrying.step(nowMs);
    return steps;
  };
  return { carrying, state, spans: all, asset, carried, picture, run };
}

const openFiles = () =>
  readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`) === old;
    } catch {
      return false;
    }
  }).length;

/** Its header is no longer one of SQLite's; every page of it stands. */
const refuseIt = () => writeFileSync(old, 'not of SQLite at all', { flag: 'r+' });

describe('a step', () => {
  it('takes no more segments than it may, and of those that are large so many as 256 KiB are', () => {
    const large = 16_000;
    setAside(Object.fromEntries([1, 2, 3, 4, 5].map((series) => [`1.${series - 1}`, packed(series, large)])));
    const { carrying, carried, run, picture } = world({ 1: [large, large, large, large, large] });
    const seen: number[] = [];
    while (carrying.isDue(0)) {
      carrying.step(0);
      seen.push(carried().length);
    }
    // 128,000 bytes each: the third goes beyond, and ends it.
    expect(seen).toEqual([3, 5]);
    expect([run(), picture()]).toEqual([
      0,
      { carried: carried(), lost: [], backlog: 5 * large, underWay: [], isTouched: false, isCarried: true },
    ]);
    carrying.close();
    expect(openFiles()).toBe(0);
  });

  it('counts what stands nowhere like what comes, and looks at each once more before it is lost', () => {
    setAside({ '1.1': packed(2, 3) });
    const { carrying, picture, run, state } = world({ 1: [3, 3, 3], 2: [3] }, { maxSegments: 2 });
    expect(run()).toBeGreaterThan(3);
    expect(picture()).toEqual({
      carried: ['1.1'],
      lost: ['1.0', '1.2', '2.0'],
      backlog: 3,
      underWay: [],
      isTouched: true,
      isCarried: true,
    });
    expect(state.segmentValues).toBe(3);
    carrying.close();
  });

  it('takes two thousand pages of a file that SQLite refuses, and of large rows fewer', () => {
    setAside({ '1.0': packed(1, 3) });
    const yields = () => {
      const pages = new SqlitePages(old, PAGE);
      const count = [...pages.pages()].length;
      pages.close();
      return count;
    };
    const file = new HandMadeBuffer(old);
    file.sql(`CREATE TABLE filling (id INTEGER PRIMARY KEY, value);
      WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) INSERT INTO filling SELECT i, zeroblob(900) FROM n`);
    file.close();
    expect([yields() > 2_000, yields() < 4_000]).toEqual([true, true]);
    refuseIt();
    const { carrying, picture } = world({ 1: [3] });
    // Segments, most of the pages, the others; nothing is left to lose.
    const seen = [0, 0, 0, 0].map(() => {
      carrying.step(0);
      return [picture().carried.length, picture().isCarried];
    });
    expect(seen).toEqual([
      [0, false],
      [1, false],
      [1, false],
      [1, true],
    ]);
    carrying.close();
  });

  it('ends with a page that brings it to 256 KiB', () => {
    const large = 16_000;
    setAside(Object.fromEntries([1, 2, 3, 4, 5].map((series) => [`1.${series - 1}`, packed(series, large)])));
    refuseIt();
    const { carrying, carried } = world({ 1: [large, large, large, large, large] });
    const seen: number[] = [];
    while (carrying.isDue(0)) {
      carrying.step(0);
      seen.push(carried().length);
    }
    expect(seen).toEqual([0, 3, 5, 5]);
    carrying.close();
  });
});

describe('what is carried', () => {
  it.each([false, true])(
    'is what fits its directory, of spans that stood there, and not gone; SQLite refuses the file: %s',
    (isRefused) => {
      setAside(
        {
          '1.0': packed(1, 3),
          '1.1': packed(1, 3),
          '1.2': packed(3, 4),
          '1.3': new Uint8Array([1, 2, 3, 4, 5, 6]),
          '1.4': packed(5, 3),
          '1.5': 'a text',
          '2.0': packed(7, 3),
          '3.0': packed(9, 3),
          '9.0': packed(1, 3),
        },
        // Other tables, whose rows are like them.
        `CREATE TABLE keyless (one, packed); INSERT INTO keyless SELECT 5, packed FROM segment WHERE id = 2 * 1048576;
       UPDATE keyless SET rowid = 2 * 1048576 + 1;
       CREATE TABLE longer (id INTEGER PRIMARY KEY, packed, more);
       INSERT INTO longer SELECT 2 * 1048576 + 1, packed, 5 FROM segment WHERE id = 2 * 1048576`,
      );
      if (isRefused) refuseIt();
      const { carrying, picture, run, spans, state } = world({ 1: [3, 3, 3, 3, 3, 3], 2: [3, 3], 3: [3] });
      state.loseEntry(spans[0]!, 4);
      spans[1]!.series[1] = 7;
      run();
      expect(picture()).toMatchObject({
        carried: ['1.0', '2.0'],
        lost: ['1.1', '1.2', '1.3', '1.5', '2.1'],
        isCarried: true,
      });
      carrying.close();
      expect(openFiles()).toBe(0);
    },
  );

  it('is read before its turn where it stands there and fits, and of no span that never did', () => {
    setAside({ '1.0': packed(1, 3), '1.1': packed(1, 3), '2.0': packed(3, 3), '3.0': packed(4, 3) });
    const { carrying, spans, picture } = world({ 1: [3, 3], 2: [3], 3: [3] });
    const [one, two, three] = spans as [Span, Span, Span];
    const read = (span: Span, entry: number) => carrying.read(span, entry)?.length;
    expect([read(one, 0), read(one, 1), read(two, 0), read(three, 0)]).toEqual([
      packed(1, 3).length,
      undefined,
      packed(3, 3).length,
      undefined,
    ]);
    expect([carrying.awaits(three, 0), picture().underWay]).toEqual([false, []]);
    // What somebody awaits nobody has before it is known.
    expect([carrying.awaits(one, 0), read(one, 0)]).toEqual([true, undefined]);
    carrying.close();
    expect(openFiles()).toBe(0);
  });

  it('is of all files that were set aside, the last one first', () => {
    setAside({ '1.0': packed(1, 3), '1.1': packed(2, 3) });
    const other = join(folder, 'older');
    setAside({ '1.1': packed(2, 3), '1.2': packed(3, 3) }, '', other);
    const { carrying, picture, run } = world({ 1: [3, 3, 3] }, { names: ['older', 'old'] });
    run();
    expect(picture()).toMatchObject({ carried: ['1.0', '1.1', '1.2'], lost: [], isCarried: true });
    carrying.close();
  });
});

describe('a segment that somebody asked for in vain', () => {
  it('is under way, once, until a page has it; then it may be had', () => {
    setAside({ '1.0': packed(1, 3), '1.1': packed(2, 5) });
    refuseIt();
    const { carrying, picture, spans } = world({ 1: [3, 5] });
    const [span] = spans as [Span];
    for (let again = 0; again < 2; again++) expect(carrying.awaits(span, 1)).toBe(true);
    expect(picture()).toMatchObject({ backlog: 3, underWay: [['1.1', 1]], isTouched: false });
    carrying.step(0);
    expect(picture()).toMatchObject({ carried: [], backlog: 3, underWay: [['1.1', 1]] });
    carrying.step(0);
    expect(picture()).toMatchObject({ carried: ['1.0', '1.1'], backlog: 8, underWay: [], isTouched: true });
    carrying.close();
  });

  it('of a series that is held is nobody’s before nor after', () => {
    setAside({ '1.0': packed(1, 3), '1.1': packed(2, 5) });
    refuseIt();
    const { carrying, picture, spans, run } = world({ 1: [3, 5] }, { held: [2] });
    expect([carrying.awaits(spans[0]!, 1), picture().backlog]).toEqual([true, 3]);
    run();
    expect(picture()).toMatchObject({ backlog: 3, underWay: [], isCarried: true });
    carrying.close();
  });

  it('is lost with the rest where it stands nowhere, and then no more is awaited', () => {
    setAside({});
    const { carrying, picture, spans, run } = world({ 1: [3, 5] }, { maxSegments: 1 });
    const [span] = spans as [Span];
    expect(carrying.awaits(span, 0)).toBe(true);
    while (picture().lost.length === 0) carrying.step(0);
    expect([picture(), carrying.awaits(span, 1)]).toEqual([
      { carried: [], lost: ['1.0'], backlog: 5, underWay: [], isTouched: true, isCarried: false },
      false,
    ]);
    run();
    expect([picture(), carrying.awaits(span, 1)]).toEqual([
      { carried: [], lost: ['1.0', '1.1'], backlog: 0, underWay: [], isTouched: true, isCarried: true },
      false,
    ]);
    carrying.close();
  });

  it('is free in the end where it is here meanwhile', () => {
    setAside({});
    const { carrying, picture, spans, run } = world({ 1: [3, 5] });
    for (const entry of [0, 1]) expect(carrying.awaits(spans[0]!, entry)).toBe(true);
    for (const entry of [0, 1]) buffer.statements.addSegment.run(segmentId(1, entry), packed(entry + 1, 3));
    run();
    expect(picture()).toEqual({
      carried: ['1.0', '1.1'],
      lost: [],
      backlog: 8,
      underWay: [],
      isTouched: true,
      isCarried: true,
    });
    carrying.close();
  });

  it('is carried at the last moment where it reads then', () => {
    setAside({});
    const { carrying, picture, run } = world({ 1: [3, 3] }, { maxSegments: 1 });
    while (picture().lost.length === 0) carrying.step(0);
    setAside({ '1.1': packed(2, 3) });
    run();
    expect(picture()).toMatchObject({ carried: ['1.1'], lost: ['1.0'], isCarried: true });
    carrying.close();
  });
});

describe('carrying', () => {
  it('waits while spans are left on disk for want of memory', () => {
    setAside({ '1.0': packed(1, 3) });
    const { carrying, state, carried } = world({ 1: [3] });
    state.notLoaded = 1;
    carrying.step(0);
    expect([carrying.isDue(0), carried()]).toEqual([false, []]);
    state.notLoaded = 0;
    carrying.step(0);
    expect(carried()).toEqual(['1.0']);
    carrying.close();
  });

  it('waits ten seconds where the disk is full, and takes all of that step again', () => {
    setAside(Object.fromEntries([1, 2, 3].map((series) => [`1.${series - 1}`, packed(series, 200)])));
    const { carrying, carried, run, picture } = world({ 1: [200, 200, 200] });
    const pages = Number(buffer.database.pragma('page_count', { simple: true }));
    buffer.sql(`PRAGMA max_page_count = ${pages + 4}`);
    carrying.step(500);
    expect([carried(), ...[500, 10_499, 10_500].map((nowMs) => carrying.isDue(nowMs))]).toEqual([
      [],
      false,
      false,
      true,
    ]);
    carrying.step(10_499);
    buffer.sql(`PRAGMA max_page_count = ${pages + 4_000}`);
    carrying.step(10_499);
    expect(carried()).toEqual([]);
    run(10_500);
    expect(picture()).toMatchObject({ carried: ['1.0', '1.1', '1.2'], lost: [], isCarried: true });
    carrying.close();
  });

  it('says of any other failure what it is, and takes all of that step again', () => {
    setAside({ '1.0': packed(1, 3), '1.1': packed(2, 3) });
    const { carrying, carried, run } = world({ 1: [3, 3] });
    buffer.sql(
      "CREATE TRIGGER failing BEFORE INSERT ON segment WHEN NEW.id % 2 = 1 BEGIN SELECT RAISE(ABORT, 'no'); END",
    );
    expect(() => carrying.step(0)).toThrow(expect.objectContaining({ code: 'SQLITE_CONSTRAINT_TRIGGER' }));
    expect([carried(), carrying.isDue(0)]).toEqual([[], true]);
    buffer.sql('DROP TRIGGER failing');
    run();
    expect(carried()).toEqual(['1.0', '1.1']);
    carrying.close();
  });

  it('waits ten minutes for a disk that reads nothing, in steps of ten seconds, and then loses what is on it', () => {
    // Of a folder no byte reads, whoever asks.
    mkdirSync(old);
    const { carrying, picture } = world({ 1: [3] }, { names: ['old', 'gone'] });
    carrying.step(0);
    let nowMs = 0;
    for (let round = 1; round <= 60; round++) {
      carrying.step(nowMs);
      expect([round, carrying.isDue(nowMs + 9_999), carrying.isDue(nowMs + 10_000)]).toEqual([round, false, true]);
      nowMs += 10_000;
    }
    expect(picture()).toMatchObject({ lost: [], isCarried: false });
    // The round that ends it, and the step that loses.
    for (let step = 0; step < 2; step++) carrying.step(nowMs);
    expect([picture().lost, picture().isCarried]).toEqual([['1.0'], true]);
    carrying.close();
  });

  it('takes all of a disk that comes back, read page by page', () => {
    const real = join(folder, 'real');
    setAside({ '1.0': packed(1, 3) }, '', real);
    mkdirSync(old);
    const { carrying, picture, run } = world({ 1: [3] });
    run(0);
    rmSync(old, { recursive: true });
    renameSync(real, old);
    expect(picture().carried).toEqual([]);
    run(10_000);
    expect(picture()).toMatchObject({ carried: ['1.0'], lost: [], isCarried: true });
    carrying.close();
  });

  it('is not begun where nothing was set aside, or what names it does not read', () => {
    const parts = { ...buffer, state: new StoreState(), pending: new Pending() };
    const { database, statements } = buffer;
    const resume = () => Carrying.resume(join(folder, 'buffer.db'), { ...parts, database, statements });
    expect(resume()).toBeUndefined();
    statements.addOrigin.run('old', 3, 1);
    expect(resume()).toBeUndefined();
    for (const below of [4, 9, 6]) statements.addOrigin.run('old', below, originSum('old', below));
    expect(resume()?.below).toBe(9);
  });
});

describe('a file that was set aside', () => {
  it('may come back where it cannot be looked at, and not where it is gone or reads', () => {
    writeFileSync(old, 'something');
    // What is no folder holds no file: it is not known to be gone.
    expect([new OriginFile(join(old, 'in it')).mayComeBack, new OriginFile(old).mayComeBack]).toEqual([true, false]);
  });

  it('is tried again after it was closed, and gives its segments whichever way is asked', () => {
    setAside({ '1.0': packed(1, 3) });
    renameSync(old, `${old}.sound`);
    writeFileSync(old, 'not of SQLite at all');
    const file = new OriginFile(old);
    const asked = () => [file.get(segmentId(1, 0))?.length, [...file.between(0, segmentId(9, 0))].length, openFiles()];
    expect([asked(), asked()]).toEqual([
      [undefined, 0, 0],
      [undefined, 0, 0],
    ]);
    renameSync(`${old}.sound`, old);
    expect(asked()).toEqual([undefined, 0, 0]);
    file.close();
    expect(asked()).toEqual([packed(1, 3).length, 1, 1]);
    expect([
      [...file.pages()].flat().filter(({ fields }) => fields[1] instanceof Uint8Array).length,
      openFiles(),
    ]).toEqual([1, 2]);
    file.close();
    expect(openFiles()).toBe(0);
  });
});
