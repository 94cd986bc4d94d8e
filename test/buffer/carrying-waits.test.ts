/** When carrying waits, for what and how long, who waits for it, and how it ends. */
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Pending } from '../../src/buffer/pending.ts';
import { Carrying } from '../../src/buffer/recovery/carrying.ts';
import { OriginFile } from '../../src/buffer/recovery/origin-file.ts';
import { type Span, segmentId } from '../../src/buffer/span.ts';
import { StoreState } from '../../src/buffer/state.ts';
import { originSum } from '../../src/buffer/tables.ts';
import { CarryingBuffer, carryingOf, packed, refuse, setAside } from './carrying-world.ts';
import { freshBuffer } from './hand-made-buffer.ts';

const buffer = freshBuffer('tagferry-carrying-waits-', new CarryingBuffer());

describe('a segment that somebody asked for in vain', () => {
  it('is under way, once, until a page has it; then it may be had', () => {
    setAside(buffer.old, { '1.0': packed(1, 3), '1.1': packed(2, 5) });
    refuse(buffer.old);
    const { carrying, picture, spans } = carryingOf(buffer, { 1: [3, 5] });
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
    setAside(buffer.old, { '1.0': packed(1, 3), '1.1': packed(2, 5) });
    refuse(buffer.old);
    const { carrying, picture, spans, run } = carryingOf(buffer, { 1: [3, 5] }, { held: [2] });
    expect([carrying.awaits(spans[0]!, 1), picture().backlog]).toEqual([true, 3]);
    run();
    expect(picture()).toMatchObject({ backlog: 3, underWay: [], isCarried: true });
    carrying.close();
  });

  it('is lost with the rest where it stands nowhere, and then no more is awaited', () => {
    setAside(buffer.old, {});
    const { carrying, picture, spans, run } = carryingOf(buffer, { 1: [3, 5] }, { maxSegments: 1 });
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
    setAside(buffer.old, {});
    const { carrying, picture, spans, run } = carryingOf(buffer, { 1: [3, 5] });
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
    setAside(buffer.old, {});
    const { carrying, picture, run } = carryingOf(buffer, { 1: [3, 3] }, { maxSegments: 1 });
    while (picture().lost.length === 0) carrying.step(0);
    setAside(buffer.old, { '1.1': packed(2, 3) });
    run();
    expect(picture()).toMatchObject({ carried: ['1.1'], lost: ['1.0'], isCarried: true });
    carrying.close();
  });
});

describe('carrying', () => {
  it('waits while spans are left on disk for want of memory', () => {
    setAside(buffer.old, { '1.0': packed(1, 3) });
    const { carrying, state, carried } = carryingOf(buffer, { 1: [3] });
    state.notLoaded = 1;
    carrying.step(0);
    expect([carrying.isDue(0), carried()]).toEqual([false, []]);
    state.notLoaded = 0;
    carrying.step(0);
    expect(carried()).toEqual(['1.0']);
    carrying.close();
  });

  it('waits ten seconds where the disk is full, and takes all of that step again', () => {
    setAside(buffer.old, Object.fromEntries([1, 2, 3].map((series) => [`1.${series - 1}`, packed(series, 200)])));
    const { carrying, carried, run, picture } = carryingOf(buffer, { 1: [200, 200, 200] });
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
    setAside(buffer.old, { '1.0': packed(1, 3), '1.1': packed(2, 3) });
    const { carrying, carried, run } = carryingOf(buffer, { 1: [3, 3] });
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
    mkdirSync(buffer.old);
    const { carrying, picture } = carryingOf(buffer, { 1: [3] }, { names: ['old', 'gone'] });
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
    const real = join(dirname(buffer.path), 'real');
    setAside(real, { '1.0': packed(1, 3) });
    mkdirSync(buffer.old);
    const { carrying, picture, run } = carryingOf(buffer, { 1: [3] });
    run(0);
    rmSync(buffer.old, { recursive: true });
    renameSync(real, buffer.old);
    expect(picture().carried).toEqual([]);
    run(10_000);
    expect(picture()).toMatchObject({ carried: ['1.0'], lost: [], isCarried: true });
    carrying.close();
  });

  it('is not begun where nothing was set aside, or what names it does not read', () => {
    const parts = { ...buffer, state: new StoreState(), pending: new Pending() };
    const { database, statements } = buffer;
    const resume = () => Carrying.resume(buffer.path, { ...parts, database, statements });
    expect(resume()).toBeUndefined();
    statements.addOrigin.run('old', 3, 1);
    expect(resume()).toBeUndefined();
    for (const below of [4, 9, 6]) statements.addOrigin.run('old', below, originSum('old', below));
    expect(resume()?.below).toBe(9);
  });
});

describe('a file that was set aside', () => {
  it('may come back where it cannot be looked at, and not where it is gone or reads', () => {
    writeFileSync(buffer.old, 'something');
    // What is no folder holds no file: it is not known to be gone.
    expect([new OriginFile(join(buffer.old, 'in it')).mayComeBack, new OriginFile(buffer.old).mayComeBack]).toEqual([
      true,
      false,
    ]);
  });

  it('is tried again after it was closed, and gives its segments whichever way is asked', () => {
    setAside(buffer.old, { '1.0': packed(1, 3) });
    renameSync(buffer.old, `${buffer.old}.sound`);
    writeFileSync(buffer.old, 'not of SQLite at all');
    const file = new OriginFile(buffer.old);
    const asked = () => [
      file.get(segmentId(1, 0))?.length,
      [...file.between(0, segmentId(9, 0))].length,
      buffer.openFiles(),
    ];
    expect([asked(), asked()]).toEqual([
      [undefined, 0, 0],
      [undefined, 0, 0],
    ]);
    renameSync(`${buffer.old}.sound`, buffer.old);
    expect(asked()).toEqual([undefined, 0, 0]);
    file.close();
    expect(asked()).toEqual([packed(1, 3).length, 1, 1]);
    expect([
      [...file.pages()].flat().filter(({ fields }) => fields[1] instanceof Uint8Array).length,
      buffer.openFiles(),
    ]).toEqual([1, 2]);
    file.close();
    expect(buffer.openFiles()).toBe(0);
  });
});
