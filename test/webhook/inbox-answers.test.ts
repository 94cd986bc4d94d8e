/** What the inbox gives to whoever asks it, whole, and what it keeps beside its events. */
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ACCESS_TYPES, EVENT_TYPES } from '../../src/contract/events/names.ts';
import { guarded, inboxFull } from '../../src/webhook/inbox-errors.ts';
import { describeEvent, SELF_TEST_TYPE } from '../../src/webhook/inbox-event.ts';
import { INBOX_LIMITS } from '../../src/webhook/inbox-limits.ts';
import { freshFolder } from '../fresh-folder.ts';
import { runnable } from './parts/inbox-events.ts';
import { ageNote, arrived, InboxFile, name, shown } from './parts/inbox-rows.ts';

const DAY = 86_400_000;
/** At which the manual clock begins, and with it the age 0. */
const BEGUN_MS = 1_000;

const folder = freshFolder('tagferry-inbox-answers-');
let at: InboxFile;
beforeEach(() => {
  at = new InboxFile(join(folder.path, 'inbox.db')).open();
});
afterEach(() => void at.database.close());

const ids = (events: readonly { id: number }[]) => events.map(({ id }) => id);
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i);
/** Event `n` as it is given. */
const given = (n: number, more: object = {}) => ({
  id: n,
  digest: shown(n).slice(0, 12),
  eventType: 'asset_updated',
  occurredAtMs: 5,
  receivedAtMs: 7,
  payload: '{"n":1}',
  state: 'received',
  attempts: 0,
  unrecognised: false,
  replayed: false,
  ...more,
});

describe('an event', () => {
  const UNKNOWN = { eventType: '', occurredAtMs: undefined, unrecognised: true };

  it('is given whole to each who asks, with what concerns them', () => {
    const odd = Buffer.from([0x22, 0xff, 0x22]);
    at.inbox.insertMany([
      arrived(1, { eventType: 'node_appeared' }),
      arrived(2, { ...UNKNOWN, payload: odd }),
      arrived(3, { occurredAtMs: 0, receivedAtMs: 0 }),
    ]);
    at.inbox.markRunning(3);
    at.inbox.finish(3, 'failed', 0);
    at.inbox.replay(1);
    const atMs = at.clock.wallMs();
    const one = given(1, { eventType: 'node_appeared', replayed: true });
    const two = given(2, { ...UNKNOWN, payload: '"\ufffd"' });
    const three = given(3, { occurredAtMs: 0, receivedAtMs: 0, state: 'failed', attempts: 1 });
    expect(at.inbox.list()).toStrictEqual([three, two, one].map(({ payload: _, ...listed }) => listed));
    expect(runnable(at.inbox, 9)).toStrictEqual([
      { ...one, progress: [] },
      { ...three, progress: [] },
    ]);
    expect(at.inbox.retried(9)).toStrictEqual([{ ...three, progress: [] }]);
    expect(at.inbox.ofAccess(9)).toStrictEqual([one]);
    const signatures = { sha256: undefined, sha1: undefined };
    expect(
      at.inbox.toRelay(9, 0).map(({ identity, payload, ...rest }) => ({ ...rest, payload: `${payload}` })),
    ).toStrictEqual([
      { id: 1, payload: '{"n":1}', signatures },
      { id: 2, payload: '"\ufffd"', signatures },
      { id: 3, payload: '{"n":1}', signatures },
    ]);
    expect(at.inbox.toRelay(9, 1).map(({ identity, payload }) => [...identity, ...payload])).toEqual([
      [...name(2), ...odd],
      [...name(3), ...Buffer.from('{"n":1}')],
    ]);
    const begun = { reaction: '', action: 'replay', outcome: 'begun', durationMs: 0, atMs };
    expect([1, 2, 3, 4, 0].map((id) => at.inbox.show(id))).toStrictEqual([
      { ...one, journal: [begun], damaged: false },
      { ...two, journal: [], damaged: false },
      { ...three, journal: [], damaged: false },
      undefined,
      undefined,
    ]);
    expect(at.inbox.list().map(describeEvent)).toStrictEqual([
      {
        id: 3,
        digest: shown(3).slice(0, 12),
        event_type: 'asset_updated',
        occurred_at: '1970-01-01T00:00:00.000Z',
        received_at: '1970-01-01T00:00:00.000Z',
        state: 'failed',
        attempts: 1,
        unrecognised: false,
      },
      {
        id: 2,
        digest: shown(2).slice(0, 12),
        event_type: '',
        occurred_at: null,
        received_at: '1970-01-01T00:00:00.007Z',
        state: 'received',
        attempts: 0,
        unrecognised: true,
      },
      {
        id: 1,
        digest: shown(1).slice(0, 12),
        event_type: 'node_appeared',
        occurred_at: '1970-01-01T00:00:00.005Z',
        received_at: '1970-01-01T00:00:00.007Z',
        state: 'received',
        attempts: 0,
        unrecognised: false,
      },
    ]);
  });

  it('is given to access by its type alone, whatever became of its reactions', () => {
    at.inbox.insertMany(EVENT_TYPES.map((eventType, i) => arrived(i + 1, { eventType })));
    at.inbox.insertMany([arrived(90, { eventType: 'node_appeared', unrecognised: true })]);
    const concerned = EVENT_TYPES.flatMap((type, i) =>
      (ACCESS_TYPES as readonly string[]).includes(type) ? [i + 1] : [],
    );
    expect(concerned).toHaveLength(7);
    const states = ['done', 'dead', 'failed'] as const;
    for (const [i, id] of concerned.entries()) if (i < 6) at.inbox.finish(id, states[i % 3]!);
    expect(ids(at.inbox.ofAccess(99))).toEqual(concerned);
  });

  it('is given among as many as are asked for, behind the one that is named', () => {
    at.inbox.insertMany(range(1, 6).map((n) => arrived(n, { eventType: 'node_appeared' })));
    type Ask = (limit: number, afterId?: number) => readonly { id: number }[];
    const asks: Record<string, Ask> = {
      runnable: (limit, afterId) => runnable(at.inbox, limit, afterId),
      ofAccess: (limit, afterId) => at.inbox.ofAccess(limit, afterId),
      toRelay: (limit, afterId) => at.inbox.toRelay(limit, afterId ?? 0),
    };
    const retried: Ask = (limit, afterId) => at.inbox.retried(limit, afterId);
    const answersOf = (ask: Ask) => [ids(ask(3)), ids(ask(3, 0)), ids(ask(2, 3)), ids(ask(9, 5)), ids(ask(9, 6))];
    const expected = [[1, 2, 3], [1, 2, 3], [4, 5], [6], []];
    for (const ask of Object.values(asks)) expect(answersOf(ask)).toEqual(expected);
    for (const id of range(1, 6)) at.inbox.finish(id, 'failed');
    expect(answersOf(retried)).toEqual(expected);
    expect(runnable(at.inbox, 9)).toEqual([]);
  });

  it('comes with as much of what was done as fits its checksums', () => {
    at.inbox.insertMany([arrived(1), arrived(2)]);
    const begun = { reaction: 'r', action: 'a', state: 'begun', tries: 1 } as const;
    const failed = { reaction: 'r', action: 'b', state: 'failed', tries: 2, detail: '' } as const;
    const other = { reaction: 'q', action: '', state: 'skipped', tries: 0, detail: 'rests' } as const;
    for (const one of [begun, failed, other]) at.inbox.record(1, one);
    const progressOf = () => runnable(at.inbox, 9).map(({ progress }) => progress);
    expect(progressOf()).toStrictEqual([[other, begun, failed], []]);
    const columns = [
      `reaction = 's'`,
      `action = 'c'`,
      `state = 'done'`,
      'tries = 3',
      `detail = 'x'`,
      'event = 2',
      'sum = 1',
    ];
    for (const column of columns) {
      at.database.exec(`UPDATE inbox_progress SET ${column} WHERE action = 'b'`);
      expect(progressOf(), column).toStrictEqual([[other, begun], []]);
      at.database.exec(`DELETE FROM inbox_progress WHERE tries > 1`);
      at.inbox.record(1, failed);
    }
  });
});

describe('a list of events', () => {
  const SELF_TEST = { eventType: SELF_TEST_TYPE, unrecognised: true };

  it('has the newest first, at most as many as were asked for, and 1,000', () => {
    at.inbox.insertMany(range(1, 1_002).map((n) => arrived(n)));
    const listed = (limit?: number, beforeId?: number) =>
      ids(
        at.inbox.list({ ...(limit === undefined ? {} : { limit }), ...(beforeId === undefined ? {} : { beforeId }) }),
      );
    expect(listed()).toEqual(range(953, 1_002).toReversed());
    expect(ids(at.inbox.list({}))).toEqual(listed());
    expect(listed(1_000)).toEqual(range(3, 1_002).toReversed());
    expect([999, 1_000, 1_001, 5_000].map((limit) => listed(limit).length)).toEqual([999, 1_000, 1_000, 1_000]);
    expect([2, 1, 0, -7].map((limit) => listed(limit))).toEqual([[1_002, 1_001], [1_002], [1_002], [1_002]]);
    expect([listed(2, 1_002), listed(9, 3), listed(9, 1)]).toEqual([[1_001, 1_000], [2, 1], []]);
  });

  it('is of a state and of a type, and names the self-test only to who asks for it', () => {
    at.inbox.insertMany([
      arrived(1),
      arrived(2, { eventType: 'node_appeared' }),
      arrived(3, SELF_TEST),
      arrived(4, { eventType: SELF_TEST_TYPE }),
      arrived(5, { eventType: '', unrecognised: true }),
      arrived(6),
    ]);
    at.inbox.finish(1, 'done');
    at.inbox.finish(2, 'done');
    const listed = (query: object) => ids(at.inbox.list(query));
    expect(listed({})).toEqual([6, 5, 4, 2, 1]);
    expect(listed({ eventType: SELF_TEST_TYPE })).toEqual([4, 3]);
    expect(listed({ state: 'received' })).toEqual([6, 5, 4]);
    expect(listed({ state: 'done' })).toEqual([2, 1]);
    expect(listed({ state: 'done', eventType: 'asset_updated' })).toEqual([1]);
    expect(listed({ state: 'dead' })).toEqual([]);
    expect(listed({ eventType: '' })).toEqual([5]);
  });
});

describe('an error', () => {
  const told = (cause: unknown) => {
    try {
      guarded(() => {
        throw cause;
      });
    } catch (error) {
      const { message, code, retryable, hint } = error as { message: string } & Record<string, unknown>;
      return { message, code, retryable, hint, cause: (error as Error).cause };
    }
    return undefined;
  };
  const driver = (code: unknown) => Object.assign(new Error('x'), { code });
  const UNAVAILABLE = {
    message: 'the inbox cannot be used',
    code: 'inbox.unavailable',
    retryable: true,
    hint: undefined,
  };
  const CORRUPT = { message: 'the inbox is damaged', code: 'inbox.corrupt', retryable: false, hint: undefined };

  it.each([
    [
      ['SQLITE_FULL'],
      {
        message: 'the disk is full: the inbox cannot be written',
        code: 'inbox.disk_full',
        retryable: true,
        hint: 'Free space on the file system of STATE_DIR.',
      },
    ],
    [['SQLITE_CORRUPT', 'SQLITE_CORRUPT_INDEX', 'SQLITE_CORRUPT_VTAB', 'SQLITE_NOTADB'], CORRUPT],
    [
      ['SQLITE_IOERR_READ', 'SQLITE_IOERR_SHORT_READ', 'SQLITE_IOERR_CORRUPTFS'],
      { ...UNAVAILABLE, message: 'the disk does not read a part of the inbox', code: 'inbox.unreadable' },
    ],
    [
      ['SQLITE_IOERR', 'SQLITE_IOERR_WRITE', 'SQLITE_BUSY', 'SQLITE_READONLY', 'XSQLITE_FULL', '', undefined, 7],
      UNAVAILABLE,
    ],
  ])('of the driver by %j is told in our words', (codes, words) => {
    for (const code of codes as unknown[]) {
      const cause = driver(code);
      expect(told(cause), String(code)).toStrictEqual({ ...words, cause });
    }
  });

  it('of ours stays what it is, and what goes well is given as it comes', () => {
    const ours = inboxFull(7);
    const fail = () => {
      throw ours;
    };
    expect(() => guarded(fail)).toThrow(ours);
    expect(ours).toMatchObject({
      message: 'the inbox holds 7 bytes of events that have not run',
      code: 'inbox.full',
      retryable: true,
      hint: expect.stringContaining('`tagferry events ls`'),
    });
    expect([guarded(() => 0), guarded(() => undefined)]).toEqual([0, undefined]);
  });
});

it('keeps settled events for 30 days, 64 MiB of them, 256 MiB of all', () => {
  expect(INBOX_LIMITS).toEqual({ keepMs: 30 * DAY, keepBytes: 67_108_864, maxBytes: 268_435_456 });
});

describe('what is kept beside events', () => {
  it('is how long a reaction rests for an object', async () => {
    await at.clock.advance(50);
    const rests = { reaction: 'r', object: 'o', until_age_ms: 51 };
    const saved = { inbox_note: { gone: [ageNote(0, BEGUN_MS)], come: [ageNote(50, BEGUN_MS + 50)] } };
    expect(at.changeBy(() => at.inbox.setCooldown('r', 'o', 0.5))).toEqual({
      inbox_cooldown: { come: [rests] },
      ...saved,
    });
    expect(at.changeBy(() => at.inbox.setCooldown('r', 'o', 1_000))).toEqual({
      inbox_cooldown: { gone: [rests], come: [{ ...rests, until_age_ms: 1_050 }] },
    });
    const left = () => [at.inbox.cooldown('r', 'o'), at.inbox.cooldown('r', 'p'), at.inbox.cooldown('q', 'o')];
    expect(left()).toEqual([1_000, undefined, undefined]);
    await at.clock.advance(999);
    expect(left()[0]).toBe(1);
    await at.clock.advance(1);
    // What ends now is over, and not forgotten yet.
    expect(at.changeBy(() => at.inbox.prune())).toEqual({});
    expect(left()[0]).toBe(0);
    await at.clock.advance(1);
    expect(left()[0]).toBe(-1);
    expect(at.changeBy(() => at.inbox.prune())).toEqual({
      inbox_cooldown: { gone: [{ ...rests, until_age_ms: 1_050 }] },
    });
  });

  it('is which deliveries were asked for again, for 210 days', async () => {
    await at.clock.advance(50);
    const row = (n: number, times: number, age_ms: number) => ({ digest: shown(n), times, age_ms });
    expect(at.changeBy(() => at.inbox.markAsked([name(1), name(2)]))).toEqual({
      inbox_asked: { come: [row(1, 1, 50), row(2, 1, 50)] },
    });
    await at.clock.advance(10);
    expect(at.changeBy(() => at.inbox.markAsked([name(2)]))).toEqual({
      inbox_asked: { gone: [row(2, 1, 50)], come: [row(2, 2, 60)] },
    });
    await at.clock.advance(5);
    expect(at.inbox.asked([name(3), name(2), name(1)])).toEqual([
      { times: 0, agoMs: Number.MAX_SAFE_INTEGER },
      { times: 2, agoMs: 5 },
      { times: 1, agoMs: 15 },
    ]);
    await at.clock.advance(210 * DAY - 15);
    at.inbox.prune();
    expect(at.rows().inbox_asked).toHaveLength(2);
    await at.clock.advance(1);
    expect(at.changeBy(() => at.inbox.prune())).toEqual({ inbox_asked: { gone: [row(1, 1, 50)] } });
  });

  it('is small notes by name; one that is damaged is none', () => {
    const note = { name: 'n', value: 'one' };
    expect(at.changeBy(() => at.inbox.setNote('n', 'one'))).toEqual({ inbox_note: { come: [note] } });
    expect(at.changeBy(() => at.inbox.setNote('n', ''))).toEqual({
      inbox_note: { gone: [note], come: [{ ...note, value: '' }] },
    });
    expect([at.inbox.note('n'), at.inbox.note('m')]).toEqual(['', undefined]);
    at.inbox.setNote('n', 'two');
    at.database.exec(`UPDATE inbox_note SET value = 'tvo' WHERE name = 'n'`);
    expect(at.inbox.note('n')).toBeUndefined();
    at.database.exec(
      `UPDATE inbox_note SET value = 'two' WHERE name = 'n'; UPDATE inbox_note SET name = 'm' WHERE name = 'n'`,
    );
    expect([at.inbox.note('n'), at.inbox.note('m')]).toEqual([undefined, undefined]);
  });

  it('is the number that the next event is given', () => {
    expect(at.changeBy(() => at.inbox.startAfter(0))).toEqual({});
    expect(at.changeBy(() => at.inbox.startAfter(40))).toEqual({
      sqlite_sequence: { come: [{ name: 'inbox_event', seq: 40 }] },
    });
    expect(at.changeBy(() => at.inbox.startAfter(40))).toEqual({});
    expect(at.changeBy(() => at.inbox.startAfter(39))).toEqual({});
    expect(at.changeBy(() => at.inbox.startAfter(41))).toEqual({
      sqlite_sequence: { gone: [{ name: 'inbox_event', seq: 40 }], come: [{ name: 'inbox_event', seq: 41 }] },
    });
    expect([at.inbox.highestId(), at.inbox.highestId()]).toEqual([41, 41]);
    at.inbox.insertMany([arrived(1)]);
    expect(at.inbox.list().map(({ id }) => id)).toEqual([42]);
    at.reopen();
    expect(at.inbox.highestId()).toBe(42);
  });
});
