import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { HoldTable } from '../../../src/access/hold-table.ts';
import { type HoldStore, Holds, type HoldsOptions } from '../../../src/access/holds.ts';
import { KnownObjects } from '../../../src/access/known-objects.ts';
import { type Database, openDatabase } from '../../../src/base/database.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import type { Tag, TagValue } from '../../../src/config/tags.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

export const START_MS = Date.UTC(2026, 10, 21);

export function tag(name: string, asset: number, instrumentation: number | undefined, ...keys: string[]): Tag {
  const values = new Map<string, TagValue>(keys.map((key) => [key, { key }]));
  return { name, asset, ...(instrumentation === undefined ? {} : { instrumentation }), values };
}

/** FT-101 and FT-102 share asset 881; only FT-101 has an instrumentation, 4711. */
export const TAGS = [
  tag('FT-101', 881, 4711, 'flow', 'temperature'),
  tag('FT-102', 881, undefined, 'level'),
  tag('PT-200', 882, 4712, 'pressure'),
  tag('GW-01', 900, undefined, 'load'),
];

export class SeriesList {
  readonly list: {
    id: number;
    asset: number;
    key: string;
    group: string | undefined;
    instrumentation?: number;
  }[] = [
    { id: 1, asset: 881, key: 'flow', group: undefined },
    { id: 2, asset: 881, key: 'temperature', group: undefined },
    { id: 3, asset: 881, key: 'level', group: undefined },
    { id: 4, asset: 882, key: 'pressure', group: undefined },
    { id: 5, asset: 900, key: 'load', group: undefined },
  ];

  ofAsset(asset: number) {
    return this.list.filter((one) => one.asset === asset);
  }

  ofInstrumentation(instrumentation: number) {
    return this.list.filter((one) => one.instrumentation === instrumentation);
  }

  get size() {
    return this.list.length;
  }
}

export interface Plant {
  holds: Holds;
  clock: ManualClock;
  series: SeriesList;
  table: HoldTable;
  objects: KnownObjects;
  database: Database;
  /** Recreates the holds, as after a restart. */
  restart: (more?: Partial<HoldsOptions>) => Promise<Holds>;
}

function storeOf(table: HoldTable): HoldStore {
  return {
    load: async () => table.load(),
    save: async (change) => table.save(change),
  };
}

export async function buildPlant(more: Partial<HoldsOptions> = {}): Promise<Plant> {
  const folder = mkdtempSync(join(tmpdir(), 'tagferry-access-'));
  const database = openDatabase(join(folder, 'inbox.db'));
  onTestFinished(() => {
    database.close();
    rmSync(folder, { recursive: true });
  });
  const objects = new KnownObjects(database);
  objects.open();
  const table = new HoldTable(database, objects);
  table.open();
  const clock = new ManualClock(START_MS);
  const series = new SeriesList();
  const restart = async (changed: Partial<HoldsOptions> = {}) => {
    const holds = new Holds({
      store: storeOf(table),
      tags: TAGS,
      series,
      clock,
      logger: silentLogger(),
      ...more,
      ...changed,
    });
    await holds.start();
    return holds;
  };
  return { holds: await restart(), clock, series, table, objects, database, restart };
}

/** Latest inbox id. */
let serial = 0;

/** Returns an access event that occurred `atSeconds` after the start of the test. */
export function accessEvent(eventType: string, id: number, atSeconds: number | undefined) {
  const kind = eventType.split('_')[0]!;
  const occurredAtMs = atSeconds === undefined ? undefined : START_MS + atSeconds * 1000;
  const content = {
    [kind]: { id, href: `https://api.example/v1/${kind}s/${id}` },
  };
  return { id: ++serial, eventType, occurredAtMs, envelope: { event_type: eventType, content } };
}

export function association(asset: number, instrumentation: number, change: 'created' | 'destroyed') {
  const eventType = `asset_instrumentation_association_${change}`;
  const content = { asset: { id: asset }, instrumentation: { id: instrumentation } };
  return { id: ++serial, eventType, occurredAtMs: START_MS, envelope: { event_type: eventType, content } };
}
