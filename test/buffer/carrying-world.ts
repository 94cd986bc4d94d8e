import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { packSegment } from '../../src/buffer/format/segment.ts';
import { Pending } from '../../src/buffer/pending.ts';
import { Carrying } from '../../src/buffer/recovery/carrying.ts';
import { newSpan, type Span, segmentId } from '../../src/buffer/span.ts';
import { StoreState } from '../../src/buffer/state.ts';
import { originSum } from '../../src/buffer/tables.ts';
import { openPaths } from '../open-paths.ts';
import { HandMadeBuffer, seriesOf } from './hand-made-buffer.ts';

/** Spans 1 and 2 stood in the old file; 3 and what follows never did. */
const BELOW = 3;

/** A buffer, and beside it the file that was set aside. */
export class CarryingBuffer extends HandMadeBuffer {
  get old(): string {
    return join(dirname(this.path), 'old');
  }

  /** How often that file is open. */
  openFiles(): number {
    return openPaths().filter((one) => one === this.old).length;
  }
}

/** So many values that are no decimals: eight bytes each. */
export function packed(series: number, count: number): Uint8Array {
  const numbers = Float64Array.from({ length: count }, (_, i) => Math.sqrt(i + 2));
  return packSegment(
    { count, timeMs: new Float64Array(count), value: numbers, flags: new Uint8Array(count) },
    0,
    count,
    { series, place: 1 },
  );
}

type Segments = Record<string, Uint8Array | string>;
/** Segments of an old file, by span and entry. */
export function setAside(path: string, segments: Segments, sql = ''): void {
  const file = new HandMadeBuffer(path);
  const add = file.database.prepare('INSERT INTO segment VALUES (?, ?)');
  for (const [at, bytes] of Object.entries(segments)) {
    const [span, entry] = at.split('.').map(Number);
    add.run(segmentId(span!, entry!), bytes);
  }
  file.sql(sql).close();
}

/** Each entry of the spans is of a series of its own, 1 and so on, with so many values. */
export function carryingOf(
  buffer: HandMadeBuffer,
  spans: Record<number, number[]>,
  { maxSegments, held = [], names = ['old'] }: { maxSegments?: number; held?: number[]; names?: string[] } = {},
) {
  for (const name of names) buffer.statements.addOrigin.run(name, BELOW, originSum(name, BELOW));
  const state = new StoreState();
  let series = 0;
  const all: Span[] = [];
  for (const [id, counts] of Object.entries(spans)) {
    const entries = counts.map((count) => ({ series: ++series, count, lastTimeMs: 0, leadSeconds: 0 }));
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
  const carrying = Carrying.resume(buffer.path, { database, statements, state, pending })!.begin(lose, maxSegments);
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

/** Its header is no longer one of SQLite's; every page of it stands. */
export const refuse = (path: string) => writeFileSync(path, 'not of SQLite at all', { flag: 'r+' });
