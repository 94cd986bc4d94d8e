import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../../src/base/database.ts';
import { openOwnFile } from '../../../src/base/own-file.ts';
import { lockState } from '../../../src/store/state-lock.ts';

let folder: string;
let state: string;
const mode = (path: string) => (statSync(path).mode & 0o7777).toString(8);

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'state-folder-'));
  state = join(folder, 'state');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

describe('state folder', () => {
  it.each([0o777, 0o775, 0o722])('is restricted to its owner and reported if its mode is %i', (before) => {
    mkdirSync(state);
    chmodSync(state, before);
    const lock = lockState(state, 'daemon');
    lock.release();
    expect([mode(state), lock.narrowedFrom]).toEqual(['700', `0${before.toString(8)}`]);
  });

  it('is left unchanged if only its owner can write to it', () => {
    mkdirSync(state);
    chmodSync(state, 0o750);
    const lock = lockState(state, 'daemon');
    lock.release();
    expect([mode(state), lock.narrowedFrom]).toEqual(['750', undefined]);
  });

  it('is rejected and left unchanged if intentionally shared', () => {
    mkdirSync(state);
    chmodSync(state, 0o1777);
    expect(() => lockState(state, 'daemon')).toThrow(expect.objectContaining({ code: 'store.folder_open' }));
    expect(mode(state)).toBe('1777');
  });

  it.each(['tagferry.pid', 'tagferry.lock', 'buffer.db', 'buffer.db-wal', 'inbox.db', 'session.json', 'any.name'])(
    'is rejected without changing the link target if %s is a planted symlink',
    (name) => {
      mkdirSync(state);
      const target = join(folder, 'precious');
      writeFileSync(target, 'of another');
      symlinkSync(target, join(state, name));
      expect(() => lockState(state, 'daemon')).toThrow(expect.objectContaining({ code: 'store.folder_link' }));
      expect(readFileSync(target, 'utf8')).toBe('of another');
    },
  );

  it('can be reached through a symlink', () => {
    mkdirSync(state);
    symlinkSync(state, join(folder, 'link'));
    lockState(join(folder, 'link'), 'daemon').release();
    expect(readFileSync(join(state, 'tagferry.pid'), 'utf8')).toBe(`${process.pid}\n`);
  });

  it('does not open files through a symlink created later', () => {
    mkdirSync(state);
    const target = join(folder, 'precious');
    writeFileSync(target, 'of another');
    const link = join(state, 'buffer.db');
    symlinkSync(target, link);
    expect(() => openDatabase(link)).toThrow(expect.objectContaining({ code: 'store.folder_link' }));
    for (const how of ['append', 'truncate'] as const) expect(() => openOwnFile(link, how)).toThrow('ELOOP');
    expect(readFileSync(target, 'utf8')).toBe('of another');
  });
});
