import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../src/base/database.ts';
import { StoreError } from '../../src/base/errors.ts';
import { replaceDatabase } from '../../src/base/replace-database.ts';
import { gapAfter, Rescue } from '../../src/store/rescue.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

let folder: string;
let path: string;
let clock: ManualClock;
let database: Database | undefined;
let rescue: Rescue;
let tries: { atMs: number; from: Buffer }[];
let fault: Error | undefined;
/** The store says that it is corrupt. */
let isCorrupt: boolean;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-rescue-'));
  path = join(folder, 'buffer.db');
  clock = new ManualClock();
  tries = [];
  fault = undefined;
  isCorrupt = false;
  database = openDatabase(path);
  database.exec("CREATE TABLE word (text TEXT); INSERT INTO word VALUES ('first')");
  rescue = new Rescue(
    {
      path,
      replace() {
        database?.close();
        tries.push({ atMs: clock.monotonicMs(), from: readFileSync(path) });
        replaceDatabase(path, clock.wallMs(), (into) => {
          // As far as a try comes before the disk says no.
          into.exec('CREATE TABLE part (of INTEGER)');
          if (fault) throw fault;
        });
      },
      open() {
        database = openDatabase(path);
        isCorrupt = false;
      },
    },
    clock,
  );
});
afterEach(() => {
  database?.close();
  rmSync(folder, { recursive: true, force: true });
});

const corrupt = () => Object.assign(new Error('database disk image is malformed'), { code: 'SQLITE_CORRUPT' });

function call(): string {
  try {
    return rescue.perform(() => {
      if (isCorrupt) throw corrupt();
      return 'answered';
    });
  } catch (error) {
    return error instanceof StoreError ? error.code : String(error);
  }
}

const aside = () => readdirSync(folder).filter((name) => /\.corrupt-\d+T\d+Z$/.test(name));

describe('a store that is found corrupt', () => {
  it('is rescued at once, and the call that found it is answered', () => {
    isCorrupt = true;
    expect(call()).toBe('answered');
    expect(tries).toHaveLength(1);
    expect(aside()).toHaveLength(1);
  });

  it('lets errors of another kind pass', () => {
    expect(() =>
      rescue.perform(() => {
        throw Object.assign(new Error('full'), { code: 'SQLITE_FULL' });
      }),
    ).toThrow('full');
    expect(tries).toEqual([]);
  });

  it('refuses calls while no other can be begun, tries at a slower and slower pace, and goes on when it works', async () => {
    isCorrupt = true;
    fault = Object.assign(new Error('unable to open database file'), { code: 'SQLITE_CANTOPEN' });
    const answers = new Set<string>();
    for (let second = 0; second < 6 * 3_600; second++) {
      answers.add(call());
      await clock.advance(1_000);
    }
    expect([...answers]).toEqual(['store.corrupt']);
    // At once and soon after, then every ten minutes: a disk that refuses is not asked in a loop.
    expect(tries.length).toBeGreaterThan(30);
    expect(tries.length).toBeLessThan(50);
    const gaps = tries.slice(1).map(({ atMs }, i) => atMs - tries[i]!.atMs);
    expect(gaps[0]).toBeGreaterThanOrEqual(1_000);
    expect(Math.max(...gaps)).toBeLessThanOrEqual(601_000);

    // Nothing of the first file is gone, and it is the source of every try.
    expect(tries.every(({ from }) => from.equals(tries[0]!.from))).toBe(true);
    expect(aside()).toEqual([]);
    expect(readdirSync(folder).filter((name) => name.includes('.new'))).toEqual([]);
    expect(readFileSync(path).includes('first')).toBe(true);

    fault = undefined;
    await clock.advance(600_000);
    expect(call()).toBe('answered');
    expect(aside()).toHaveLength(1);
    expect(readFileSync(join(folder, aside()[0]!)).equals(tries[0]!.from)).toBe(true);
  });

  it('says what a person must do once rescues do not help', async () => {
    const refusals: StoreError[] = [];
    isCorrupt = true;
    fault = Object.assign(new Error('read-only file system'), { code: 'EROFS' });
    for (let i = 0; i < 400; i++) {
      try {
        rescue.perform(() => {
          throw corrupt();
        });
      } catch (error) {
        refusals.push(error as StoreError);
      }
      await clock.advance(1_000);
    }
    const last = refusals.at(-1)!;
    expect(last).toMatchObject({ code: 'store.corrupt', retryable: true });
    expect(last.message).toMatch(/^buffer\.db is corrupt, \d rescues did not help \(EROFS: .*\); the next in \d+ s$/);
    expect(last.hint).toMatch(/dmesg.*sound disk.*Nothing is deleted.*buffer\.db\.corrupt-/);
  });

  it('that is corrupt again and again is set aside each time, ten minutes apart in the end, and nothing is deleted', async () => {
    for (let second = 0; second < 4 * 3_600; second++) {
      isCorrupt = true;
      call();
      await clock.advance(1_000);
    }
    expect(tries.length).toBeGreaterThan(20);
    expect(tries.length).toBeLessThan(35);
    expect(aside()).toHaveLength(tries.length);
    // A calm of an hour, and the next is a first one again.
    isCorrupt = false;
    expect(['answered', 'store.corrupt']).toContain(call());
    await clock.advance(2 * 3_600_000);
    expect(call()).toBe('answered');
    await clock.advance(2 * 3_600_000);
    const before = tries.length;
    for (let i = 0; i < 2; i++) {
      isCorrupt = true;
      expect(call()).toBe('answered');
      await clock.advance(2_000);
    }
    expect(tries.length).toBe(before + 2);
  });
});

describe('the pace of rescues', () => {
  it('begins at once, grows fourfold, and ends at ten minutes', () => {
    expect([0, 1, 2, 3, 4, 5, 6, 60].map(gapAfter)).toEqual([
      0, 1_000, 4_000, 16_000, 64_000, 256_000, 600_000, 600_000,
    ]);
  });
});
