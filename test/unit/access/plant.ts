import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { onTestFinished } from 'vitest';
import type { ArrivedAccessEvent, OwnUser } from '../../../src/access/access-event.ts';
import { AccessTable } from '../../../src/access/access-table.ts';
import { AccessFollower } from '../../../src/access/follower.ts';
import { openDatabase } from '../../../src/base/database.ts';
import type { Tag, TagValue } from '../../../src/config/tags.ts';
import { Holds } from '../../../src/uplink/holds.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

export const START_MS = Date.UTC(2026, 10, 21);
export const MINUTE = 60_000;
const OWN = 5;

export function tag(name: string, asset: number, instrumentation: number | undefined, ...keys: string[]): Tag {
  const values = new Map<string, TagValue>(keys.map((key) => [key, { key }]));
  return { name, asset, ...(instrumentation === undefined ? {} : { instrumentation }), values };
}

/** FT-101 and FT-102 share asset 881; only FT-101 has an instrumentation, 4711. */
const TAGS = [
  tag('FT-101', 881, 4711, 'flow', 'temperature'),
  tag('FT-102', 881, undefined, 'level'),
  tag('PT-200', 882, 4712, 'pressure'),
  tag('GW-01', 900, undefined, 'load'),
];

const series = (id: number, asset: number, key: string) => {
  return { id, asset, key, group: undefined, unit: undefined, instrumentation: undefined };
};

export interface PlantOptions {
  tags?: readonly Tag[];
  user?: OwnUser | undefined;
  isRelayed?: boolean;
}

/** Holds on disk with the events that change them. A restart keeps the database. */
export async function buildPlant(more: PlantOptions = {}) {
  const { tags = TAGS, isRelayed = false } = more;
  const user = 'user' in more ? more.user : ({ id: OWN, from: 'setting' } as const);
  const folder = mkdtempSync(join(tmpdir(), 'tagferry-access-'));
  const database = openDatabase(join(folder, 'inbox.db'));
  const table = new AccessTable(database);
  table.open();
  const clock = new ManualClock(START_MS);
  const events: ArrivedAccessEvent[] = [];
  const logged: Record<string, unknown>[] = [];
  const logger = pino({ base: null, level: 'info' }, { write: (line: string) => void logged.push(JSON.parse(line)) });
  const known = [
    series(1, 881, 'flow'),
    series(2, 881, 'temperature'),
    series(3, 881, 'level'),
    series(4, 882, 'pressure'),
    series(5, 900, 'load'),
  ];
  /** Assets with values. */
  const lanes = new Map<number, unknown>([881, 882, 900].map((asset) => [asset, {}]));
  const plant = {
    clock,
    table,
    database,
    logged,
    known,
    lanes,
    /** Instrumentations whose series were looked up. */
    lookups: [] as number[],
    /** Error of the store; `undefined` if it works. */
    failure: undefined as Error | undefined,
    holds: undefined as unknown as Holds,
    follower: undefined as unknown as AccessFollower,
    async restart(): Promise<void> {
      await plant.follower?.stop();
      const call = async <Result>(work: () => Result) => {
        if (plant.failure) throw plant.failure;
        return work();
      };
      const stored = table.load();
      plant.holds = new Holds({
        store: {
          hold: (hold) => call(() => table.hold(hold)),
          release: (object) => call(() => table.release(object)),
        },
        tags,
        series: {
          get: (id) => known.find((one) => one.id === id),
          ofAsset: (asset) => known.filter((one) => one.asset === asset),
          ofInstrumentation: (id) => {
            plant.lookups.push(id);
            return [];
          },
        },
        lanes: () => lanes,
        clock,
        logger,
      });
      plant.holds.start(stored);
      const feed = {
        ofAccess: async (limit: number, after: number) => events.filter(({ id }) => id > after).slice(0, limit),
      };
      const store = { apply: (event: Parameters<AccessTable['apply']>[0]) => call(() => table.apply(event)) };
      const options = { feed, store, holds: plant.holds, tags: () => tags, user: () => user, isRelayed, clock, logger };
      plant.follower = new AccessFollower(options);
      plant.follower.start(stored);
    },
    /** Adds events to the inbox and waits until they have been read. */
    async receive(...arrived: Omit<ArrivedAccessEvent, 'id'>[]): Promise<void> {
      for (const event of arrived) events.push({ ...event, id: events.length + 1 });
      plant.follower.wake();
      await plant.follower.idle();
    },
    /** Sends all due probes one after another. */
    tryDue(): { asset: number; onlySeries?: readonly number[] }[] {
      const tried = [];
      for (let probe = due()[0]; probe; probe = due()[0]) {
        plant.holds.tried(probe);
        tried.push({ asset: probe.asset, ...(probe.onlySeries ? { onlySeries: probe.onlySeries } : {}) });
      }
      return tried;
    },
    /** Records an accepted post that starts now. */
    accept(asset: number, ...ids: number[]): void {
      plant.holds.accepted(asset, ids, clock.monotonicMs());
    },
    deny(asset: number, status: 403 | 404 = 403, startedMs = clock.monotonicMs()): void {
      plant.holds.denied(asset, status, { startedMs });
    },
    held: () => plant.holds.list().map(({ id }) => id),
  };
  const due = () => plant.holds.due(clock.monotonicMs());
  onTestFinished(async () => {
    await plant.follower.stop();
    database.close();
    rmSync(folder, { recursive: true });
  });
  await plant.restart();
  return plant;
}

/** Returns an access event that occurred `atSeconds` after the start of the test. */
export function accessEvent(eventType: string, id: number, atSeconds?: number, user: unknown = { id: OWN }) {
  const kind = eventType.split('_')[0]!;
  const occurredAtMs = atSeconds === undefined ? undefined : START_MS + atSeconds * 1000;
  return { eventType, occurredAtMs, envelope: { event_type: eventType, content: { [kind]: { id }, user } } };
}
