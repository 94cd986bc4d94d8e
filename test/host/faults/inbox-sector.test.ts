/** Bad sectors under an inbox: rows outside them are kept, deliveries continue, and no known event runs again. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { COMPILED_CODE } from '../made-once.ts';
import { compileDiskLayer } from './disk-fault.ts';
import type { InboxSaid } from './inbox-sector-process.ts';
import { SECTOR, sectorOf } from './page-map.ts';

/** More than the page cache holds. */
const EVENTS = 2_400;

let library: string;
let origin: string;
let folder: string;
let leaves: number[];
let overflows: number[];

async function run(state: string, kind: 'fill' | 'use', atStart = '', later = ''): Promise<InboxSaid> {
  const file = join(state, 'orders');
  writeFileSync(file, `${atStart}\n`);
  const script = join(import.meta.dirname, 'inbox-sector-process.ts');
  const child = spawn(process.execPath, [script, state, kind, String(EVENTS), later], {
    env: {
      ...COMPILED_CODE,
      PATH: process.env.PATH,
      LD_PRELOAD: library,
      DISK_LAYER_PATH: 'inbox.db',
      DISK_LAYER_ORDERS: file,
    },
  });
  let [stdout, stderr] = ['', ''];
  child.stdout.on('data', (text) => {
    stdout += text;
  });
  child.stderr.on('data', (text) => {
    stderr += text;
  });
  await once(child, 'close');
  expect(child.exitCode, stderr.slice(0, 2_000)).toBe(0);
  return JSON.parse(stdout) as InboxSaid;
}

beforeAll(async () => {
  library = compileDiskLayer();
  origin = mkdtempSync(join(tmpdir(), 'tagferry-inbox-sector-'));
  await run(origin, 'fill');
  const database = new Database(join(origin, 'inbox.db'), { readonly: true });
  const pages = database.prepare(
    "SELECT pageno FROM dbstat WHERE name = 'inbox_event' AND pagetype = ? ORDER BY pageno",
  );
  leaves = pages.pluck().all('leaf') as number[];
  overflows = pages.pluck().all('overflow') as number[];
  database.close();
}, 300_000);
afterAll(() => rmSync(origin, { recursive: true, force: true }));
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-inbox-sector-'));
  copyFileSync(join(origin, 'inbox.db'), join(folder, 'inbox.db'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const without = (pages: number[]) => {
  const { ino } = statSync(join(folder, 'inbox.db'));
  return pages.map((page) => `fail_read ${ino} ${sectorOf(page) * SECTOR} ${(sectorOf(page) + 1) * SECTOR}`).join('\n');
};

describe.each(['at its start', 'while it is open'])('inbox with a bad sector found %s', (when) => {
  it.each([
    ['some events', () => [leaves[leaves.length >> 1]!], 20],
    ['overflow pages of events', () => [overflows[overflows.length >> 1]!], 20],
    ['two places, with rows between them,', () => [leaves[leaves.length >> 2]!, leaves.at(-20)!], 40],
  ])('is replaced by one with its readable rows if the sector is under %s', async (_where, pages, lostAtMost) => {
    const orders = without(pages());
    const said = await (when === 'at its start' ? run(folder, 'use', orders) : run(folder, 'use', '', orders));
    expect(said.failed).toEqual([]);
    expect(said.setAside).toHaveLength(1);
    expect(said.fresh).toEqual(['new']);
    expect(said.again).toEqual(['seen']);
    // Seen marks are stored separately: even lost events do not run a second time.
    expect(new Set(said.before)).toEqual(new Set(['seen']));
    expect(said.ids.length).toBeGreaterThanOrEqual(EVENTS - lostAtMost);
    expect(said.ids.length).toBeLessThan(EVENTS);
  });
});
