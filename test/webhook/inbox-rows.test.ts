/** What each call of the inbox changes in its file: all rows of all tables, and nothing beside them. */
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ActionProgress, Attempt } from '../../src/webhook/inbox-event.ts';
import { freshFolder } from '../fresh-folder.ts';
import { runnable } from './parts/inbox-events.ts';
import { ageNote, arrived, eventRow, everyRow, InboxFile, name, shown } from './parts/inbox-rows.ts';

const DAY = 86_400_000;
const COST = 120;
/** At which the manual clock begins, and with it the age 0. */
const BEGUN_MS = 1_000;

const folder = freshFolder('tagferry-inbox-rows-');
let at: InboxFile;
beforeEach(() => {
  at = new InboxFile(join(folder.path, 'inbox.db')).open();
});
afterEach(() => void at.database.close());

const seenRow = (n: number, event: number, epoch = 0) => ({ epoch, digest: shown(n), event });
/** Of event 1, the change of its row. */
const becomes = (before: object, after: object, id = 1) => ({
  inbox_event: { gone: [eventRow(id, before as never)], come: [eventRow(id, after as never)] },
});

describe('an empty inbox', () => {
  it('has its age and nothing else', () => {
    expect(at.rows()).toEqual({
      inbox_asked: [],
      inbox_attempt: [],
      inbox_cooldown: [],
      inbox_event: [],
      inbox_note: [ageNote(0, BEGUN_MS)],
      inbox_progress: [],
      inbox_seen: [],
      inbox_signature: [],
      sqlite_sequence: [],
    });
    expect(at.database.pragma('user_version', { simple: true })).toBe(2);
    const { inbox } = at;
    expect(inbox.stats()).toEqual({ events: 0, waiting: 0, bytes: 0, damaged: 0 });
    expect([inbox.highestId(), inbox.highestId()]).toEqual([0, 0]);
    const given = [inbox.list(), runnable(inbox, 9), inbox.retried(9), inbox.ofAccess(9), inbox.toRelay(9, 0)];
    expect(given).toEqual([[], [], [], [], []]);
    expect(at.changeBy(() => inbox.insertMany([]))).toEqual({});
  });
});

describe('what is taken in', () => {
  it('is a row for each event, its names, and its signatures where there are any', async () => {
    await at.clock.advance(5_000);
    const [both, none] = [
      { sha256: 'a', sha1: 'b' },
      { sha256: undefined, sha1: undefined },
    ];
    const events = [
      arrived(1),
      arrived(2, { delivery: name(102), signatures: both }),
      arrived(3, {
        unrecognised: true,
        eventType: '',
        occurredAtMs: undefined,
        payload: Buffer.from('no'),
        signatures: none,
      }),
      arrived(4, { occurredAtMs: 0, receivedAtMs: 0, signatures: { ...none, sha1: 'c' } }),
      arrived(5, { signatures: { ...none, sha256: 'd' } }),
    ];
    const change = at.changeBy(() => expect(at.inbox.insertMany(events)).toEqual(Array(5).fill('new')));
    const come = { age_ms: 5_000 };
    expect(change).toEqual({
      inbox_event: {
        come: [
          eventRow(1, come),
          eventRow(2, come),
          eventRow(3, { ...come, unrecognised: 1, event_type: '', occurred_ms: null, payload: '6e6f', bytes: 102 }),
          eventRow(4, { ...come, occurred_ms: 0, received_ms: 0 }),
          eventRow(5, come),
        ],
      },
      inbox_seen: { come: [...[1, 2, 3, 4, 5].map((n) => seenRow(n, n)), seenRow(102, 2)] },
      inbox_signature: {
        come: [
          { event: 2, sha256: 'a', sha1: 'b' },
          { event: 4, sha256: null, sha1: 'c' },
          { event: 5, sha256: 'd', sha1: null },
        ],
      },
      sqlite_sequence: { come: [{ name: 'inbox_event', seq: 5 }] },
    });
    expect(at.inbox.stats()).toEqual({ events: 5, waiting: 4, bytes: 4 * COST + 102, damaged: 0 });
    expect(at.inbox.highestId()).toBe(5);
    expect(at.inbox.toRelay(9, 0).map(({ signatures }) => signatures)).toEqual([
      none,
      both,
      none,
      { ...none, sha1: 'c' },
      { ...none, sha256: 'd' },
    ]);
  });

  it('is no event that is known by either name, which is known by both from then on', () => {
    at.inbox.insertMany([arrived(1), arrived(2, { delivery: name(102) })]);
    const taken = (...events: Parameters<typeof at.inbox.insertMany>[0]) => {
      let outcomes: string[] = [];
      const change = at.changeBy(() => {
        outcomes = at.inbox.insertMany(events);
      });
      return { outcomes, change };
    };
    expect(taken(arrived(1), arrived(2), arrived(2, { delivery: name(102) }))).toEqual({
      outcomes: ['seen', 'seen', 'seen'],
      change: {},
    });
    // A delivery that is new, of an event that is known; and an event in other words, of a delivery that is known.
    expect(taken(arrived(1, { delivery: name(101) }), arrived(9, { delivery: name(102) }))).toEqual({
      outcomes: ['seen', 'seen'],
      change: { inbox_seen: { come: [seenRow(9, 2), seenRow(101, 1)] } },
    });
    // Two names of two events: each stays what it was.
    expect(taken(arrived(1, { delivery: name(102) }))).toEqual({ outcomes: ['seen'], change: {} });
    expect(taken(arrived(9), arrived(3), arrived(3, { delivery: name(103) }))).toEqual({
      outcomes: ['seen', 'new', 'seen'],
      change: {
        inbox_event: { come: [eventRow(3)] },
        inbox_seen: { come: [seenRow(3, 3), seenRow(103, 3)] },
        sqlite_sequence: { gone: [{ name: 'inbox_event', seq: 2 }], come: [{ name: 'inbox_event', seq: 3 }] },
      },
    });
    expect(at.inbox.seen([name(1), name(4), name(103), name(101)])).toEqual([true, false, true, true]);
    expect(at.inbox.stats()).toEqual({ events: 3, waiting: 3, bytes: 3 * COST, damaged: 0 });
  });

  it('has the checksums by which other versions know it', () => {
    at.inbox.insertMany([
      arrived(1, { delivery: name(102) }),
      arrived(2, { occurredAtMs: undefined, unrecognised: true }),
    ]);
    at.inbox.record(1, { reaction: 'r', action: 'a', state: 'failed', tries: 2, detail: 'why' });
    at.inbox.record(1, { reaction: 'r', action: 'b', state: 'done', tries: 1 });
    at.inbox.setNote('catch_up.watermark', 'upTo');
    const rows = everyRow(at.database, true);
    const sums = (table: string) => rows[table]!.map(({ sum }) => sum);
    expect({
      event: sums('inbox_event'),
      seen: sums('inbox_seen'),
      progress: sums('inbox_progress'),
      note: sums('inbox_note'),
    }).toEqual({
      event: [1_141_025_819, 3_471_889_641],
      seen: [2_118_890_307, 1_415_395_460, 3_024_263_022],
      progress: [147_092_741, 3_643_062_749],
      note: [1_834_337_458, 2_279_298_457],
    });
  });

  it('is nothing at all where the file refuses one of them', () => {
    at.inbox.insertMany([arrived(1)]);
    const stats = at.inbox.stats();
    const broken = arrived(3, { receivedAtMs: null as never });
    const change = at.changeBy(() =>
      expect(() => at.inbox.insertMany([arrived(2), broken])).toThrow(
        expect.objectContaining({ code: 'inbox.unavailable' }),
      ),
    );
    expect(change).toEqual({});
    expect([at.inbox.stats(), at.inbox.highestId()]).toEqual([stats, 1]);
  });
});

describe('the course of an event', () => {
  const BEGUN: Partial<Attempt> = { reaction: '', action: 'replay', outcome: 'begun', durationMs: 0 };
  const attemptRow = (id: number, more: object) => ({ id, event: 1, detail: null, ...more });

  it('begins with one attempt more, whatever it waited for', () => {
    at.inbox.insertMany([arrived(1), arrived(2)]);
    expect(at.changeBy(() => at.inbox.markRunning(1))).toEqual(becomes({}, { state: 'running', attempts: 1 }));
    at.inbox.finish(1, 'failed', 10);
    expect(at.changeBy(() => at.inbox.markRunning(1))).toEqual(
      becomes({ state: 'failed', attempts: 1, retry_age_ms: 10 }, { state: 'running', attempts: 2 }),
    );
    expect(at.changeBy(() => at.inbox.markRunning(9))).toEqual({});
  });

  it.each(['done', 'dead'] as const)('ends as %s, for good', async (state) => {
    at.inbox.insertMany([arrived(1), arrived(2)]);
    at.inbox.markRunning(1);
    await at.clock.advance(50);
    expect(at.changeBy(() => at.inbox.finish(1, state, 5))).toEqual(
      becomes({ state: 'running', attempts: 1 }, { state, attempts: 1 }),
    );
    await at.clock.advance(2 * DAY);
    expect([runnable(at.inbox, 9).map(({ id }) => id), at.inbox.retried(9)]).toEqual([[2], []]);
    expect(at.inbox.stats()).toEqual({ events: 2, waiting: 1, bytes: 2 * COST, damaged: 0 });
  });

  it.each([
    [undefined, 60_000],
    [0, 0],
    [0.25, 1],
    [5_000, 5_000],
    [DAY - 1, DAY - 1],
    [DAY, DAY],
    [DAY + 1, DAY],
    [Number.POSITIVE_INFINITY, DAY],
  ])('fails and is due again after %s ms, at the millisecond', async (retryInMs, waitMs) => {
    at.inbox.insertMany([arrived(1)]);
    await at.clock.advance(50);
    expect(at.changeBy(() => at.inbox.finish(1, 'failed', retryInMs))).toEqual({
      ...becomes({}, { state: 'failed', retry_age_ms: 50 + waitMs }),
      inbox_note: { gone: [ageNote(0, BEGUN_MS)], come: [ageNote(50, BEGUN_MS + 50)] },
    });
    if (waitMs > 0) {
      await at.clock.advance(waitMs - 1);
      expect([runnable(at.inbox, 9), at.inbox.retried(9).map(({ id }) => id)]).toEqual([[], [1]]);
      await at.clock.advance(1);
    }
    expect(runnable(at.inbox, 9).map(({ id }) => id)).toEqual([1]);
    expect(at.inbox.stats().waiting).toBe(1);
  });

  it('is due at once where its time is later than any rest: such a time is damage', () => {
    at.inbox.insertMany([arrived(1)]);
    at.inbox.finish(1, 'failed');
    const dueAt = (ageMs: number) => {
      at.database.prepare('UPDATE inbox_event SET retry_age_ms = ?').run(ageMs);
      return runnable(at.inbox, 9).length;
    };
    expect([DAY - 1, DAY, DAY + 1, 2 ** 50].map(dueAt)).toEqual([0, 0, 1, 1]);
  });

  it('is written down with it: how far an action came, and what people read', () => {
    at.inbox.insertMany([arrived(1), arrived(2)]);
    const done: ActionProgress = { reaction: 'r', action: 'a', state: 'begun', tries: 1 };
    const row = { event: 1, reaction: 'r', action: 'a', state: 'begun', tries: 1, detail: null };
    expect(at.changeBy(() => at.inbox.record(1, done))).toEqual({ inbox_progress: { come: [row] } });
    const failed: ActionProgress = { ...done, state: 'failed', tries: 2, detail: 'why' };
    const attempt: Attempt = { reaction: 'r', action: 'a', outcome: 'no', detail: 'why', durationMs: 1.5, atMs: 9.5 };
    // 40 for the line, and its texts.
    expect(at.changeBy(() => at.inbox.record(1, failed, attempt))).toEqual({
      inbox_progress: { gone: [row], come: [{ ...row, state: 'failed', tries: 2, detail: 'why' }] },
      inbox_attempt: {
        come: [
          attemptRow(1, { reaction: 'r', action: 'a', outcome: 'no', detail: 'why', duration_ms: 1.5, at_ms: 9.5 }),
        ],
      },
      ...becomes({}, { bytes: COST + 40 + 7 }),
    });
    const { detail: _, ...short } = attempt;
    expect(at.changeBy(() => at.inbox.record(1, undefined, { ...short, reaction: '', action: '' }))).toEqual({
      inbox_attempt: {
        come: [attemptRow(2, { reaction: '', action: '', outcome: 'no', duration_ms: 1.5, at_ms: 9.5 })],
      },
      ...becomes({ bytes: COST + 47 }, { bytes: COST + 47 + 42 }),
    });
    expect(at.changeBy(() => at.inbox.record(1, undefined))).toEqual({});
    expect(at.inbox.stats().bytes).toBe(2 * COST + 89);
    expect(runnable(at.inbox, 9).map(({ progress }) => progress)).toEqual([[failed], []]);
    expect(at.inbox.show(1)!.journal).toEqual([attempt, { ...short, reaction: '', action: '' }]);
  });

  it('keeps the last 200 lines, each of 4,000 letters at most, and counts what they cost', () => {
    at.inbox.insertMany([arrived(1), arrived(2)]);
    const line = (outcome: string, detail: string): Attempt => ({
      reaction: 'r',
      action: 'a',
      outcome,
      detail,
      durationMs: 0,
      atMs: 0,
    });
    at.inbox.record(2, undefined, line('other', ''));
    for (let i = 1; i <= 199; i++) at.inbox.record(1, undefined, line('o', ''));
    at.inbox.record(1, undefined, line('o', 'x'.repeat(3_999)));
    const bytes = COST + 200 * 43 + 3_999;
    expect(at.changeBy(() => at.inbox.record(1, undefined, line('o', 'x'.repeat(4_000))))).toMatchObject({
      inbox_attempt: { gone: [{ id: 2, event: 1 }], come: [{ id: 202, event: 1, detail: 'x'.repeat(4_000) }] },
      inbox_event: { gone: [{ bytes }], come: [{ bytes: bytes + 4_000 }] },
    });
    const change = at.changeBy(() => at.inbox.record(1, undefined, line('o', 'y'.repeat(4_001))));
    expect(change.inbox_attempt!.come).toMatchObject([{ id: 203, detail: 'y'.repeat(4_000) }]);
    expect(at.inbox.show(1)!.journal).toHaveLength(200);
    expect(at.inbox.show(2)!.journal).toHaveLength(1);
    expect(at.inbox.stats().bytes).toBe(at.rows().inbox_event!.reduce((sum, row) => sum + (row.bytes as number), 0));
  });

  it.each(['received', 'failed', 'done', 'dead'] as const)('begins anew by a replay where it is %s', async (state) => {
    at.inbox.insertMany([arrived(1), arrived(2)]);
    at.inbox.markRunning(1);
    at.inbox.record(1, { reaction: 'r', action: 'a', state: 'done', tries: 1 });
    at.inbox.record(2, { reaction: 'r', action: 'a', state: 'done', tries: 1 });
    if (state === 'received') at.reopen();
    else at.inbox.finish(1, state, 10);
    await at.clock.advance(20);
    const before = { state, attempts: 1, retry_age_ms: state === 'failed' ? 10 : null };
    const atMs = at.clock.wallMs();
    expect(at.changeBy(() => expect(at.inbox.replay(1)).toBe('queued'))).toEqual({
      ...becomes(before, { replayed: 1, bytes: COST + 40 + 11 }),
      inbox_progress: { gone: [{ event: 1, reaction: 'r', action: 'a', state: 'done', tries: 1, detail: null }] },
      inbox_attempt: {
        come: [attemptRow(1, { reaction: '', action: 'replay', outcome: 'begun', duration_ms: 0, at_ms: atMs })],
      },
    });
    expect(at.inbox.show(1)!.journal).toEqual([{ ...BEGUN, atMs }]);
    expect(at.inbox.stats()).toEqual({ events: 2, waiting: 2, bytes: 2 * COST + 51, damaged: 0 });
    // That a person asked for it is known until it is over.
    at.inbox.finish(1, 'failed', 0);
    expect(runnable(at.inbox, 9)[0]).toMatchObject({ id: 1, replayed: true, progress: [] });
    at.inbox.finish(1, 'done');
    expect(at.inbox.show(1)).toMatchObject({ replayed: false });
  });

  it('is not replayed where it runs, is unrecognised or is not there; then nothing changes', () => {
    at.inbox.insertMany([arrived(1), arrived(2, { unrecognised: true })]);
    at.inbox.markRunning(1);
    const replays = () => [1, 2, 3].map((id) => at.inbox.replay(id));
    expect(at.changeBy(() => expect(replays()).toEqual(['refused', 'refused', 'unknown']))).toEqual({});
  });
});
