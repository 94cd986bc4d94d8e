import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { StoreError } from '../../../src/base/errors.ts';
import { diskRefusal, failureOfAttempt } from '../../../src/store/disk-refusal.ts';
import { lockState } from '../../../src/store/state-lock.ts';

const folder = mkdtempSync(join(tmpdir(), 'tagferry-refusal-'));
afterAll(() => rmSync(folder, { recursive: true }));

const coded = (code: string) => Object.assign(new Error(code), { code });
const wrapped = (code: string, cause: unknown) => new StoreError('in other words', { code, cause });

describe('failure to open the stores', () => {
  it.each([
    ['EROFS', 'its file system is read-only'],
    ['EIO', 'its disk failed (EIO)'],
    ['SQLITE_IOERR_WRITE', 'its disk failed (SQLITE_IOERR_WRITE)'],
    // The folder of this test has free space.
    ['SQLITE_IOERR_SHMSIZE', 'its disk failed (SQLITE_IOERR_SHMSIZE)'],
    ['SQLITE_FULL', 'its disk is full'],
    ['ENOSPC', 'its disk is full'],
    ['EDQUOT', 'its disk is full'],
    ['Unknown system error -117', 'its file system is damaged (EUCLEAN)'],
  ])('is retried after %s, even if it is a nested cause', (code, words) => {
    const message = `cannot write to the state folder ${folder}: ${words}`;
    const expected = { message, code: 'store.unavailable', retryable: true, hint: expect.any(String) as string };
    expect(diskRefusal(folder, coded(code))).toMatchObject(expected);
    const deep = wrapped('inbox.unavailable', wrapped('store.unwritable', coded(code)));
    expect(diskRefusal(folder, deep)).toMatchObject(expected);
  });

  it.each(['EACCES', 'EPERM', 'ENOTDIR', 'SQLITE_CANTOPEN', 'SQLITE_READONLY', 'SQLITE_CORRUPT', 'store.pragma'])(
    'is not retried after %s, which requires operator action',
    (code) => {
      expect(diskRefusal(folder, coded(code))).toBeUndefined();
      expect(diskRefusal(folder, wrapped('store.unwritable', coded(code)))).toBeUndefined();
    },
  );

  it('is not retried if another agent is using the folder or the lock file is corrupt', () => {
    expect(diskRefusal(folder, wrapped('store.locked', coded('EIO')))).toBeUndefined();
    expect(diskRefusal(folder, wrapped('store.lock_garbled', coded('EIO')))).toBeUndefined();
  });
});

describe('startup with a locked state folder', () => {
  it('waits if the lock is held by a command, but not if it is held by an agent', () => {
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

  it('reports whether a command or an agent holds the lock', () => {
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
