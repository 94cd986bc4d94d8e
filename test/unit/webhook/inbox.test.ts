import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../../src/base/database.ts';
import { deliveryIdentity } from '../../../src/webhook/identity.ts';
import { Inbox } from '../../../src/webhook/inbox.ts';
import { describeEvent, type InboxLimits } from '../../../src/webhook/inbox-event.ts';
import { type ArrivedEvent, readEvent } from '../../../src/webhook/received-event.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { runnable } from './parts/inbox-events.ts';

const DAY = 86_400_000;
const FIXTURES = join(import.meta.dirname, '../../fixtures/events');

let folder: string;
let clock: ManualClock;
let database: Database;
let inbox: Inbox;

function open(limits: Partial<InboxLimits> = {}, boot = 'boot-1'): void {
  database = openDatabase(join(folder, 'inbox.db'));
  inbox = Inbox.open(database, clock, boot, limits);
}

function reopen(limits: Partial<InboxLimits> = {}, boot = 'boot-1'): void {
  database.close();
  open(limits, boot);
}

let serial = 0;
function threshold(more: object = {}): ArrivedEvent {
  const payload = JSON.parse(readFileSync(join(FIXTURES, 'threshold_reached.json'), 'utf8'));
  payload.content.data.value = ++serial;
  return readEvent(new TextEncoder().encode(JSON.stringify({ ...payload, ...more })), clock.wallMs());
}

const ids = () => runnable(inbox, 100).map((event) => event.id);

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'inbox-'));
  clock = new ManualClock();
  open();
});

afterEach(() => {
  database.close();
  rmSync(folder, { recursive: true });
});

describe('known events', () => {
  it('are not inserted again in the same call, after a restart, or by their delivery ID', () => {
    const event = threshold();
    const delivery = deliveryIdentity('s', 7);
    expect(inbox.insertMany([event, event])).toEqual(['new', 'seen']);
    expect(inbox.insertMany([{ ...event, delivery }])).toEqual(['seen']);
    reopen();
    expect(inbox.insertMany([event])).toEqual(['seen']);
    expect(inbox.insertMany([{ ...threshold(), delivery }])).toEqual(['seen']);
    expect(inbox.stats()).toMatchObject({ events: 1, waiting: 1 });
  });

  it('remain known for more than six months of running time, independently of the wall clock', async () => {
    const event = threshold();
    inbox.insertMany([event]);
    inbox.finish(1, 'done');
    clock.jumpWall(400 * DAY);
    for (let day = 0; day < 190; day += 10) {
      await clock.advance(10 * DAY);
      while (inbox.prune());
      if (day === 90) reopen();
    }
    expect(inbox.insertMany([event])).toEqual(['seen']);
    await clock.advance(70 * DAY);
    while (inbox.prune());
    expect(inbox.seen([event.identity])).toEqual([false]);
  });

  it('remain known if an earlier version stored them without a checksum', () => {
    const event = threshold();
    inbox.insertMany([event]);
    database.exec(`
      CREATE TABLE before AS SELECT epoch, digest, event FROM inbox_seen;
      DROP TABLE inbox_seen;
      CREATE TABLE inbox_seen (
        epoch INTEGER NOT NULL, digest BLOB NOT NULL, event INTEGER NOT NULL, PRIMARY KEY (epoch, digest)) WITHOUT ROWID;
      INSERT INTO inbox_seen SELECT * FROM before;
      DROP TABLE before;
      DELETE FROM inbox_event;
      PRAGMA user_version = 1`);
    reopen();
    expect(inbox.insertMany([event, threshold()])).toEqual(['seen', 'new']);
  });

  it('remain known after a bit flip in their rows', () => {
    const [first, second] = [threshold(), threshold()];
    inbox.insertMany([first, second]);
    const flip = (what: string, of: Uint8Array) =>
      database.prepare(`UPDATE inbox_seen SET ${what} WHERE digest = ?`).run(of).changes;
    expect(flip("digest = x'00' || substr(digest, 2)", first.identity)).toBe(1);
    expect(flip('event = event + 8', second.identity)).toBe(1);
    expect(inbox.insertMany([first, second])).toEqual(['seen', 'seen']);
    database.exec('DELETE FROM inbox_event');
    reopen();
    expect(inbox.seen([first.identity, second.identity])).toEqual([true, true]);
  });

  it('do not suppress a damaged event', () => {
    const event = threshold();
    inbox.insertMany([event]);
    database.exec(`UPDATE inbox_seen SET event = 77; UPDATE inbox_event SET payload = replace(payload, '2', '3')`);
    expect(ids()).toEqual([]);
    expect(inbox.seen([event.identity])).toEqual([false]);
    expect(inbox.insertMany([event])).toEqual(['new']);
  });

  it('remain known after a bit flip in the epoch of a row', () => {
    const [first, second] = [threshold(), threshold()];
    inbox.insertMany([first, second]);
    database.prepare('UPDATE inbox_seen SET epoch = 1099511627776 WHERE digest = ?').run(first.identity);
    reopen();
    expect(inbox.insertMany([first, second])).toEqual(['seen', 'seen']);
    while (inbox.prune());
    expect(inbox.stats()).toMatchObject({ events: 2 });
  });
});

describe('event state', () => {
  it('changes from received to running to done', () => {
    inbox.insertMany([threshold(), threshold()]);
    expect(ids()).toEqual([1, 2]);
    expect(runnable(inbox, 10, 1).map(({ id }) => id)).toEqual([2]);
    inbox.markRunning(1);
    expect(ids()).toEqual([2]);
    inbox.finish(1, 'done');
    expect(ids()).toEqual([2]);
    reopen();
    expect(ids()).toEqual([2]);
    expect(inbox.show(1)).toMatchObject({ state: 'done', attempts: 1 });
  });

  it('returns to received if the agent crashes while the event is running', () => {
    inbox.insertMany([threshold()]);
    inbox.markRunning(1);
    reopen();
    expect(ids()).toEqual([1]);
    expect(inbox.show(1)).toMatchObject({ state: 'received', attempts: 1 });
  });

  it('allows retries of failed events when due, but not of dead events', async () => {
    inbox.insertMany([threshold(), threshold(), threshold()]);
    inbox.finish(1, 'failed', 5_000);
    inbox.finish(2, 'dead');
    inbox.finish(3, 'failed');
    expect(ids()).toEqual([]);
    await clock.advance(5_000);
    expect(ids()).toEqual([1]);
    await clock.advance(60_000);
    expect(ids()).toEqual([1, 3]);
  });

  it('schedules retries by elapsed running time, independently of the wall clock and across restarts', async () => {
    clock.jumpWall(10 * 365 * DAY);
    inbox.insertMany([threshold()]);
    inbox.finish(1, 'failed', 5_000);
    clock.jumpWall(-10 * 365 * DAY);
    expect(ids()).toEqual([]);
    reopen();
    await clock.advance(4_999);
    expect(ids()).toEqual([]);
    reopen({}, 'boot-2');
    expect(ids()).toEqual([]);
    await clock.advance(5_000);
    expect(ids()).toEqual([1]);
  });

  it('is reset once by a replay', () => {
    inbox.insertMany([threshold(), readEvent(new TextEncoder().encode('{}'), 0)]);
    inbox.markRunning(1);
    expect(inbox.replay(1)).toBe('refused');
    inbox.finish(1, 'done');
    expect(inbox.replay(1)).toBe('queued');
    expect(runnable(inbox, 10)).toMatchObject([{ id: 1, replayed: true, attempts: 0 }]);
    inbox.markRunning(1);
    inbox.finish(1, 'done');
    expect(inbox.show(1)).toMatchObject({ replayed: false });
    expect(inbox.replay(2)).toBe('refused');
    expect(inbox.replay(99)).toBe('unknown');
  });

  it('stays received for an unrecognised event', () => {
    const raw = Uint8Array.of(0xff, 0x00, 0x7b);
    expect(
      inbox.insertMany([readEvent(raw, 5), readEvent(new TextEncoder().encode('{"event_type":"new_thing"}'), 6)]),
    ).toEqual(['new', 'new']);
    expect(ids()).toEqual([]);
    expect(inbox.list().map((event) => [event.eventType, event.unrecognised])).toEqual([
      ['new_thing', true],
      ['', true],
    ]);
  });
});

describe('journal and cooldowns', () => {
  it('are limited to 200 attempts per event', () => {
    inbox.insertMany([threshold()]);
    for (let i = 0; i < 250; i++) {
      inbox.record(1, undefined, {
        reaction: 'r',
        action: 'run',
        outcome: `o${i}`,
        detail: 'x'.repeat(10_000),
        durationMs: 1,
        atMs: 2,
      });
    }
    const journal = inbox.show(1)!.journal;
    expect(journal).toHaveLength(200);
    expect(journal.at(-1)).toMatchObject({ outcome: 'o249', durationMs: 1, atMs: 2 });
    expect(journal[0]!.detail!.length).toBe(4_000);
    const short = { reaction: 'r', action: 'run', outcome: 'ok', durationMs: 1, atMs: 3 };
    inbox.record(1, undefined, short);
    expect(inbox.show(1)!.journal.at(-1)).toStrictEqual(short);
  });

  it('survive a restart', () => {
    inbox.setCooldown('r', 'instrumentation:4711', 1234);
    inbox.setNote('watermark', 'w');
    reopen();
    expect(inbox.cooldown('r', 'instrumentation:4711')).toBe(1234);
    expect(inbox.cooldown('r', 'asset:1')).toBeUndefined();
    expect(inbox.note('watermark')).toBe('w');
  });
});

describe('retention', () => {
  it('deletes old completed events', async () => {
    inbox.insertMany([threshold(), threshold(), threshold(), readEvent(new TextEncoder().encode('x'), 0)]);
    inbox.finish(1, 'done');
    inbox.finish(2, 'failed', 1e12);
    await clock.advance(31 * DAY);
    while (inbox.prune());
    expect(inbox.list().map((event) => event.id)).toEqual([3, 2]);
    expect(inbox.stats()).toMatchObject({ events: 2, waiting: 2 });
  });

  it('ignores wall clock jumps and reboots', () => {
    inbox.insertMany([threshold()]);
    inbox.finish(1, 'done');
    clock.jumpWall(1000 * DAY);
    while (inbox.prune());
    reopen({}, 'boot-2');
    while (inbox.prune());
    expect(inbox.list()).toHaveLength(1);
  });

  it('deletes the oldest completed events with their journals, and reuses no numbers', () => {
    reopen({ keepBytes: 5_000 });
    for (let i = 1; i <= 20; i++) {
      inbox.insertMany([threshold({ padding: 'x'.repeat(1_000) })]);
      inbox.record(i, undefined, { reaction: 'r', action: 'log', outcome: 'ok', durationMs: 0, atMs: 0 });
      if (i !== 3) inbox.finish(i, 'done');
    }
    while (inbox.prune());
    const kept = inbox.list().map((event) => event.id);
    expect(kept).toContain(3);
    expect(kept).toContain(20);
    expect(kept).not.toContain(1);
    expect(inbox.stats().bytes).toBeLessThanOrEqual(5_000);
    expect(database.prepare('SELECT count(*) FROM inbox_attempt').pluck().get()).toBe(kept.length);
    const { bytes, events } = inbox.stats();
    reopen({ keepBytes: 5_000 });
    expect(inbox.stats()).toMatchObject({ bytes, events });
    inbox.insertMany([threshold()]);
    expect(inbox.list()[0]!.id).toBe(21);
  });

  it('rejects new events if the inbox is full of incomplete events', () => {
    reopen({ maxBytes: 5_000 });
    const big = () => threshold({ padding: 'x'.repeat(1_500) });
    inbox.insertMany([big(), big()]);
    expect(() => inbox.insertMany([big()])).toThrowError(
      expect.objectContaining({ code: 'inbox.full', retryable: true }),
    );
    inbox.finish(1, 'done');
    expect(inbox.insertMany([big()])).toEqual(['new']);
    expect(ids()).toEqual([2, 3]);
  });
});

describe('disk space', () => {
  it('is returned to the file system when events are deleted', () => {
    reopen({ keepBytes: 1_000 });
    for (let i = 0; i < 20; i++) inbox.insertMany([threshold({ padding: 'x'.repeat(50_000) })]);
    const pages = () => database.pragma('page_count', { simple: true }) as number;
    const full = pages();
    for (let id = 1; id <= 20; id++) inbox.finish(id, 'done');
    while (inbox.prune());
    for (let i = 0; i < 10; i++) {
      inbox.insertMany([threshold()]);
      inbox.finish(21 + i, 'done');
      while (inbox.prune());
    }
    expect(pages()).toBeLessThan(full / 5);
  });
});

describe('inbox on a full disk', () => {
  it('rejects an entire batch with an error code until space is available', () => {
    const event = threshold();
    database.pragma(`max_page_count = ${database.pragma('page_count', { simple: true })}`);
    const many = Array.from({ length: 50 }, () => threshold());
    expect(() => inbox.insertMany([event, ...many])).toThrowError(
      expect.objectContaining({ code: 'inbox.disk_full', retryable: true }),
    );
    database.pragma('max_page_count = 1000000');
    expect(inbox.list()).toEqual([]);
    expect(inbox.insertMany([event, ...many])).toEqual(Array.from({ length: 51 }, () => 'new'));
    expect(inbox.stats().events).toBe(51);
  });
});

describe('event list', () => {
  it('contains the newest 50 events, or a page filtered by state and type', () => {
    inbox.insertMany(Array.from({ length: 60 }, () => threshold()));
    inbox.finish(5, 'done');
    expect(inbox.list()).toHaveLength(50);
    expect(inbox.list()[0]!.id).toBe(60);
    expect(inbox.list({ limit: 3, beforeId: 11 }).map((event) => event.id)).toEqual([10, 9, 8]);
    expect(inbox.list({ state: 'done' }).map((event) => event.id)).toEqual([5]);
    expect(inbox.list({ eventType: 'asset_updated' })).toEqual([]);
  });

  it('contains the members listed in docs/interface.md', () => {
    inbox.insertMany([threshold(), readEvent(new TextEncoder().encode('no'), clock.wallMs())]);
    expect(inbox.list().map(describeEvent)).toMatchObject([
      { event_type: '', occurred_at: null, unrecognised: true },
      {
        event_type: 'threshold_reached',
        occurred_at: expect.stringMatching(/^2026-11-.*Z$/),
        received_at: '2026-11-21T00:00:00.000Z',
        state: 'received',
        unrecognised: false,
      },
    ]);
  });
});
