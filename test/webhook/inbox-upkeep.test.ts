/** What the inbox does by itself: at its opening, as it grows old and full, and where a row of it is damaged. All rows, at each bound. */
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { RELAYED_NOTE } from '../../src/webhook/relayed-note.ts';
import { WATERMARK_NOTE } from '../../src/webhook/watermark.ts';
import { freshFolder } from '../fresh-folder.ts';
import { runnable } from './parts/inbox-events.ts';
import { ageNote, arrived, eventRow, InboxFile, name, shown } from './parts/inbox-rows.ts';

const DAY = 86_400_000;
const EPOCH = 30 * DAY;
const COST = 120;
const STEP = 500;
const BEGUN_MS = 1_000;

const folder = freshFolder('tagferry-inbox-upkeep-');
let at: InboxFile;
beforeEach(() => {
  at = new InboxFile(join(folder.path, 'inbox.db')).open();
});
afterEach(() => void at.database.close());

const idsLeft = () => at.rows().inbox_event!.map(({ id }) => id);
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i);
/** Takes in events by these numbers, and ends them. */
function settle(...numbers: number[]): void {
  at.inbox.insertMany(numbers.map((n) => arrived(n)));
  for (const n of numbers) at.inbox.finish(n, 'done');
}

describe('an inbox that is opened', () => {
  it('takes up what was running, and changes nothing of the rest', () => {
    at.inbox.insertMany([1, 2, 3, 4, 5].map((n) => arrived(n)));
    for (const id of [1, 2, 3, 4]) at.inbox.markRunning(id);
    at.inbox.finish(2, 'done');
    at.inbox.finish(3, 'failed', 70_000);
    at.inbox.finish(4, 'dead');
    const stats = at.inbox.stats();
    expect(at.changeBy(() => at.reopen())).toEqual({
      inbox_event: {
        gone: [eventRow(1, { state: 'running', attempts: 1 })],
        come: [eventRow(1, { attempts: 1 })],
      },
    });
    expect(at.inbox.stats()).toEqual(stats);
    expect(stats).toEqual({ events: 5, waiting: 3, bytes: 5 * COST, damaged: 0 });
    expect(at.inbox.highestId()).toBe(5);
  });

  it.each([
    ['in the same boot goes on at its age', 'boot-1', 5_000, 5_000],
    ['in another boot stood still meanwhile', 'boot-2', 5_000, 0],
  ])('%s', async (_, boot, passedMs, ageMs) => {
    await at.clock.advance(passedMs);
    expect(at.changeBy(() => at.reopen({}, boot))).toEqual({
      inbox_note: { gone: [ageNote(0, BEGUN_MS)], come: [ageNote(ageMs, BEGUN_MS + passedMs, boot)] },
    });
    await at.clock.advance(7);
    at.inbox.insertMany([arrived(1)]);
    expect(at.rows().inbox_event).toEqual([eventRow(1, { age_ms: ageMs + 7 })]);
  });

  it('is no younger than its newest event nor than its newest name, where its age is lost', async () => {
    const ageAfterLoss = () => {
      at.database.exec("DELETE FROM inbox_note WHERE name = 'age'");
      at.reopen({}, 'boot-2');
      return JSON.parse(at.inbox.note('age')!).ageMs as number;
    };
    expect(ageAfterLoss()).toBe(0);
    await at.clock.advance(EPOCH + 5);
    at.inbox.insertMany([arrived(1), arrived(2)]);
    expect(ageAfterLoss()).toBe(EPOCH + 5);
    await at.clock.advance(EPOCH);
    at.inbox.insertMany([arrived(3)]);
    at.database.exec('DELETE FROM inbox_event');
    expect(ageAfterLoss()).toBe(2 * EPOCH);
  });

  it('of a newer format is left as it is', () => {
    at.database.pragma('user_version = 3');
    const change = at.changeBy(() =>
      expect(() => at.reopen()).toThrow(
        expect.objectContaining({
          code: 'store.format',
          message: expect.stringContaining('format 3; this version reads 2'),
        }),
      ),
    );
    expect(change).toEqual({});
  });

  it('of the format before gets checksums for its names, once', () => {
    at.inbox.insertMany([arrived(1), arrived(2, { delivery: name(102) })]);
    const sums = () => at.database.prepare('SELECT * FROM inbox_seen').all();
    const before = sums();
    at.database.exec('ALTER TABLE inbox_seen DROP COLUMN sum; PRAGMA user_version = 1');
    at.reopen();
    expect(sums()).toEqual(before);
    expect(at.database.pragma('user_version', { simple: true })).toBe(2);
    // A crash between the two left the column there, and the number of the format as it was.
    at.database.pragma('user_version = 1');
    at.reopen();
    expect(sums()).toEqual(before);
  });
});

describe('the age of the inbox', () => {
  it('is put away every ten minutes that it is looked after, and not before', async () => {
    await at.clock.advance(599_999);
    expect(at.changeBy(() => at.inbox.prune())).toEqual({});
    await at.clock.advance(1);
    const first = ageNote(600_000, BEGUN_MS + 600_000);
    expect(at.changeBy(() => at.inbox.prune())).toEqual({
      inbox_note: { gone: [ageNote(0, BEGUN_MS)], come: [first] },
    });
    await at.clock.advance(599_999);
    expect(at.changeBy(() => at.inbox.prune())).toEqual({});
    await at.clock.advance(2);
    expect(at.changeBy(() => at.inbox.prune())).toEqual({
      inbox_note: { gone: [first], come: [ageNote(1_200_001, BEGUN_MS + 1_200_001)] },
    });
  });

  it('counts whole milliseconds', async () => {
    await at.clock.advance(0.75);
    at.inbox.insertMany([arrived(1)]);
    await at.clock.advance(0.75);
    at.inbox.insertMany([arrived(2)]);
    expect(at.rows().inbox_event!.map(({ age_ms }) => age_ms)).toEqual([0, 1]);
  });
});

describe('what is dropped by age', () => {
  it('is all of an event but that it was seen, a millisecond after it was kept long enough', async () => {
    const signatures = { sha256: 'a', sha1: undefined };
    at.inbox.insertMany([arrived(1, { signatures }), arrived(2, { signatures }), arrived(3, { unrecognised: true })]);
    for (const id of [1, 2]) {
      at.inbox.record(id, { reaction: 'r', action: 'a', state: 'done', tries: 1 });
      at.inbox.record(id, undefined, { reaction: 'r', action: 'a', outcome: 'ok', durationMs: 0, atMs: 0 });
    }
    at.inbox.finish(1, 'dead');
    await at.clock.advance(1);
    at.inbox.insertMany([arrived(4)]);
    at.inbox.finish(4, 'done');
    await at.clock.advance(30 * DAY - 1);
    at.inbox.prune();
    expect(idsLeft()).toEqual([1, 2, 3, 4]);
    await at.clock.advance(1);
    const change = at.changeBy(() => expect(at.inbox.prune()).toBe(false));
    expect(change).toMatchObject({
      inbox_event: { gone: [{ id: 1 }, { id: 3 }] },
      inbox_attempt: { gone: [{ event: 1 }] },
      inbox_progress: { gone: [{ event: 1 }] },
      inbox_signature: { gone: [{ event: 1 }] },
    });
    expect(Object.keys(change)).toEqual(['inbox_attempt', 'inbox_event', 'inbox_progress', 'inbox_signature']);
    for (const table of Object.values(change)) expect(table.come).toBeUndefined();
    expect(at.inbox.stats()).toEqual({ events: 2, waiting: 1, bytes: 2 * COST + 44, damaged: 0 });
    expect(at.inbox.insertMany([arrived(1)])).toEqual(['seen']);
  });

  it('is nothing that is still to be published for others', async () => {
    settle(1, 2, 3);
    await at.clock.advance(31 * DAY);
    const left = [
      ['0', [1, 2, 3]],
      ['1', [2, 3]],
      ['2', [3]],
      // No note, as where nothing is published.
      ['', []],
    ] as const;
    for (const [note, ids] of left) {
      at.inbox.setNote(RELAYED_NOTE, note);
      expect(at.inbox.prune()).toBe(false);
      expect(idsLeft()).toEqual(ids);
    }
  });

  it('goes in steps of 500, the oldest first, and gives the space back', async () => {
    settle(...range(1, STEP + 1));
    await at.clock.advance(31 * DAY);
    const pages = () => at.database.pragma('page_count', { simple: true }) as number;
    const before = pages();
    expect([at.inbox.prune(), idsLeft(), at.inbox.stats().events]).toEqual([true, [STEP + 1], 1]);
    expect(at.database.pragma('freelist_count', { simple: true })).toBe(0);
    expect(pages()).toBeLessThan(before);
    expect([at.inbox.prune(), idsLeft()]).toEqual([false, []]);
    settle(...range(STEP + 2, 2 * STEP + 1));
    await at.clock.advance(31 * DAY);
    // As many as a step: there may be more.
    expect([at.inbox.prune(), at.inbox.prune()]).toEqual([true, false]);
    settle(...range(2 * STEP + 2, 3 * STEP));
    await at.clock.advance(31 * DAY);
    expect([at.inbox.prune(), at.inbox.stats()]).toEqual([false, { events: 0, waiting: 0, bytes: 0, damaged: 0 }]);
  });
});

describe('what is dropped by size', () => {
  it.each([
    [5 * COST, [1, 2, 3, 4, 5]],
    [5 * COST - 1, [1, 3, 4, 5]],
    [4 * COST, [1, 3, 4, 5]],
    [3 * COST + 1, [1, 4, 5]],
    [COST, [1, 4]],
    [0, [1, 4]],
  ])('to be kept in %i bytes is the oldest that has run, and no more than needed', (keepBytes, left) => {
    at.reopen({ keepBytes });
    at.inbox.insertMany(range(1, 5).map((n) => arrived(n)));
    for (const id of [2, 3, 5]) at.inbox.finish(id, 'done');
    expect(at.inbox.prune()).toBe(false);
    expect(idsLeft()).toEqual(left);
    expect(at.inbox.stats()).toEqual({
      events: left.length,
      waiting: 2,
      bytes: left.length * COST,
      damaged: 0,
    });
  });

  it('makes room for what comes in, as much as that needs', () => {
    at.reopen({ maxBytes: 4 * COST });
    settle(1, 2, 3);
    at.inbox.insertMany([arrived(4)]);
    expect(at.inbox.insertMany([arrived(5)])).toEqual(['new']);
    expect(idsLeft()).toEqual([2, 3, 4, 5]);
    expect(at.inbox.insertMany([arrived(6, { payload: Buffer.from('{"n":10}') })])).toEqual(['new']);
    expect(idsLeft()).toEqual([4, 5, 6]);
    expect(at.inbox.stats()).toEqual({ events: 3, waiting: 3, bytes: 3 * COST + 1, damaged: 0 });
  });

  it('goes on past one step where that is not enough', () => {
    settle(...range(1, STEP + 2));
    at.reopen({ maxBytes: (STEP + 2) * COST });
    expect(at.inbox.insertMany(range(1_000, 1_000 + STEP).map((n) => arrived(n)))).toHaveLength(STEP + 1);
    expect(idsLeft()).toHaveLength(STEP + 2);
    expect(idsLeft()[0]).toBe(STEP + 2);
  });

  it('refuses what does not fit beside what has not run: to the byte', () => {
    at.reopen({ maxBytes: 3 * COST });
    at.inbox.insertMany([arrived(1), arrived(2)]);
    const change = at.changeBy(() =>
      expect(() => at.inbox.insertMany([arrived(3, { payload: Buffer.from('{"n":10}') })])).toThrow(
        expect.objectContaining({
          code: 'inbox.full',
          retryable: true,
          message: `the inbox holds ${3 * COST} bytes of events that have not run`,
          hint: expect.stringContaining('tagferry events ls'),
        }),
      ),
    );
    expect(change).toEqual({});
    expect(at.inbox.insertMany([arrived(3)])).toEqual(['new']);
    expect(() => at.inbox.insertMany([arrived(4)])).toThrow(expect.objectContaining({ code: 'inbox.full' }));
    expect(at.inbox.stats()).toEqual({ events: 3, waiting: 3, bytes: 3 * COST, damaged: 0 });
  });
});

describe('what was seen', () => {
  it('is forgotten with its epoch, after seven whole ones, in steps of 2,000', async () => {
    const add = at.database.prepare('INSERT INTO inbox_seen (epoch, digest, event, sum) VALUES (0, ?, 1, 0)');
    settle(1);
    at.database.transaction(() => {
      for (const n of range(1_001, 2_999)) add.run(name(n));
    })();
    const left = () => at.rows().inbox_seen!.length;
    await at.clock.advance(8 * EPOCH - 1);
    expect([at.inbox.prune(), left(), at.inbox.seen([name(1)])]).toEqual([false, 2_000, [true]]);
    await at.clock.advance(1);
    expect([at.inbox.prune(), left(), at.inbox.seen([name(1)])]).toEqual([true, 0, [false]]);
    expect(at.database.pragma('freelist_count', { simple: true })).toBe(0);
    expect(at.inbox.prune()).toBe(false);
    at.database.transaction(() => {
      for (const n of range(1_001, 2_999)) add.run(name(n));
    })();
    expect([at.inbox.prune(), left()]).toEqual([false, 0]);
  });

  it('is known in whichever epoch it came, and put down in that of the day', async () => {
    for (const n of [1, 2, 3]) {
      at.inbox.insertMany([arrived(n)]);
      await at.clock.advance(EPOCH);
    }
    expect(at.rows().inbox_seen).toEqual(
      [0, 1, 2].map((epoch) => ({ epoch, digest: shown(epoch + 1), event: epoch + 1 })),
    );
    at.database.exec('DELETE FROM inbox_event');
    at.reopen();
    expect(at.inbox.seen([name(1), name(2), name(3), name(4)])).toEqual([true, true, true, false]);
    expect(at.changeBy(() => expect(at.inbox.insertMany([arrived(1)])).toEqual(['seen']))).toEqual({});
  });
});

describe('a damaged row', () => {
  const looks = {
    'looked at to run': () => runnable(at.inbox, 9),
    'looked at to be tried again': () => at.inbox.retried(9),
    'looked at by access': () => at.inbox.ofAccess(9),
    'looked at to be published': () => at.inbox.toRelay(9, 0),
  };

  it.each(Object.entries(looks))('is put aside when it is %s, and comes again', async (_, look) => {
    const events = [1, 2, 3].map((n) => arrived(n, { eventType: 'node_appeared', delivery: name(100 + n) }));
    at.inbox.insertMany(events);
    for (const id of [1, 2, 3]) at.inbox.finish(id, 'failed', 0);
    at.inbox.record(2, { reaction: 'r', action: 'a', state: 'begun', tries: 1 });
    at.inbox.setNote(WATERMARK_NOTE, 'here');
    at.database.exec('UPDATE inbox_event SET received_ms = 8 WHERE id = 2');
    // Nobody knows whose name this was.
    at.database.exec(`UPDATE inbox_seen SET event = 9 WHERE digest = x'${shown(103)}'`);
    await at.clock.advance(9);
    const { eventType: event_type } = events[0]!;
    const row = eventRow(2, { event_type, bytes: COST, state: 'failed', retry_age_ms: 0, received_ms: 8 });
    const detail = 'the row does not fit its checksum';
    const told = { reaction: '', action: 'read', outcome: 'damaged', detail };
    expect(at.changeBy(() => expect(look().map(({ id }) => id)).toEqual([1, 3]))).toEqual({
      inbox_event: {
        gone: [row],
        come: [{ ...row, state: 'dead', retry_age_ms: null, bytes: COST + 40 + 11 + detail.length }],
      },
      inbox_attempt: { come: [{ id: 1, event: 2, ...told, duration_ms: 0, at_ms: at.clock.wallMs() }] },
      inbox_seen: {
        gone: [
          { epoch: 0, digest: shown(2), event: 2 },
          { epoch: 0, digest: shown(102), event: 2 },
          { epoch: 0, digest: shown(103), event: 9 },
        ],
      },
      inbox_note: { gone: [{ name: WATERMARK_NOTE, value: 'here' }], come: [{ name: WATERMARK_NOTE, value: '' }] },
    });
    expect(at.inbox.stats()).toEqual({ events: 3, waiting: 2, bytes: 3 * COST + 51 + detail.length, damaged: 1 });
    expect(at.inbox.show(2)).toMatchObject({ damaged: true, journal: [{ ...told, durationMs: 0 }] });
    expect(at.changeBy(look)).toEqual({});
    expect(at.inbox.stats().damaged).toBe(1);
    expect(at.inbox.insertMany(events)).toEqual(['seen', 'new', 'seen']);
  });

  it.each(['received', 'running'] as const)('is put aside while it is %s', (state) => {
    at.inbox.insertMany([arrived(1)]);
    if (state === 'running') at.inbox.markRunning(1);
    at.database.exec('UPDATE inbox_event SET sum = sum + 1');
    expect(at.inbox.toRelay(9, 0)).toEqual([]);
    expect(at.inbox.show(1)).toMatchObject({ state: 'dead', damaged: true });
  });

  it.each(['done', 'dead', 'unrecognised'] as const)('of an event that is %s changes nothing', (state) => {
    at.inbox.insertMany([arrived(1, { unrecognised: state === 'unrecognised' }), arrived(2)]);
    if (state !== 'unrecognised') at.inbox.finish(1, state);
    at.database.exec('UPDATE inbox_event SET sum = sum + 1 WHERE id = 1');
    expect(at.changeBy(() => expect(at.inbox.toRelay(9, 0).map(({ id }) => id)).toEqual([2]))).toEqual({});
    expect(at.inbox.stats().damaged).toBe(0);
  });
});
