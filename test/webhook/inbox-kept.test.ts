/** What the inbox keeps beside its events: progress, signatures, rests, checksums, and the words of its failures. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../src/base/database.ts';
import { parsedEvent } from '../../src/webhook/event-feed.ts';
import { Inbox } from '../../src/webhook/inbox.ts';
import { guarded } from '../../src/webhook/inbox-errors.ts';
import { describeEvent, digestOf } from '../../src/webhook/inbox-event.ts';
import { type ArrivedEvent, arrivalLine, readEvent } from '../../src/webhook/received-event.ts';
import { RELAYED_NOTE } from '../../src/webhook/relayed-note.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { memoryFolder } from '../memory-folder.ts';
import { runnable } from './parts/inbox-events.ts';

const DAY = 86_400_000;
const STEP_ROWS = 500;

let folder: string;
let clock: ManualClock;
let database: Database;
let inbox: Inbox;

const open = (boot = 'boot-1') => {
  database = openDatabase(join(folder, 'inbox.db'));
  inbox = Inbox.open(database, clock, boot);
};
beforeEach(() => {
  folder = memoryFolder('tagferry-inbox-kept-');
  clock = new ManualClock();
  open();
});
afterEach(() => {
  database.close();
  rmSync(folder, { recursive: true, force: true });
});

let serial = 0;
const bytes = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));
function event(more: Partial<ArrivedEvent> = {}): ArrivedEvent {
  const unit = { id: 1, href: '/units/1' };
  const content = { asset: { id: ++serial, href: `/assets/${serial}` }, unit };
  return {
    ...readEvent(bytes({ event_type: 'asset_updated', occurred_at: '2026-11-21T00:00:00Z', content }), 7),
    ...more,
  };
}
const count = (table: string) => database.prepare(`SELECT count(*) FROM ${table}`).pluck().get();

describe('the progress of an event', () => {
  const DONE = { reaction: 'r', action: 'one', state: 'done', tries: 1 } as const;
  const TRIED = { reaction: 'r', action: 'two', state: 'failed', tries: 2, detail: 'no answer' } as never;

  it('comes with it, run or tried again, and is begun anew by a replay', () => {
    inbox.insertMany([event(), event()]);
    inbox.record(1, DONE);
    inbox.record(1, TRIED);
    expect(runnable(inbox, 9)[0]!.progress).toEqual([DONE, TRIED]);
    inbox.finish(1, 'failed', DAY * 2);
    expect(inbox.retried(9).map(({ id, progress }) => [id, progress])).toEqual([[1, [DONE, TRIED]]]);
    expect([inbox.retried(9, 1), runnable(inbox, 9).map(({ id }) => id)]).toEqual([[], [2]]);
    inbox.replay(1);
    expect(runnable(inbox, 9)[0]).toMatchObject({ id: 1, progress: [] });
    expect(inbox.retried(9)).toEqual([]);
  });

  it('that does not fit its checksum is not known to be done', () => {
    inbox.insertMany([event()]);
    inbox.record(1, DONE);
    inbox.record(1, TRIED);
    database.exec(`UPDATE inbox_progress SET tries = 9 WHERE action = 'one'`);
    expect(runnable(inbox, 9)[0]!.progress).toEqual([TRIED]);
  });

  it('waits no longer than a day', async () => {
    inbox.insertMany([event()]);
    inbox.finish(1, 'failed', 1e12);
    await clock.advance(DAY - 1);
    expect(runnable(inbox, 9)).toEqual([]);
    await clock.advance(1);
    expect(runnable(inbox, 9)).toHaveLength(1);
  });
});

describe('what is relayed', () => {
  it('has the signatures that came with it, if any did, for as long as the event is kept', async () => {
    const both = { sha256: 'a', sha1: 'b' };
    const none = { sha256: undefined, sha1: undefined };
    inbox.insertMany([
      event({ signatures: both }),
      event({ signatures: none }),
      event(),
      event({ signatures: { ...none, sha1: 'c' } }),
    ]);
    expect(inbox.toRelay(9, 0).map(({ signatures }) => signatures)).toEqual([both, none, none, { ...none, sha1: 'c' }]);
    expect(count('inbox_signature')).toBe(2);
    for (const id of [1, 2, 3, 4]) inbox.finish(id, 'done');
    await clock.advance(40 * DAY);
    // Not yet relayed: what is behind the note stays.
    inbox.setNote(RELAYED_NOTE, '3');
    while (inbox.prune());
    expect(inbox.toRelay(9, 0).map(({ id }) => id)).toEqual([4]);
    expect(count('inbox_signature')).toBe(1);
  });
});

describe('retention of the inbox', () => {
  it('drops what is older than it keeps, and not what is exactly as old', async () => {
    inbox.insertMany([event()]);
    inbox.finish(1, 'done');
    await clock.advance(30 * DAY);
    while (inbox.prune());
    expect(inbox.stats().events).toBe(1);
    await clock.advance(1);
    while (inbox.prune());
    expect(inbox.stats().events).toBe(0);
  });

  it('goes in steps, and says whether there may be more', async () => {
    inbox.insertMany(Array.from({ length: STEP_ROWS + 1 }, () => event()));
    for (let id = 1; id <= STEP_ROWS + 1; id++) inbox.finish(id, 'dead');
    await clock.advance(40 * DAY);
    expect([inbox.prune(), inbox.stats().events]).toEqual([true, 1]);
    expect([inbox.prune(), inbox.stats().events]).toEqual([false, 0]);
  });

  it('puts the age away every ten minutes: a machine that is cut off loses no more', async () => {
    inbox.insertMany([event()]);
    inbox.finish(1, 'done');
    for (let minutes = 0; minutes < 31 * 24 * 60; minutes += 60) {
      await clock.advance(60 * 60_000);
      if (minutes < 29 * 24 * 60) inbox.prune();
    }
    database.close();
    open('boot-2');
    await clock.advance(DAY + 61 * 60_000);
    while (inbox.prune());
    expect(inbox.stats().events).toBe(0);
  });

  it('counts what the journal of an event costs, and forgets one that is gone', () => {
    inbox.insertMany([event()]);
    const { bytes: before } = inbox.stats();
    const attempt = {
      reaction: 'r',
      action: 'log',
      outcome: 'ok',
      detail: 'x'.repeat(9_000),
      durationMs: 0,
      atMs: 0,
    } as const;
    inbox.record(1, undefined, attempt);
    expect(inbox.show(1)!.journal).toMatchObject([{ detail: 'x'.repeat(4_000) }]);
    const { bytes } = inbox.stats();
    expect(bytes - before).toBeGreaterThan(4_000);
    expect(bytes - before).toBeLessThan(5_000);
    inbox.record(77, undefined, attempt);
    expect(inbox.stats().bytes).toBe(bytes);
  });

  it('knows its age by what it has seen where the note of it is lost', async () => {
    await clock.advance(100 * DAY);
    inbox.insertMany([event()]);
    inbox.finish(1, 'done');
    database.exec("DELETE FROM inbox_note WHERE name = 'age'");
    database.close();
    open('boot-2');
    await clock.advance(62 * DAY);
    while (inbox.prune());
    expect(inbox.stats().events).toBe(0);
  });

  it('forgets rests that are over', async () => {
    expect(inbox.cooldown('r', 'o')).toBeUndefined();
    inbox.setCooldown('r', 'o', 5_000);
    inbox.setCooldown('r', 'p', 50_000);
    await clock.advance(2_000);
    expect(inbox.cooldown('r', 'o')).toBe(3_000);
    inbox.prune();
    expect(count('inbox_cooldown')).toBe(2);
    await clock.advance(10_000);
    inbox.prune();
    expect([inbox.cooldown('r', 'o'), inbox.cooldown('r', 'p')]).toEqual([undefined, 38_000]);
  });
});

describe('numbers of events', () => {
  it('begin behind those that an inbox before it gave, and never go back', () => {
    inbox.insertMany([event()]);
    inbox.startAfter(40);
    inbox.startAfter(12);
    expect([inbox.highestId(), inbox.highestId()]).toEqual([40, 40]);
    inbox.insertMany([event()]);
    expect(inbox.list().map(({ id }) => id)).toEqual([41, 1]);
    database.close();
    open();
    expect(inbox.highestId()).toBe(41);
  });
});

describe('an event in the inbox', () => {
  it.each([
    ['occurred_ms = occurred_ms + 1', 1],
    ["event_type = 'asset_deleted'", 1],
    ['received_ms = received_ms + 1', 1],
    ['unrecognised = 0', 2],
    ["payload = x'7b7d'", 2],
  ])('does not fit its checksum with %s', (change, id) => {
    inbox.insertMany([event(), readEvent(bytes('no event'), 7)]);
    expect(inbox.list().map((one) => [one.id, inbox.show(one.id)!.damaged])).toEqual([
      [2, false],
      [1, false],
    ]);
    database.exec(`UPDATE inbox_event SET ${change} WHERE id = ${id}`);
    expect(inbox.show(id)!.damaged).toBe(true);
  });

  it.each(['done', 'dead', 'unrecognised'] as const)(
    'that is damaged when it is %s stays known and is not counted',
    (state) => {
      const one = state === 'unrecognised' ? readEvent(bytes('no event'), 7) : event();
      inbox.insertMany([one]);
      if (state !== 'unrecognised') inbox.finish(1, state);
      database.exec('UPDATE inbox_event SET received_ms = received_ms + 1');
      expect(inbox.toRelay(9, 0)).toEqual([]);
      expect(inbox.stats().damaged).toBe(0);
      expect(inbox.show(1)).toMatchObject({ state: state === 'unrecognised' ? 'received' : state, journal: [] });
      expect(inbox.insertMany([one])).toEqual(['seen']);
    },
  );

  it('is named by the beginning of its identity, and has no time where it says none that there is', () => {
    const one = event();
    expect(digestOf(one.identity)).toBe(Buffer.from(one.identity).toString('hex').slice(0, 12));
    const base = parsedEvent(one);
    expect(base).toMatchObject({
      id: 0,
      digest: digestOf(one.identity),
      replayed: false,
      state: 'received',
      attempts: 0,
    });
    expect(base.envelope).toMatchObject({ event_type: 'asset_updated' });
    const timesOf = [0, Number.NaN, Number.POSITIVE_INFINITY, -9e15, undefined].map(
      (occurredAtMs) => describeEvent({ ...base, occurredAtMs }).occurred_at,
    );
    expect(timesOf).toEqual(['1970-01-01T00:00:00.000Z', null, null, null, null]);
    const line = (more: Partial<ArrivedEvent>) => arrivalLine({ ...one, ...more }, 'push');
    expect(line({ occurredAtMs: 0 })).toEqual({
      event: 'webhook.received',
      digest: digestOf(one.identity),
      eventType: 'asset_updated',
      occurredAt: '1970-01-01T00:00:00.000Z',
      via: 'push',
    });
    expect(line({ occurredAtMs: 9e15, unrecognised: true })).toMatchObject({
      occurredAt: undefined,
      unrecognised: true,
    });
  });

  it('is unrecognised where its bytes are no text, and keeps the name that it gives itself', () => {
    expect(readEvent(new Uint8Array([0x22, 0xff, 0x22]), 7)).toMatchObject({ unrecognised: true, eventType: '' });
    expect(readEvent(bytes({ event_type: 'x'.repeat(200) }), 7).eventType).toBe('x'.repeat(100));
    expect(readEvent(bytes({ event_type: 7 }), 7).eventType).toBe('');
    expect(readEvent(bytes(null), 7).eventType).toBe('');
  });
});

describe('a failure of the inbox', () => {
  it.each([
    ['SQLITE_FULL', 'inbox.disk_full', true],
    ['SQLITE_CORRUPT', 'inbox.corrupt', false],
    ['SQLITE_CORRUPT_INDEX', 'inbox.corrupt', false],
    ['SQLITE_NOTADB', 'inbox.corrupt', false],
    ['SQLITE_IOERR_READ', 'inbox.unreadable', true],
    ['SQLITE_IOERR_WRITE', 'inbox.unavailable', true],
    ['SQLITE_BUSY', 'inbox.unavailable', true],
  ])('%s is told as %s', (cause, code, retryable) => {
    const fail = () =>
      guarded(() => {
        throw Object.assign(new Error('said by the driver'), { code: cause });
      });
    expect(fail).toThrow(expect.objectContaining({ code, retryable }));
  });

  it('is a file of a newer version, of which nothing is touched', () => {
    database.pragma('user_version = 99');
    expect(() => Inbox.open(database, clock, 'boot-1')).toThrow(expect.objectContaining({ code: 'store.format' }));
  });
});
