/** Detection of lost commits for every kind of truncation and damage, with and without the WAL index. */
import { copyFileSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../../src/base/database.ts';
import { walLostCommits } from '../../../src/buffer/recovery/wal-check.ts';
import { newFolder } from '../../fresh-folder.ts';

const PAGE = 1024;
const HEADER = 32;
const FRAME = 24 + PAGE;
const COMMITS = 4;

let folder: string;
let path: string;
/** A WAL left by a killed process: four commits of several pages, not checkpointed. */
let wal: Buffer;
let index: Buffer;
/** Number of committed frames after each frame. */
let committed: number[];

beforeAll(() => {
  folder = newFolder('tagferry-wal-');
  path = join(folder, 'copy.db');
  const first = join(folder, 'first.db');
  const database = openDatabase(first);
  database.exec('CREATE TABLE t (id INTEGER PRIMARY KEY, value)');
  database.pragma('wal_checkpoint(TRUNCATE)');
  for (let id = 1; id <= COMMITS; id++) database.prepare('INSERT INTO t VALUES (?, zeroblob(2500))').run(id);
  copyFileSync(first, path);
  wal = readFileSync(`${first}-wal`);
  index = readFileSync(`${first}-shm`);
  database.close();
  committed = [0];
  for (let at = HEADER, frames = 1; at + FRAME <= wal.length; at += FRAME, frames++)
    committed.push(wal.readUInt32BE(at + 4) > 0 ? frames : committed.at(-1)!);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));
beforeEach(() => {
  for (const end of ['-wal', '-shm']) rmSync(`${path}${end}`, { force: true });
});

function lost(log: Buffer, shm?: Buffer): boolean {
  writeFileSync(`${path}-wal`, log);
  if (shm) writeFileSync(`${path}-shm`, shm);
  return walLostCommits(path, PAGE);
}

const changed = (bytes: Buffer, change: (copy: Buffer) => void) => {
  const copy = Buffer.from(bytes);
  change(copy);
  return copy;
};
const flipped = (bytes: Buffer, ...places: number[]) =>
  changed(bytes, (copy) => {
    for (const at of places) copy[at]! ^= 1;
  });
const frameAt = (number: number) => HEADER + number * FRAME;
const numbers = (end: number) => Array.from({ length: end }, (_, number) => number);

/** Recomputes SQLite's checksums as documented: two sums over 32-bit words, in the byte order of the magic number. */
function resealed(log: Buffer, isBig: boolean): Buffer {
  const copy = Buffer.from(log);
  copy.writeUInt32BE(isBig ? 0x377f0683 : 0x377f0682, 0);
  const word = (at: number) => (isBig ? copy.readUInt32BE(at) : copy.readUInt32LE(at));
  let [one, two] = [0, 0];
  const add = (from: number, to: number) => {
    for (let at = from; at < to; at += 8) {
      one = (one + word(at) + two) >>> 0;
      two = (two + word(at + 4) + one) >>> 0;
    }
  };
  const put = (at: number) => copy.writeUInt32BE(two, copy.writeUInt32BE(one, at));
  add(0, 24);
  put(24);
  for (let at = HEADER; at + FRAME <= copy.length; at += FRAME) {
    add(at, at + 8);
    add(at + 24, at + FRAME);
    put(at + 16);
  }
  return copy;
}

describe('WAL check', () => {
  it('is tested with several frames per commit and the checksums documented by SQLite', () => {
    expect(committed.length).toBeGreaterThan(COMMITS * 2);
    expect(new Set(committed).size).toBe(COMMITS + 1);
    expect(resealed(wal, false)).toEqual(wal);
  });

  it('reports lost commits in a truncated WAL only if the index shows them', () => {
    for (const frames of numbers(committed.length)) {
      for (const length of [frameAt(frames), Math.min(wal.length, frameAt(frames) + FRAME - 1)]) {
        const isAll = frames === committed.length - 1;
        expect([frames, lost(wal.subarray(0, length), index)]).toEqual([frames, !isAll]);
        rmSync(`${path}-shm`);
        expect([frames, lost(wal.subarray(0, length))]).toEqual([frames, false]);
      }
    }
  });

  it('reports lost commits in a corrupt WAL if other commits follow or the index shows them', () => {
    const commitsFrom = (frame: number) =>
      numbers(committed.length - 1).filter((at) => at >= frame && committed[at + 1]! > committed[at]!).length;
    for (const isBig of [false, true]) {
      const sound = resealed(wal, isBig);
      expect(lost(sound)).toBe(false);
      for (const frame of numbers(committed.length - 1)) {
        // Page number, salt, both checksums, page.
        for (const at of [0, 16, 20, 24, FRAME - 1]) {
          const broken = flipped(sound, frameAt(frame) + at);
          expect([frame, at, lost(broken)]).toEqual([frame, at, commitsFrom(frame) > 1]);
          expect([frame, at, lost(broken, index)]).toEqual([frame, at, true]);
          rmSync(`${path}-shm`);
        }
      }
    }
  });

  it.each([
    ['first checksum', [24]],
    ['second checksum', [28]],
    ['salt', [16]],
    ['magic number', [1]],
  ])('reports a WAL with a corrupt header as lost: %s', (_, places) => {
    const broken = flipped(wal, ...places);
    expect([lost(broken), lost(broken, index)]).toEqual([true, true]);
  });

  it('reports the loss of a single commit if the header is lost', () => {
    const one = wal.subarray(0, frameAt(committed.findIndex((frames) => frames > 0)));
    expect([lost(one), lost(flipped(one, 24))]).toEqual([false, true]);
    expect(lost(flipped(one, 24).subarray(0, one.length - 1))).toBe(false);
  });

  it('reports lost commits in an empty WAL only if the index shows them', () => {
    const zeroed = Buffer.concat([Buffer.alloc(HEADER), wal.subarray(HEADER)]);
    for (const log of [
      Buffer.alloc(0),
      Buffer.alloc(8),
      Buffer.alloc(HEADER),
      wal.subarray(0, HEADER),
      Buffer.alloc(wal.length),
    ]) {
      expect([log.length, lost(log)]).toEqual([log.length, false]);
      expect([log.length, lost(log, index)]).toEqual([log.length, true]);
      rmSync(`${path}-shm`);
    }
    // The frames contain the salt too.
    expect([lost(zeroed), lost(zeroed, index)]).toEqual([true, true]);
  });

  it('reports no loss if everything is checkpointed', () => {
    const { length } = committed;
    const moved = changed(index, (copy) => copy.writeUInt32LE(length - 1, 96));
    expect(lost(wal.subarray(0, frameAt(2)), moved)).toBe(false);
    const nearly = changed(index, (copy) => copy.writeUInt32LE(length - 2, 96));
    expect(lost(wal.subarray(0, frameAt(2)), nearly)).toBe(true);
  });

  it('reports a WAL next to an empty database as lost', () => {
    const whole = readFileSync(path);
    try {
      for (const [bytes, isLost] of [
        [PAGE, false],
        [PAGE - 1, true],
        [0, true],
      ] as const) {
        truncateSync(path, bytes);
        expect([bytes, lost(wal), lost(wal.subarray(0, HEADER + 1)), lost(wal.subarray(0, HEADER))]).toEqual([
          bytes,
          isLost,
          isLost,
          false,
        ]);
      }
      rmSync(path);
      expect(lost(wal)).toBe(true);
    } finally {
      writeFileSync(path, whole);
    }
  });
});
