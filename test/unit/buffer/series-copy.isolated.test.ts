/** The series copy: its lines, when it is rewritten, and when it is synced. */
import * as files from 'node:fs';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { SeriesCopy } from '../../../src/buffer/recovery/series-copy.ts';
import type { Series } from '../../../src/buffer/series.ts';
import { seriesFields } from '../../../src/buffer/tables.ts';
import { freshFolder } from '../../fresh-folder.ts';
import { seriesOf } from './hand-made-buffer.ts';
import type { watchedFiles } from './watched-files.ts';

vi.mock('node:fs', async (original) => (await import('./watched-files.ts')).watchedFiles(await original()));
const { watched } = files as unknown as ReturnType<typeof watchedFiles>;

const folder = freshFolder('tagferry-series-copy-');
let file: string;
let copy: SeriesCopy;
beforeEach(() => {
  file = join(folder.path, 'buffer.db.series');
  copy = new SeriesCopy(join(folder.path, 'buffer.db'));
  watched.synced.length = 0;
});

const text = () => readFileSync(file, 'utf8');
const line = (series: Series) => JSON.stringify(seriesFields(series));
const known = () => [...copy.read().values()].map(({ id, key, since }) => [id, key, since]);

const none = () => [];
const one = seriesOf(1, 1, { key: 'one' });
const two = seriesOf(2, 1, { key: 'two', group: 'g', unit: { id: 5 } });

describe('series copy', () => {
  it('appends one line per series without a sync, and leaves no files open', () => {
    expect([copy.append([one], none), copy.append([two, one], none), copy.append([], none)]).toEqual([
      true,
      true,
      true,
    ]);
    expect(text()).toBe(`\n${line(one)}\n\n${line(two)}\n${line(one)}\n`);
    expect([watched.synced, watched.open.size, statSync(file).mode & 0o777]).toEqual([[], 0, 0o600]);
    expect([...copy.read()]).toEqual([
      [1, one],
      [2, two],
    ]);
  });

  it.each<[string, string[], unknown[]]>([
    ['the larger generation wins', [line(seriesOf(1, 1, { key: 'new', since: 2 })), line(one)], [[1, 'new', 2]]],
    ['the later of equal generations wins', [line(one), line(seriesOf(1, 1, { key: 'later' }))], [[1, 'later', 1]]],
    ['an unsaved series counts as the oldest', [line(one), line({ ...one, key: 'x', since: 0 })], [[1, 'one', 1]]],
    [
      'lines after an invalid line are read',
      ['', '{}', '[1', 'null', line(one).replace('one', 'two'), line(two)],
      [[2, 'two', 1]],
    ],
  ])('resolves two lines of one series: %s', (_, lines, expected) => {
    writeFileSync(file, lines.join('\n'));
    // The final line may lack a line feed.
    expect(known()).toEqual(expected);
    writeFileSync(file, `${lines.join('\n')}\n`);
    expect(known()).toEqual(expected);
  });

  it.each<[string, Series[], boolean]>([
    ['identical', [one, two], false],
    ['with additional series', [one], false],
    ['without a series', [one, two, seriesOf(3)], true],
    ['with a different first series', [{ ...one, key: 'other' }, two], true],
    ['with a different last series', [one, { ...two, group: undefined }], true],
  ])('is rewritten and synced only if a known series is missing or differs: %s', (_, all, isRewritten) => {
    copy.append([one, two], none);
    const before = text();
    // Left by an agent that was killed during a rewrite.
    if (isRewritten) writeFileSync(`${file}.tmp`, 'left over');
    copy.keep(all);
    expect(text()).toBe(isRewritten ? `\n${all.map(line).join('\n')}\n` : before);
    expect(watched.synced.map((path) => basename(path))).toEqual(isRewritten ? ['buffer.db.series.tmp'] : []);
    expect([watched.open.size, readdirSync(folder.path)]).toEqual([0, ['buffer.db.series']]);
  });

  it('reports write failures, and never throws', () => {
    const nowhere = new SeriesCopy(join(folder.path, 'none', 'x'));
    expect([nowhere.append([one], none), nowhere.read(), nowhere.keep([one])]).toEqual([false, new Map(), undefined]);
    expect(readdirSync(folder.path)).toEqual([]);
  });
});
