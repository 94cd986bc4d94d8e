import { mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { FolderClient } from '../../../src/sources/csv/folder-client.ts';

const HOUR_MS = 3_600_000;

it('file cleanup deletes expired files among more than 10,000 unexpired files', async () => {
  const path = mkdtempSync(join(tmpdir(), 'tagferry-csv-done-'));
  onTestFinished(() => rmSync(path, { recursive: true }));
  const done = join(path, 'done');
  mkdirSync(done);
  const expired = new Date(Date.now() - 2 * HOUR_MS);
  const add = (name: string, time: Date) => {
    for (const file of [name, `${name}.report.txt`]) {
      writeFileSync(join(done, file), '');
      utimesSync(join(done, file), time, time);
    }
  };
  // Folders are read in the order of creation, in its reverse order, or in a random order.
  for (let n = 0; n < 100; n++) add(`first-${n}.csv`, expired);
  for (let n = 0; n < 10_500; n++) add(`${n}.csv`, new Date());
  for (let n = 0; n < 100; n++) add(`last-${n}.csv`, expired);
  const folder = new FolderClient(path, systemClock);
  onTestFinished(() => folder.end());
  while (!(await folder.deleteExpired(HOUR_MS, Date.now())));
  const names = readdirSync(done);
  expect(names.length).toBe(21_000);
  expect(names.filter((name) => /^(first|last)/.test(name))).toEqual([]);
});
