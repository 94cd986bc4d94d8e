import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../../src/base/database.ts';
import { Inbox } from '../../../src/webhook/inbox.ts';
import { guarded } from '../../../src/webhook/inbox-errors.ts';
import { type InboxEvent, RELAYED_NOTE } from '../../../src/webhook/inbox-event.ts';
import { type ArrivedEvent, parsed, readEvent } from '../../../src/webhook/received-event.ts';
import { WATERMARK_NOTE } from '../../../src/webhook/watermark.ts';
import { newFolder } from '../../fresh-folder.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { runnable } from './parts/inbox-events.ts';

const DAY = 86_400_000;

let folder: string;
let clock: ManualClock;
let database: Database;
let inbox: Inbox;

const open = (boot = 'boot-1') => {
  database = openDatabase(join(folder, 'inbox.db'));
  inbox = Inbox.open(database, clock, boot);
};
beforeEach(() => {
  folder = newFolder('tagferry-inbox-kept-');
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

describe('event progress', () => {
  const DONE = { reaction: 'r', action: 'one', state: 'done', tries: 1 } as const;
  const TRIED = { reaction: 'r', action: 'two', state: 'failed', tries: 2, detail: 'no answer' } as never;

  it('is stored until a replay', () => {
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

  it('is ignored if its checksum is wrong', () => {
    inbox.insertMany([event()]);
    inbox.record(1, DONE);
    inbox.record(1, TRIED);
    database.exec(`UPDATE inbox_progress SET tries = 9 WHERE action = 'one'`);
    expect(runnable(inbox, 9)[0]!.progress).toEqual([TRIED]);
  });

  it('allows a retry after at most one day', async () => {
    inbox.insertMany([event()]);
    inbox.finish(1, 'failed', 1e12);
    await clock.advance(DAY - 1);
    expect(runnable(inbox, 9)).toEqual([]);
    await clock.advance(1);
    expect(runnable(inbox, 9)).toHaveLength(1);
  });
});

describe('relayed events', () => {
  it('keep their signatures until they are relayed and deleted', async () => {
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
    inbox.setNote(RELAYED_NOTE, '3');
    while (inbox.prune());
    expect(inbox.toRelay(9, 0).map(({ id }) => id)).toEqual([4]);
    expect(count('inbox_signature')).toBe(1);
  });
});

describe('inbox retention', () => {
  it('includes the journal size', () => {
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

  it('resumes from the age of the newest event if the stored age is lost', async () => {
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
});

describe('event numbers', () => {
  it('continue from the replaced inbox', () => {
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

describe('event in the inbox', () => {
  it.each([
    ['occurred_ms = occurred_ms + 1', 1],
    ["event_type = 'asset_deleted'", 1],
    ['received_ms = received_ms + 1', 1],
    ['unrecognised = 0', 2],
    ["payload = x'7b7d'", 2],
  ])('is reported as damaged after %s', (change, id) => {
    inbox.insertMany([event(), readEvent(bytes('no event'), 7)]);
    expect(inbox.list().map((one) => [one.id, inbox.show(one.id)!.damaged])).toEqual([
      [2, false],
      [1, false],
    ]);
    database.exec(`UPDATE inbox_event SET ${change} WHERE id = ${id}`);
    expect(inbox.show(id)!.damaged).toBe(true);
  });

  it.each(['done', 'dead', 'unrecognised'] as const)('remains known if its row is damaged while %s', (state) => {
    const one = state === 'unrecognised' ? readEvent(bytes('no event'), 7) : event();
    inbox.insertMany([one]);
    if (state !== 'unrecognised') inbox.finish(1, state);
    database.exec('UPDATE inbox_event SET received_ms = received_ms + 1');
    expect(inbox.toRelay(9, 0)).toEqual([]);
    expect(inbox.stats().damaged).toBe(0);
    expect(inbox.show(1)).toMatchObject({ state: state === 'unrecognised' ? 'received' : state, journal: [] });
    expect(inbox.insertMany([one])).toEqual(['seen']);
  });

  it('is unrecognised if it is not valid UTF-8, and retains up to 100 characters from its event type', () => {
    expect(readEvent(new Uint8Array([0x22, 0xff, 0x22]), 7)).toMatchObject({ unrecognised: true, eventType: '' });
    expect(readEvent(bytes({ event_type: 'x'.repeat(200) }), 7).eventType).toBe('x'.repeat(100));
    expect(readEvent(bytes({ event_type: 7 }), 7).eventType).toBe('');
    expect(readEvent(bytes(null), 7).eventType).toBe('');
  });
});

describe('damaged row', () => {
  it.each(['run', 'retry', 'access', 'relay'] as const)(
    'is set aside when it is read for %s, and can be accepted again',
    (reader) => {
      const one = event({ eventType: 'node_appeared' });
      inbox.insertMany([one, event()]);
      if (reader === 'retry') inbox.finish(1, 'failed', 0);
      inbox.setNote(WATERMARK_NOTE, 'here');
      database.exec('UPDATE inbox_event SET received_ms = 8 WHERE id = 1');
      const readers = {
        run: () => runnable(inbox, 9),
        retry: () => inbox.retried(9),
        access: () => inbox.ofAccess(9),
        relay: () => inbox.toRelay(9, 0),
      };
      expect(readers[reader]().map(({ id }) => id)).not.toContain(1);
      expect(inbox.show(1)).toMatchObject({ state: 'dead', damaged: true, journal: [{ outcome: 'damaged' }] });
      // Catch-up reads the whole list again.
      expect([inbox.note(WATERMARK_NOTE), inbox.stats().damaged]).toEqual(['', 1]);
      expect(inbox.insertMany([one])).toEqual(['new']);
    },
  );
});

describe('event payload', () => {
  it('is replaced with an empty object if it is not a JSON object or would expand excessively when parsed', () => {
    const many = (count: number) => `{"content":[${Array.from({ length: count }, () => '{}').join()}]}`;
    const envelopeOf = (payload: string) => parsed({ payload } as InboxEvent).envelope;
    expect(envelopeOf(many(5_000))).not.toEqual({});
    for (const payload of ['', 'x', '[]', 'null', '1', many(50_000)]) expect(envelopeOf(payload)).toEqual({});
  });
});

describe('inbox error', () => {
  it.each([
    ['SQLITE_FULL', 'inbox.disk_full', true],
    ['SQLITE_CORRUPT', 'inbox.corrupt', false],
    ['SQLITE_CORRUPT_INDEX', 'inbox.corrupt', false],
    ['SQLITE_NOTADB', 'inbox.corrupt', false],
    ['SQLITE_IOERR_READ', 'inbox.unreadable', true],
    ['SQLITE_IOERR_WRITE', 'inbox.unavailable', true],
    ['SQLITE_BUSY', 'inbox.unavailable', true],
  ])('%s becomes %s', (cause, code, retryable) => {
    const fail = () =>
      guarded(() => {
        throw Object.assign(new Error('said by the driver'), { code: cause });
      });
    expect(fail).toThrow(expect.objectContaining({ code, retryable }));
  });

  it('is reported for a file created by a newer version', () => {
    database.pragma('user_version = 99');
    expect(() => Inbox.open(database, clock, 'boot-1')).toThrow(expect.objectContaining({ code: 'store.format' }));
  });
});
