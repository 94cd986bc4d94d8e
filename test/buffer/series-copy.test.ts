/** The copy of the series beside the database: what it says of each line, when it is made anew, and what of it is on disk. */
import type * as files from 'node:fs';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { SeriesCopy } from '../../src/buffer/recovery/series-copy.ts';
import type { Series } from '../../src/buffer/series.ts';
import { seriesFields } from '../../src/buffer/tables.ts';
import { freshFolder } from '../fresh-folder.ts';
import { openPaths } from '../open-paths.ts';
import { seriesOf } from './hand-made-buffer.ts';

const MiB = 1024 * 1024;

/** Names of files that were synced. */
const disk = vi.hoisted(() => ({ synced: [] as string[] }));
vi.mock('node:fs', async (original) => {
  const real = await original<typeof files>();
  const fsyncSync = (fd: number) => {
    disk.synced.push(real.readlinkSync(`/proc/self/fd/${fd}`));
    real.fsyncSync(fd);
  };
  return { ...real, fsyncSync };
});

const folder = freshFolder('tagferry-series-copy-');
let file: string;
let copy: SeriesCopy;
beforeEach(() => {
  file = join(folder.path, 'buffer.db.series');
  copy = new SeriesCopy(join(folder.path, 'buffer.db'));
  disk.synced = [];
});

const text = () => readFileSync(file, 'utf8');
const line = (series: Series) => JSON.stringify(seriesFields(series));
const known = () => [...copy.read().values()].map(({ id, key, since }) => [id, key, since]);
const openFiles = () => openPaths().filter((one) => one.startsWith(folder.path)).length;

const none = () => [];
const one = seriesOf(1, 1, { key: 'one' });
const two = seriesOf(2, 1, { key: 'two', group: 'g', unit: { id: 5 } });

describe('the copy of the series', () => {
  it('has a line for each that is added, unsynced, and keeps no file open', () => {
    expect([copy.append([one], none), copy.append([two, one], none), copy.append([], none)]).toEqual([
      true,
      true,
      true,
    ]);
    expect(text()).toBe(`\n${line(one)}\n\n${line(two)}\n${line(one)}\n`);
    expect([disk.synced, openFiles(), statSync(file).mode & 0o777]).toEqual([[], 0, 0o600]);
    expect([...copy.read()]).toEqual([
      [1, one],
      [2, two],
    ]);
  });

  it.each<[string, string[], unknown[]]>([
    ['the larger since', [line(seriesOf(1, 1, { key: 'new', since: 2 })), line(one)], [[1, 'new', 2]]],
    ['of equals the later', [line(one), line(seriesOf(1, 1, { key: 'later' }))], [[1, 'later', 1]]],
    ['one that was never written as the oldest', [line(one), line({ ...one, key: 'x', since: 0 })], [[1, 'one', 1]]],
    [
      'what stands behind a line that is none',
      ['', '{}', '[1', 'null', line(one).replace('one', 'two'), line(two)],
      [[2, 'two', 1]],
    ],
  ])('says of two lines of a series: %s', (_, lines, expected) => {
    writeFileSync(file, lines.join('\n'));
    // The last line need not be ended.
    expect(known()).toEqual(expected);
    writeFileSync(file, `${lines.join('\n')}\n`);
    expect(known()).toEqual(expected);
  });

  it('gives those that are asked for', () => {
    copy.append([one, two], none);
    expect([...copy.read(new Set([2, 3])).keys()]).toEqual([2]);
    expect(copy.read(new Set())).toEqual(new Map());
  });

  it.each<[string, Series[], boolean]>([
    ['is as it is', [one, two], false],
    ['is of more than is known', [one], false],
    ['lacks one', [one, two, seriesOf(3)], true],
    ['says another thing of the first', [{ ...one, key: 'other' }, two], true],
    ['says another thing of the last', [one, { ...two, group: undefined }], true],
  ])('is made anew, and synced, where it lacks something alone: one that %s', (_, all, isAnew) => {
    copy.append([one, two], none);
    const before = text();
    // Of an agent that was killed while it did this.
    if (isAnew) writeFileSync(`${file}.tmp`, 'left over');
    copy.keep(all);
    expect(text()).toBe(isAnew ? `\n${all.map(line).join('\n')}\n` : before);
    expect(disk.synced.map((path) => basename(path))).toEqual(isAnew ? ['buffer.db.series.tmp'] : []);
    expect([openFiles(), readdirSync(folder.path)]).toEqual([0, ['buffer.db.series']]);
  });

  it.each([
    [MiB, 0, false, false],
    [MiB + 1, 0, true, true],
    [MiB + 1, 1, true, false],
    [MiB + 160 * 3, 3, true, false],
    [MiB + 160 * 3 + 1, 3, true, true],
  ])('of %d bytes where %d are known is looked at closely: %s, and made anew: %s', (bytes, count, isAsked, isAnew) => {
    const all = Array.from({ length: count }, (_, i) => seriesOf(i + 5));
    writeFileSync(file, '\n'.repeat(bytes - line(one).length - 2));
    let asked = false;
    expect(
      copy.append([one], () => {
        asked = true;
        return all;
      }),
    ).toBe(true);
    expect([asked, statSync(file).size]).toEqual([isAsked, isAnew ? all.map(line).join('\n').length + 2 : bytes]);
    expect([...copy.read().keys()]).toEqual((isAnew ? all : [one]).map(({ id }) => id));
  });

  it('says where it could not be written, and never throws', () => {
    const nowhere = new SeriesCopy(join(folder.path, 'none', 'x'));
    expect([nowhere.append([one], none), nowhere.read(), nowhere.keep([one])]).toEqual([false, new Map(), undefined]);
    expect(readdirSync(folder.path)).toEqual([]);
  });
});
