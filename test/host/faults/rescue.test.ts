import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../../src/base/database.ts';
import { StoreError } from '../../../src/base/errors.ts';
import { replaceDatabase } from '../../../src/base/replace-database.ts';
import { Rescue } from '../../../src/store/rescue.ts';
import { ManualClock } from '../../unit/doubles/manual-clock.ts';

let folder: string;
let path: string;
let clock: ManualClock;
let database: Database | undefined;
let rescue: Rescue;
let tries: { atMs: number; from: Buffer }[];
let fault: Error | undefined;
/** Makes the store report corruption. */
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
          // Progress of an attempt until the disk rejects a write.
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

describe('corrupt store', () => {
  it('is replaced immediately, and the call succeeds', () => {
    isCorrupt = true;
    expect(call()).toBe('answered');
    expect(tries).toHaveLength(1);
    expect(aside()).toHaveLength(1);
  });

  it('is not assumed as the cause of other errors', () => {
    expect(() =>
      rescue.perform(() => {
        throw Object.assign(new Error('full'), { code: 'SQLITE_FULL' });
      }),
    ).toThrow('full');
    expect(tries).toEqual([]);
  });

  it('causes calls to be rejected until a retry replaces it, with growing delays', async () => {
    isCorrupt = true;
    fault = Object.assign(new Error('unable to open database file'), { code: 'SQLITE_CANTOPEN' });
    const answers = new Set<string>();
    for (let second = 0; second < 6 * 3_600; second++) {
      answers.add(call());
      await clock.advance(1_000);
    }
    expect([...answers]).toEqual(['store.corrupt']);
    // Immediately and soon afterwards, then every ten minutes: a failing disk is not polled in a loop.
    expect(tries.length).toBeGreaterThan(30);
    expect(tries.length).toBeLessThan(50);
    const gaps = tries.slice(1).map(({ atMs }, i) => atMs - tries[i]!.atMs);
    expect(gaps[0]).toBeGreaterThanOrEqual(1_000);
    expect(Math.max(...gaps)).toBeLessThanOrEqual(601_000);

    // No row of the first file is lost, and every attempt reads from it.
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

  it('prompts the operator to check the disk after repeated failures', async () => {
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
    expect(last.message).toMatch(/^buffer\.db is corrupt, \d attempts .*\(EROFS: .*\).* in \d+ s$/);
    expect(last.hint).toContain('dmesg');
  });
});
