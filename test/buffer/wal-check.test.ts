/** Whether a WAL has lost commits, told of each way in which it can end or break: by its index, and without one. */
import { copyFileSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../src/base/database.ts';
import { walLostCommits } from '../../src/buffer/recovery/wal-check.ts';
import { memoryFolder } from '../memory-folder.ts';

const PAGE = 1024;
const HEADER = 32;
const FRAME = 24 + PAGE;
const COMMITS = 4;

let folder: string;
let path: string;
/** As a killed process leaves it: four commits of several pages each, none of them in the file. */
let wal: Buffer;
let index: Buffer;
/** After each frame, how many frames are committed. */
let committed: number[];

beforeAll(() => {
  folder = memoryFolder('tagferry-wal-');
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
/** Of the index, which stands there twice. */
const both = (at: number) => [at, at + 48];

/** SQLite's checksums anew, by its own document: two sums over 32-bit words, in the order of bytes that the magic number names. */
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

describe('a WAL', () => {
  it('is of several frames a commit, and is sealed by SQLite as its document says', () => {
    expect(committed.length).toBeGreaterThan(COMMITS * 2);
    expect(new Set(committed).size).toBe(COMMITS + 1);
    expect(resealed(wal, false)).toEqual(wal);
  });

  it('that ends too early has lost commits by its index, and none without: a torn end is the last commit', () => {
    for (const frames of numbers(committed.length)) {
      for (const length of [frameAt(frames), Math.min(wal.length, frameAt(frames) + FRAME - 1)]) {
        const isAll = frames === committed.length - 1;
        expect([frames, lost(wal.subarray(0, length), index)]).toEqual([frames, !isAll]);
        rmSync(`${path}-shm`);
        expect([frames, lost(wal.subarray(0, length))]).toEqual([frames, false]);
      }
    }
  });

  it('that breaks has lost commits where more than the last one stands from there on, or by its index', () => {
    const commitsFrom = (frame: number) =>
      numbers(committed.length - 1).filter((at) => at >= frame && committed[at + 1]! > committed[at]!).length;
    for (const isBig of [false, true]) {
      const sound = resealed(wal, isBig);
      expect(lost(sound)).toBe(false);
      for (const frame of numbers(committed.length - 1)) {
        // Its page's number, its salt, either checksum, its page.
        for (const at of [0, 16, 20, 24, FRAME - 1]) {
          const broken = flipped(sound, frameAt(frame) + at);
          expect([frame, at, lost(broken)]).toEqual([frame, at, commitsFrom(frame) > 1]);
          expect([frame, at, lost(broken, index)]).toEqual([frame, at, true]);
          rmSync(`${path}-shm`);
        }
      }
    }
  });

  it('counts behind a break whole frames of its round alone', () => {
    const ends = numbers(committed.length - 1).filter((at) => committed[at + 1]! > committed[at]!);
    const [lastButOne, last] = ends.slice(-2) as [number, number];
    const broken = flipped(wal, frameAt(lastButOne) + 24);
    expect(lost(broken)).toBe(true);
    // The last is torn in its page: all that is there of it is its head.
    expect(lost(broken.subarray(0, frameAt(last) + FRAME - 1))).toBe(false);
    // Or of an earlier round.
    expect(lost(flipped(broken, frameAt(last) + 8))).toBe(false);
    expect(lost(flipped(broken, frameAt(last) + 15))).toBe(false);
  });

  it.each([
    ['of which its checksum says so', [24]],
    ['the other one', [28]],
    ['its salt', [16]],
    ['its magic number', [1]],
  ])('without a header that fits has lost all: %s', (_, places) => {
    const broken = flipped(wal, ...places);
    expect([lost(broken), lost(broken, index)]).toEqual([true, true]);
  });

  it('of one commit alone has lost it with its header', () => {
    const one = wal.subarray(0, frameAt(committed.findIndex((frames) => frames > 0)));
    expect([lost(one), lost(flipped(one, 24))]).toEqual([false, true]);
    expect(lost(flipped(one, 24).subarray(0, one.length - 1))).toBe(false);
  });

  it('of zeros, or shorter than its header, has none; but its index may know of some', () => {
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
    // The frames know their round themselves.
    expect([lost(zeroed), lost(zeroed, index)]).toEqual([true, true]);
  });

  it('has lost nothing where all of it stands in the file, says its index', () => {
    const { length } = committed;
    const moved = changed(index, (copy) => copy.writeUInt32LE(length - 1, 96));
    expect(lost(wal.subarray(0, frameAt(2)), moved)).toBe(false);
    const nearly = changed(index, (copy) => copy.writeUInt32LE(length - 2, 96));
    expect(lost(wal.subarray(0, frameAt(2)), nearly)).toBe(true);
  });

  it.each<[string, (index: Buffer) => Buffer, boolean]>([
    ['as long as it must be', (whole) => whole.subarray(0, 100), true],
    ['shorter', (whole) => whole.subarray(0, 99), false],
    ['not whole', (whole) => flipped(whole, 20), false],
    ['not whole in its other half', (whole) => flipped(whole, 95), false],
    ['not begun', (whole) => flipped(whole, ...both(12)), false],
    ['of another round', (whole) => flipped(whole, ...both(32)), false],
    ['of another round by its last byte', (whole) => flipped(whole, ...both(39)), false],
  ])('has a witness in an index that is %s', (_, change, isWitness) => {
    expect(lost(wal.subarray(0, frameAt(2)), change(index))).toBe(isWitness);
  });

  it('beside a file of less than a page is deleted unread, and of a page is not', () => {
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
