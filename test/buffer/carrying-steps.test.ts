/** What each step of carrying does to both files and to memory: how much it takes, and what it leaves out. */
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { SqlitePages } from '../../src/buffer/recovery/sqlite-pages.ts';
import type { Span } from '../../src/buffer/span.ts';
import { CarryingBuffer, carryingOf, packed, refuse, setAside } from './carrying-world.ts';
import { freshBuffer, HandMadeBuffer } from './hand-made-buffer.ts';

const PAGE = 1024;

const buffer = freshBuffer('tagferry-carrying-steps-', new CarryingBuffer());

describe('a step', () => {
  it('takes no more segments than it may, and of those that are large so many as 256 KiB are', () => {
    const large = 16_000;
    setAside(
      buffer.old,
      Object.fromEntries([1, 2, 3, 4, 5].map((series) => [`1.${series - 1}`, packed(series, large)])),
    );
    const { carrying, carried, run, picture } = carryingOf(buffer, { 1: [large, large, large, large, large] });
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
    expect(buffer.openFiles()).toBe(0);
  });

  it('counts what stands nowhere like what comes, and looks at each once more before it is lost', () => {
    setAside(buffer.old, { '1.1': packed(2, 3) });
    const { carrying, picture, run, state } = carryingOf(buffer, { 1: [3, 3, 3], 2: [3] }, { maxSegments: 2 });
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
    setAside(buffer.old, { '1.0': packed(1, 3) });
    const yields = () => {
      const pages = new SqlitePages(buffer.old, PAGE);
      const count = [...pages.pages()].length;
      pages.close();
      return count;
    };
    const file = new HandMadeBuffer(buffer.old);
    file.sql(`CREATE TABLE filling (id INTEGER PRIMARY KEY, value);
      WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) INSERT INTO filling SELECT i, zeroblob(900) FROM n`);
    file.close();
    expect([yields() > 2_000, yields() < 4_000]).toEqual([true, true]);
    refuse(buffer.old);
    const { carrying, picture } = carryingOf(buffer, { 1: [3] });
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
    setAside(
      buffer.old,
      Object.fromEntries([1, 2, 3, 4, 5].map((series) => [`1.${series - 1}`, packed(series, large)])),
    );
    refuse(buffer.old);
    const { carrying, carried } = carryingOf(buffer, { 1: [large, large, large, large, large] });
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
        buffer.old,
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
      if (isRefused) refuse(buffer.old);
      const { carrying, picture, run, spans, state } = carryingOf(buffer, { 1: [3, 3, 3, 3, 3, 3], 2: [3, 3], 3: [3] });
      state.loseEntry(spans[0]!, 4);
      spans[1]!.series[1] = 7;
      run();
      expect(picture()).toMatchObject({
        carried: ['1.0', '2.0'],
        lost: ['1.1', '1.2', '1.3', '1.5', '2.1'],
        isCarried: true,
      });
      carrying.close();
      expect(buffer.openFiles()).toBe(0);
    },
  );

  it('is read before its turn where it stands there and fits, and of no span that never did', () => {
    setAside(buffer.old, { '1.0': packed(1, 3), '1.1': packed(1, 3), '2.0': packed(3, 3), '3.0': packed(4, 3) });
    const { carrying, spans, picture } = carryingOf(buffer, { 1: [3, 3], 2: [3], 3: [3] });
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
    expect(buffer.openFiles()).toBe(0);
  });

  it('is of all files that were set aside, the last one first', () => {
    setAside(buffer.old, { '1.0': packed(1, 3), '1.1': packed(2, 3) });
    const other = join(dirname(buffer.path), 'older');
    setAside(other, { '1.1': packed(2, 3), '1.2': packed(3, 3) });
    const { carrying, picture, run } = carryingOf(buffer, { 1: [3, 3, 3] }, { names: ['older', 'old'] });
    run();
    expect(picture()).toMatchObject({ carried: ['1.0', '1.1', '1.2'], lost: [], isCarried: true });
    carrying.close();
  });
});
