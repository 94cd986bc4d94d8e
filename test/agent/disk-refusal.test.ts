import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { Attempts, diskRefusal } from '../../src/agent/disk-refusal.ts';
import { StoreError } from '../../src/errors.ts';

const folder = mkdtempSync(join(tmpdir(), 'tagferry-refusal-'));
afterAll(() => rmSync(folder, { recursive: true }));

const coded = (code: string) => Object.assign(new Error(code), { code });
const wrapped = (code: string, cause: unknown) => new StoreError('in other words', { code, cause });

describe('what opening failed with', () => {
  it.each([
    ['EROFS', 'its file system is read-only'],
    ['EIO', 'its disk fails (EIO)'],
    ['SQLITE_IOERR_WRITE', 'its disk fails (SQLITE_IOERR_WRITE)'],
    // The folder of this test has room: it was no want of it.
    ['SQLITE_IOERR_SHMSIZE', 'its disk fails (SQLITE_IOERR_SHMSIZE)'],
    ['SQLITE_FULL', 'its disk is full'],
    ['ENOSPC', 'its disk is full'],
    ['EDQUOT', 'its disk is full'],
  ])('is waited out where the disk says %s, however deep that stands', (code, words) => {
    const message = `the state folder ${folder} cannot be written: ${words}`;
    const expected = { message, code: 'store.unavailable', retryable: true, hint: expect.any(String) as string };
    expect(diskRefusal(folder, coded(code))).toMatchObject(expected);
    const deep = wrapped('inbox.unavailable', wrapped('store.unwritable', coded(code)));
    expect(diskRefusal(folder, deep)).toMatchObject(expected);
  });

  it.each(['EACCES', 'EPERM', 'ENOTDIR', 'SQLITE_CANTOPEN', 'SQLITE_READONLY', 'SQLITE_CORRUPT', 'store.pragma'])(
    'is not waited out where it is %s: a person has to mend it',
    (code) => {
      expect(diskRefusal(folder, coded(code))).toBeUndefined();
      expect(diskRefusal(folder, wrapped('store.unwritable', coded(code)))).toBeUndefined();
    },
  );

  it('is not waited out where another daemon has the folder, or something else stands in the place of the lock', () => {
    expect(diskRefusal(folder, wrapped('store.locked', coded('EIO')))).toBeUndefined();
    expect(diskRefusal(folder, wrapped('store.lock_garbled', coded('EIO')))).toBeUndefined();
  });
});

describe('a folder that is held', () => {
  const locked = new StoreError('in use by process 7', { code: 'store.locked' });

  it('ends the first attempt, but is waited for by one that waits already, for two minutes', () => {
    let nowMs = 0;
    const attempts = new Attempts(() => nowMs);
    expect(attempts.failed(folder, locked)).toBe(locked);
    expect(attempts.failed(folder, coded('ENOSPC'))).toMatchObject({ code: 'store.unavailable' });
    nowMs = 1_000;
    expect(attempts.failed(folder, locked)).toMatchObject({
      code: 'store.unavailable',
      message: 'in use by process 7',
    });
    nowMs = 120_000;
    expect(attempts.failed(folder, locked)).toMatchObject({ code: 'store.unavailable' });
    nowMs = 121_000;
    expect(attempts.failed(folder, locked)).toBe(locked);
  });

  it('is given its two minutes anew when the disk refused in between', () => {
    let nowMs = 0;
    const attempts = new Attempts(() => nowMs);
    attempts.failed(folder, coded('ENOSPC'));
    attempts.failed(folder, locked);
    nowMs = 100_000;
    attempts.failed(folder, coded('ENOSPC'));
    nowMs = 130_000;
    expect(attempts.failed(folder, locked)).toMatchObject({ code: 'store.unavailable' });
  });
});
