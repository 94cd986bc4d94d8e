/** An unreadable 4 kB sector under each kind of page: all other values are delivered, and losses are counted. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openDatabase } from '../../../src/base/database.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import { ValueStore } from '../../../src/buffer/value-store.ts';
import { COMPILED_CODE } from '../made-once.ts';
import { compileDiskLayer } from './disk-fault.ts';
import { mapPages, PAGE, type PageMap, SECTOR, sectorOf } from './page-map.ts';

let origin: string;
/** Buffer contents by value number. */
const standing = new Set<number>();
let quarantined = 0;
let map: PageMap;

function makeBuffer(): void {
  const path = join(origin, 'buffer.db');
  let nowMs = 1000;
  const options = {
    bounds: { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' } as const,
    flushAfterMs: 1_000,
    flushValues: 1_000_000,
  };
  const { store, series } = ValueStore.open(openDatabase(path), path, options, {
    monotonicMs: 1,
    wallMs: 0,
    boot: 'a',
  });
  const catalogue = new SeriesCatalogue(series);
  let number = 0;
  const commit = () => {
    const columns = new ValueColumns();
    for (let i = 0; i < 500; i++) {
      standing.add(number);
      const id = catalogue.idOf(1 + (number % 5), `k${number % 4}`, undefined, undefined);
      columns.add(id, 1_700_000_000_000 + number * 7, number++ + 0.123456789, 0);
    }
    store.commit({ columns, newSeries: catalogue.takeUnsaved(), monotonicMs: nowMs });
  };
  const settle = (asset: number, isRefused: boolean) => {
    const { batch } = store.take({ asset, lane: 'backlog', maxValues: 300, maxBytes: 480_000 });
    const body = JSON.parse(new TextDecoder().decode(batch!.body)) as { values: { data: { value: number }[] }[] };
    for (const key of body.values) for (const { value } of key.data) standing.delete(Math.floor(value));
    if (isRefused) {
      quarantined += batch!.values;
      store.quarantine(batch!.id, { status: 422, message: 'no', atMs: 0 });
    } else store.settle(batch!.id);
  };
  // Enough values to fit all span directories on one page: values next to a lost directory cannot be counted.
  for (let turn = 0; turn < 72; turn++) {
    commit();
    nowMs += 200_000;
    for (let facts = store.facts(); facts.maintenanceDue; ) facts = store.maintain({ monotonicMs: nowMs });
    if (turn % 5 === 4) settle(1 + (turn % 4), turn % 10 === 4);
  }
  for (let i = 0; i < 6; i++) commit();
  for (let i = 0; i < 12; i++) settle(5, false);
  store.commit({ columns: undefined, newSeries: [], monotonicMs: nowMs });
  store.close();
}

interface Said {
  values: number[];
  quarantined: number;
  failed?: string;
  events: { event: string; what?: string; values?: number; lostRows?: number; unreadPages?: number }[];
}

const results = { start: new Map<number, Said>(), running: new Map<number, Said>() };

async function drain(library: string, when: 'start' | 'running'): Promise<void> {
  const sectors = [...new Set([...map.kinds.values()].map(sectorOf))];
  const orders: string[] = [];
  const folders = sectors.map((sector) => {
    const folder = join(origin, `${when}-${sector}`);
    mkdirSync(folder);
    for (const name of ['buffer.db', 'buffer.db.series']) copyFileSync(join(origin, name), join(folder, name));
    const { ino } = statSync(join(folder, 'buffer.db'));
    orders.push(`fail_read ${ino} ${sector * SECTOR} ${(sector + 1) * SECTOR}`);
    return folder;
  });
  const file = join(origin, `${when}-orders`);
  const script = join(import.meta.dirname, 'drain-process.ts');
  const child = spawn(process.execPath, [script, file, orders.join('\n'), when, ...folders], {
    env: {
      ...COMPILED_CODE,
      PATH: process.env.PATH,
      LD_PRELOAD: library,
      DISK_LAYER_PATH: 'buffer.db',
      DISK_LAYER_ORDERS: file,
    },
  });
  let stderr = '';
  child.stderr.on('data', (text) => {
    stderr += text;
  });
  await once(child, 'close');
  expect(child.exitCode, stderr.slice(0, 2_000)).toBe(0);
  for (const [i, folder] of folders.entries()) {
    results[when].set(sectors[i]!, JSON.parse(readFileSync(join(folder, 'said.json'), 'utf8')) as Said);
  }
}

beforeAll(async () => {
  origin = mkdtempSync(join(tmpdir(), 'tagferry-sector-'));
  makeBuffer();
  map = mapPages(join(origin, 'buffer.db'));
  const library = compileDiskLayer();
  await drain(library, 'start');
  await drain(library, 'running');
}, 300_000);
afterAll(() => rmSync(origin, { recursive: true, force: true }));

describe.each(['start', 'running'] as const)('bad sector (%s)', (when) => {
  it('is tested in pages of every type', () => {
    expect([...map.kinds.keys()]).toEqual(
      expect.arrayContaining([
        'the header',
        'the first pointer map',
        'the free list',
        'the first root page of segment',
        'the first root page of note',
        'a leaf page of segment',
        'a overflow page of log',
        'the first root page of span',
        'the first leaf page of quarantine',
      ]),
    );
    expect([...map.kinds.keys()]).not.toContain('the first leaf page of span');
  });

  it('destroys only the values it contained, and new values are delivered', () => {
    const wrong: object[] = [];
    for (const [name, page] of map.kinds) {
      const said = results[when].get(sectorOf(page))!;
      const first = sectorOf(page) * (SECTOR / PAGE) + 1;
      const sector = [first, first + 1, first + 2, first + 3];
      const lostAtMost = new Set(sector.flatMap((one) => map.numbers.get(one) ?? []));
      const found = new Set(said.values);
      const lost = [...standing].filter((number) => !found.has(number));
      const beyond = lost.filter((number) => !lostAtMost.has(number));
      const inQuarantine = new Map(sector.flatMap((one) => [...(map.quarantine.get(one) ?? [])]));
      const lostQuarantine = [...inQuarantine.values()].reduce((sum, count) => sum + count, 0);
      const isFresh = found.has(10_000_000) && found.has(10_000_001);
      const told = said.events.some(({ event }) => event.startsWith('store.'));
      const quarantineLost = quarantined - said.quarantined;
      const problems = {
        ...(said.failed ? { failed: said.failed } : {}),
        ...(beyond.length > 0 ? { beyond: beyond.length, lost: lost.length, mostly: lostAtMost.size } : {}),
        ...(isFresh ? {} : { fresh: 'did not leave' }),
        ...(lost.length > 0 && !told ? { silent: lost.length } : {}),
        ...(quarantineLost > lostQuarantine ? { quarantineLost, lostQuarantine } : {}),
      };
      if (Object.keys(problems).length > 0) wrong.push({ name, page, ...problems, events: said.events });
    }
    expect(wrong).toEqual([]);
  });

  it('is counted in segment values, log gaps and pages', () => {
    const wrong: object[] = [];
    for (const [name, page] of map.kinds) {
      const said = results[when].get(sectorOf(page))!;
      const found = new Set(said.values);
      const lost = [...standing].filter((number) => !found.has(number)).length;
      const told = said.events
        .filter(({ event }) => event === 'store.row_damaged')
        .reduce((sum, { values }) => sum + (values ?? 0), 0);
      // For log rows at either end, the number of lost values is unknown.
      const isAtEdge =
        name.includes('of log') && said.events.some((one) => (one.unreadPages ?? 0) + (one.lostRows ?? 0) > 0);
      if (isAtEdge ? told > lost : told !== lost) wrong.push({ name, page, told, lost });
    }
    expect(wrong).toEqual([]);
  });
});
