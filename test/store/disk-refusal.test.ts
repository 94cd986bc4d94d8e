import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { StoreError } from '../../src/base/errors.ts';
import { diskRefusal, failureOfAttempt } from '../../src/store/disk-refusal.ts';
import { lockState } from '../../src/store/state-lock.ts';

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
    ['Unknown system error -117', 'its file system is damaged (EUCLEAN)'],
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
  it('is waited for where a verb has it, however long, and not where a daemon has', () => {
    const held = new StoreError('held by process 7', { code: 'store.held', hint: 'wait' });
    expect(failureOfAttempt(folder, held)).toMatchObject({
      code: 'store.unavailable',
      message: 'held by process 7',
      hint: 'wait',
    });
    const locked = new StoreError('in use by process 7', { code: 'store.locked' });
    expect(failureOfAttempt(folder, locked)).toBe(locked);
    expect(failureOfAttempt(folder, coded('ENOSPC'))).toMatchObject({ code: 'store.unavailable' });
  });

  it('is known by who holds it: a verb, or a daemon that has both locks', () => {
    const verb = lockState(folder, 'verb');
    expect(() => lockState(folder, 'daemon')).toThrow(expect.objectContaining({ code: 'store.held' }));
    expect(() => lockState(folder, 'verb')).toThrow(expect.objectContaining({ code: 'store.locked' }));
    verb.release();
    const daemon = lockState(folder, 'daemon');
    expect(() => lockState(folder, 'daemon')).toThrow(expect.objectContaining({ code: 'store.locked' }));
    expect(() => lockState(folder, 'verb')).toThrow(expect.objectContaining({ code: 'store.locked' }));
    daemon.release();
    lockState(folder, 'verb').release();
  });
});
