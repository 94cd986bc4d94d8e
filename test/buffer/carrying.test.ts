/** How the segments of a file that was set aside come into the new database: a step, what does not read, and when that is known. */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openDatabase } from '../../src/base/database.ts';
import { packSegment } from '../../src/buffer/format/segment.ts';
import { Pending } from '../../src/buffer/pending.ts';
import { Carrying } from '../../src/buffer/recovery/carrying.ts';
import { OriginFile } from '../../src/buffer/recovery/origin-file.ts';
import { newSpan, type Span, segmentId } from '../../src/buffer/span.ts';
import { StoreState } from '../../src/buffer/state.ts';
import { originSum, prepareTables } from '../../src/buffer/tables.ts';
import { CarryingBuffer, refuse } from './carrying-world.ts';
import { freshBuffer } from './hand-made-buffer.ts';

const SPAN = 1;

const buffer = freshBuffer('tagferry-carrying-', new CarryingBuffer());

/** Three values of a series, as they stand in the span that is carried. */
function packed(series: number): Uint8Array {
  const values = { timeMs: Float64Array.of(1, 2, 3), value: Float64Array.of(4, 5, 6), flags: new Uint8Array(3) };
  return packSegment({ count: 3, ...values }, 0, 3, { series, place: 1 });
}

/** The file that was set aside, with the segments of some entries. */
function setAside(entries: readonly number[]): void {
  const origin = openDatabase(buffer.old);
  prepareTables(origin);
  const add = origin.prepare('INSERT INTO segment VALUES (?, ?)');
  for (const entry of entries) add.run(segmentId(SPAN, entry), packed(entry + 1));
  origin.close();
}

/** A store of one span of three series, which the new database names and whose segments stand in the old file. */
function carryingOf(maxSegments?: number) {
  const { database, statements } = buffer;
  statements.addOrigin.run(basename(buffer.old), SPAN + 1, originSum(basename(buffer.old), SPAN + 1));
  const state = new StoreState();
  const ids = [1, 2, 3];
  for (const id of ids)
    state.addSeries({ id, asset: 1, key: `k${id}`, group: undefined, unit: undefined, instrumentation: undefined });
  const entries = ids.map((series) => ({ series, count: 3, lastTimeMs: 3, leadSeconds: 0 }));
  const span = newSpan({ id: SPAN, place: 1, run: 1, acceptedMs: 0 }, entries);
  state.addSpan(span);
  const pending = new Pending();
  const lost: number[] = [];
  const lose = (of: Span, entry: number) => {
    lost.push(entry);
    state.loseEntry(of, entry);
  };
  const parts = { database, statements, state, pending };
  const carrying = Carrying.resume(buffer.path, parts)!.begin(lose, maxSegments);
  const carried = () =>
    database
      .prepare<[], number>('SELECT id FROM segment ORDER BY id')
      .pluck()
      .all()
      .map((id) => id - segmentId(SPAN, 0));
  return { carrying, span, pending, lost, carried };
}

describe('segments of a file that was set aside', () => {
  it('come so many a step as it may take', () => {
    setAside([0, 1, 2]);
    const { carrying, carried, pending } = carryingOf(1);
    for (const expected of [[0], [0, 1], [0, 1, 2]]) {
      expect(carrying.isDue(0)).toBe(true);
      carrying.step(0);
      expect(carried()).toEqual(expected);
    }
    carrying.step(0);
    expect([carrying.isDue(0), pending.isCarried]).toEqual([false, true]);
    carrying.close();
  });

  it('come though one before them stands nowhere, and that one is told to be lost, once', () => {
    setAside([1, 2]);
    const { carrying, carried, lost, pending } = carryingOf(1);
    let steps = 0;
    while (carrying.isDue(0) && steps++ < 50) carrying.step(0);
    expect([carried(), lost, pending.isCarried]).toEqual([[1, 2], [0], true]);
    carrying.close();
  });

  it('that somebody waits for may be had as soon as a page has them, not once all is over', () => {
    setAside([0, 1, 2]);
    refuse(buffer.old);
    const { carrying, carried, span, pending, lost } = carryingOf();
    expect(carrying.read(span, 1)).toBeUndefined();
    expect(carrying.awaits(span, 1)).toBe(true);
    expect(span.underWay.get(1)).toBe(1);
    let steps = 0;
    while (carried().length < 3 && steps++ < 50) carrying.step(0);
    expect([carried(), span.underWay.size, pending.isCarried]).toEqual([[0, 1, 2], 0, false]);
    while (carrying.isDue(0) && steps++ < 50) carrying.step(0);
    expect([lost, pending.isCarried]).toEqual([[], true]);
    carrying.close();
  });
});

describe('a file that was set aside', () => {
  it('gives its segments of a range, in order, and none where it is none of SQLite’s, or is not there', () => {
    setAside([0, 1, 2]);
    const of = (first: number, last: number) => {
      const file = new OriginFile(buffer.old);
      const found: number[] = [];
      for (const { id } of file.between(segmentId(SPAN, first), segmentId(SPAN, last))) found.push(id);
      file.close();
      return found;
    };
    expect(of(0, 1)).toEqual([segmentId(SPAN, 0), segmentId(SPAN, 1)]);
    expect(of(5, 9)).toEqual([]);
    refuse(buffer.old);
    expect(of(0, 2)).toEqual([]);
    rmSync(buffer.old);
    expect(of(0, 2)).toEqual([]);
  });

  it('is not kept open where SQLite refuses it, and is not tried again for each segment', () => {
    setAside([0]);
    const file = new OriginFile(buffer.old);
    expect(Buffer.from(file.get(segmentId(SPAN, 0))!)).toEqual(Buffer.from(packed(1)));
    expect(buffer.openFiles()).toBe(1);
    file.close();
    expect(buffer.openFiles()).toBe(0);
    refuse(buffer.old);
    expect([file.get(segmentId(SPAN, 0)), buffer.openFiles()]).toEqual([undefined, 0]);
    rmSync(buffer.old);
    setAside([0]);
    expect(file.get(segmentId(SPAN, 0))).toBeUndefined();
    file.close();
  });

  it('may come back where it is there and nothing of it reads', () => {
    // Of a folder no byte reads, whoever asks.
    mkdirSync(buffer.old);
    writeFileSync(join(buffer.old, 'something'), '');
    expect(new OriginFile(buffer.old).mayComeBack).toBe(true);
  });
});
