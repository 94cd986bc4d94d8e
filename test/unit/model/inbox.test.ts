import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../../src/base/database.ts';
import { deliveryIdentity } from '../../../src/webhook/identity.ts';
import { Inbox } from '../../../src/webhook/inbox.ts';
import { readEvent } from '../../../src/webhook/received-event.ts';
import { newFolder } from '../../fresh-folder.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { runnable } from '../webhook/parts/inbox-events.ts';

/**
 * Compares the inbox with a small model: each event is accepted once within six months, regardless of how often and by
 * which path it arrives. Damaged events are accepted once more. Finished reactions do not run again.
 */
const DAY = 86_400_000;

let folder: string;
let clock: ManualClock;
let database: Database;
let inbox: Inbox;

beforeEach(() => {
  folder = newFolder('inbox-model-');
});
afterEach(() => {
  database.close();
  rmSync(folder, { recursive: true });
});

function open(boot: string): void {
  database = openDatabase(join(folder, 'inbox.db'));
  inbox = Inbox.open(database, clock, boot);
}

/** Returns the same event with its members in a different order, as in a resend. */
function payload(number: number, turned: boolean): Uint8Array {
  const occurred = { occurred_at: '2026-11-21T00:00:00Z' };
  const content = { asset: { id: 881 }, data: { value: number }, threshold: { type: 'high' } };
  const type = { event_type: 'threshold_reached' };
  return Buffer.from(JSON.stringify(turned ? { content, ...type, ...occurred } : { ...type, ...occurred, content }));
}

interface Modelled {
  /** Ids of its rows; more than one only if it was damaged in between. */
  ids: number[];
  damaged: number;
  over: boolean;
  takenAtMs: number;
}

describe.each([1, 2, 3, 4])('inbox, seed %i', (seed) => {
  it('accepts each event once, in any order, from any source and after damage', async () => {
    clock = new ManualClock(Date.UTC(2026, 10, 21), seed);
    const pick = (count: number) => Math.floor(clock.random() * count);
    const model = new Map<number, Modelled>();
    let boot = 0;
    let nowMs = 0;
    open('boot-0');
    const numberOf = (id: number) =>
      (JSON.parse(inbox.show(id)!.payload) as { content: { data: { value: number } } }).content.data.value;

    const arrive = () => {
      const batch = Array.from({ length: 1 + pick(4) }, () => pick(60));
      const events = batch.map((number) => {
        const event = readEvent(payload(number, pick(2) === 0), clock.wallMs());
        return pick(2) === 0 ? event : { ...event, delivery: deliveryIdentity('s', number) };
      });
      const outcomes = inbox.insertMany(events);
      let id = inbox.highestId() - outcomes.filter((one) => one === 'new').length;
      for (const [i, number] of batch.entries()) {
        const known = model.get(number);
        const isExpected = known === undefined || known.ids.length <= known.damaged;
        expect(outcomes[i], `event ${number}`).toBe(isExpected ? 'new' : 'seen');
        if (outcomes[i] !== 'new') continue;
        model.set(number, {
          ids: [...(known?.ids ?? []), ++id],
          damaged: known?.damaged ?? 0,
          over: false,
          takenAtMs: nowMs,
        });
      }
    };
    const work = () => {
      for (const event of runnable(inbox, 1 + pick(3))) {
        const known = model.get(numberOf(event.id))!;
        expect(known.over, `event ${event.id} is over`).toBe(false);
        expect(known.ids.at(-1)).toBe(event.id);
        inbox.markRunning(event.id);
        inbox.record(event.id, { reaction: 'r', action: 'a', state: 'begun', tries: 1 });
        if (pick(4) === 0) continue; // As left by a crash.
        const state = (['done', 'failed', 'dead'] as const)[pick(3)]!;
        inbox.finish(event.id, state, 1_000 * pick(20));
        known.over = state !== 'failed';
      }
    };
    const restart = () => {
      database.close();
      if (pick(2) === 0) boot++;
      clock.jumpWall((pick(3) - 1) * 400 * DAY);
      open(`boot-${boot}`);
    };
    const damage = () => {
      const open = [...model].filter(([, { over, ids, damaged }]) => !over && ids.length > damaged);
      const chosen = open[pick(open.length)];
      if (!chosen) return;
      const [number, known] = chosen;
      const id = known.ids.at(-1)!;
      if (inbox.show(id)!.state === 'running') return;
      const column = ['payload', 'identity', 'event_type', 'sum'][pick(4)]!;
      const value = { payload: Buffer.from('{}'), identity: Buffer.alloc(12), event_type: 'asset_updated', sum: 1 };
      database
        .prepare(`UPDATE inbox_event SET ${column} = ?, retry_age_ms = 0 WHERE id = ?`)
        .run(value[column as 'sum'], id);
      runnable(inbox, 1_000);
      expect(inbox.show(id)).toMatchObject({ state: 'dead', damaged: true });
      expect(inbox.note('catch_up.watermark')).toBe('');
      model.set(number, { ...known, damaged: known.damaged + 1, over: false });
    };
    const fill = () => {
      const pages = database.pragma('page_count', { simple: true });
      database.pragma(`max_page_count = ${pages}`);
      const many = Array.from({ length: 40 }, (_, i) =>
        readEvent(Buffer.from(`{"n":"${nowMs}-${i}-${'x'.repeat(500)}"}`), 0),
      );
      const before = inbox.stats();
      expect(() => inbox.insertMany(many)).toThrow(expect.objectContaining({ code: 'inbox.disk_full' }));
      expect(inbox.stats()).toEqual(before);
      database.pragma('max_page_count = 1000000');
    };
    const pass = async () => {
      const ms = pick(2) === 0 ? 30_000 : pick(8) * DAY;
      await clock.advance(ms);
      nowMs += ms;
      while (inbox.prune());
    };

    for (let step = 0; step < 300 && nowMs < 180 * DAY; step++) {
      const chance = pick(100);
      if (chance < 40) arrive();
      else if (chance < 75) work();
      else if (chance < 85) restart();
      else if (chance < 92) damage();
      else if (chance < 94) fill();
      else await pass();
    }
    // The counts match the file.
    const stats = inbox.stats();
    database.close();
    open('boot-last');
    expect(inbox.stats()).toEqual({ ...stats, damaged: 0, waiting: expect.any(Number) });
  });
});

describe('reported inbox size', () => {
  it.each([2, 60, 2_000])('with payloads of %i bytes is within 25 % of the disk usage', (size) => {
    clock = new ManualClock(Date.UTC(2026, 10, 21));
    open('boot');
    const count = size > 1_000 ? 1_000 : 10_000;
    const bodies = Array.from({ length: count }, (_, i) => Buffer.from(String(i).padStart(size, 'x').slice(-size)));
    const distinct = size === 2 ? bodies.map((_, i) => Buffer.from([i & 255, i >> 8])) : bodies;
    const seenPages = () => {
      const before = database.pragma('page_count', { simple: true }) as number;
      const see = database.prepare('INSERT INTO inbox_seen VALUES (99, ?, ?, 4000000000)');
      database.transaction(() => {
        for (let i = 0; i < count; i++) see.run(deliveryIdentity('x', i), i);
      })();
      return (database.pragma('page_count', { simple: true }) as number) - before;
    };
    const first = database.pragma('page_count', { simple: true }) as number;
    for (let i = 0; i < count; i += 500) inbox.insertMany(distinct.slice(i, i + 500).map((body) => readEvent(body, 0)));
    const pages = (database.pragma('page_count', { simple: true }) as number) - first;
    // Seen marks are kept longer than events, so retention does not free them.
    const bytes = (pages - seenPages()) * 1024;
    const { bytes: counted } = inbox.stats();
    expect(bytes / counted).toBeGreaterThan(0.75);
    expect(bytes / counted).toBeLessThan(1.25);
  });
});
