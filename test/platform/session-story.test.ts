/** What a session does, told whole: every request with its form, each state of its file, each line of the log, each snapshot. */
import { describe, expect, it } from 'vitest';
import { PlatformError } from '../../src/base/errors.ts';
import {
  type Answer,
  AWAY,
  accessToken,
  LOGIN,
  REFUSED,
  refreshOf,
  revocationOf,
  sessionWorlds,
  withoutToken,
  withToken,
} from './session-world.ts';

const newWorld = sessionWorlds();

const REVOKED = ['debug', { event: 'session.revoked' }, 'token revoked'];
const AWAY_ERROR = {
  code: 'platform.sign_in_unavailable',
  message: 'the token endpoint answered 503 to the password grant',
  hint: undefined,
};
const REFUSED_ERROR = {
  code: 'platform.sign_in_refused',
  message: 'the token endpoint answered 400 (invalid_grant) to the password grant',
  hint: 'Check TECHNICAL_USERNAME and TECHNICAL_PASSWORD: the technical user of the connect subscription, not a person.',
};

describe('a session from start to stop', () => {
  it('logs in, refreshes at its time and not before, revokes what was replaced, and at the end what is left', async () => {
    const world = await newWorld().start();
    const { clock, session } = world;
    const first = world.stored(1, 1_000_000);
    expect(world.told()).toEqual({
      requests: [LOGIN],
      files: [[first]],
      lines: [['info', { event: 'session.valid', grant: 'password' }, 'session with the platform']],
      states: [withoutToken({}), withToken(1, 0, { state: 'valid', renewsInMs: 600_000 })],
      renewals: ['password'],
    });

    await clock.advance(599_999);
    expect(world.told()).toEqual({ requests: [], files: [], lines: [], states: [], renewals: [] });
    expect(session.snapshot()).toEqual(withToken(1, 599_999, { state: 'valid', renewsInMs: 1 }));
    await clock.advance(1);
    const second = world.stored(2, 1_000_000);
    expect(world.told()).toEqual({
      requests: [refreshOf(1), revocationOf(1)],
      files: [[second, first], [second]],
      lines: [['debug', { event: 'session.valid', grant: 'refresh_token' }, 'session renewed'], REVOKED],
      states: [withToken(1, 600_000, { state: 'renewing' }), withToken(2, 0, { state: 'valid', renewsInMs: 600_000 })],
      renewals: ['refresh_token'],
    });

    await session.stop();
    expect(world.told()).toEqual({
      requests: [revocationOf(2)],
      files: [[], []],
      lines: [REVOKED],
      states: [withToken(2, 0, { state: 'revoked', usable: false })],
      renewals: [],
    });
    expect(clock.waiting).toBe(0);
    expect(session.snapshot()).toEqual(withoutToken({ state: 'revoked' }));
    await session.stop();
    await clock.advance(86_400_000);
    expect(world.told()).toEqual({ requests: [], files: [], lines: [], states: [], renewals: [] });
  });

  it('begins with the tokens of the last run, and asks for its own beside them', async () => {
    const world = newWorld();
    world.left = [world.stored(7, 1_000), world.stored(8, 0)];
    await world.start();
    const { requests, files, lines } = world.told();
    const refreshToken = { ...revocationOf(8), form: { ...revocationOf(8).form, token: 'r-8' } };
    expect(requests.toSorted(byText)).toEqual([LOGIN, revocationOf(7), revocationOf(8), refreshToken].toSorted(byText));
    const leftovers = ['info', { event: 'session.leftovers', tokens: 2 }, 'revoking the tokens of the last run'];
    const valid = ['info', { event: 'session.valid', grant: 'password' }, 'session with the platform'];
    expect(lines.toSorted(byText)).toEqual([leftovers, valid, REVOKED, REVOKED].toSorted(byText));
    expect(files.at(-1)).toEqual([world.stored(1, 1_000_000)]);
    expect(files.flat()).toContainEqual(world.left[1]);
  });

  it('starts once, and asks for nothing where its signal has fired before', async () => {
    const world = newWorld();
    world.ending.abort();
    await world.start();
    expect(world.asked()).toEqual([]);
    expect(world.session.snapshot()).toEqual(withoutToken({ state: 'none' }));
    await world.start();
    const other = await newWorld().start();
    await expect(other.start()).rejects.toThrow('a session starts once');
    other.ending.abort();
    await other.clock.advance(900_000);
    expect(other.asked()).toEqual(['password']);
  });
});

describe('a platform that is away', () => {
  it('is tried ever later by chance, and said once, at each doubling, and when it is there again', async () => {
    const world = newWorld({ chance: 1 });
    const { clock, session } = world;
    world.answer = async () => AWAY;
    await world.start();
    const waits = [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000, 30_000];
    expect(world.told().lines).toEqual([
      [
        'warn',
        {
          event: 'session.failed',
          code: AWAY_ERROR.code,
          error: AWAY_ERROR.message,
          hint: undefined,
          retryInMs: 1_000,
          attempts: 1,
          failingForMs: 0,
        },
        'no session with the platform',
      ],
    ]);
    let failingForMs = 0;
    for (const [at, waitMs] of waits.entries()) {
      expect(session.snapshot()).toEqual(
        withoutToken({ state: 'waiting', retryInMs: waitMs, failures: at + 1, lastError: AWAY_ERROR }),
      );
      await clock.advance(waitMs - 1);
      expect(world.told().requests).toEqual([]);
      await clock.advance(1);
      failingForMs += waitMs;
      const attempts = at + 2;
      const isSaid = [2, 4, 8].includes(attempts);
      const fields = {
        event: isSaid ? 'session.still_failing' : 'session.attempt_failed',
        code: AWAY_ERROR.code,
        error: AWAY_ERROR.message,
        hint: undefined,
        retryInMs: waits[at + 1] ?? 30_000,
        attempts,
        failingForMs,
      };
      const { requests, lines, states, files, renewals } = world.told();
      expect([requests, files, renewals]).toEqual([[LOGIN], [], []]);
      expect(lines).toEqual([
        isSaid ? ['warn', fields, 'still no session with the platform'] : ['debug', fields, 'another sign-in failed'],
      ]);
      expect(states).toEqual([
        withoutToken({ failures: attempts - 1, lastError: AWAY_ERROR }),
        withoutToken({ state: 'waiting', retryInMs: fields.retryInMs, failures: attempts, lastError: AWAY_ERROR }),
      ]);
    }
    world.answer = async () => undefined;
    await clock.advance(30_000);
    const { lines, states } = world.told();
    expect(lines).toEqual([
      [
        'info',
        { event: 'session.valid', grant: 'password', attempts: 10, missedForMs: failingForMs + 30_000 },
        'session with the platform',
      ],
    ]);
    expect(states.at(-1)).toEqual(withToken(1, 0, { state: 'valid', renewsInMs: 750_000 }));
  });

  it.each([
    ['a 429 is believed', 429, '7', 7_000],
    ['a 429 is believed for a quarter of an hour', 429, '900', 900_000],
    ['and for no longer', 429, '901', 900_000],
    ['a 503 is believed for a minute', 503, '60', 60_000],
    ['and for no longer ', 503, '61', 60_000],
    ['less than the wait of an answer without it is not', 503, '0', 500],
    ['words of no time are none', 429, 'soon', 500],
    ['a sign-in that is refused does not wait by it', 401, '7', 5_000],
  ])('is left alone for as long as it asks: %s (%d, %s)', async (_, status, header, retryInMs) => {
    const world = newWorld();
    world.answer = async () => ({ status, text: '', headers: { 'retry-after': header } });
    await world.start();
    expect(world.session.snapshot()).toMatchObject({ state: 'waiting', retryInMs, failures: 1 });
    expect(world.told().lines[0]![1]).toMatchObject({ retryInMs, attempts: 1 });
    await world.clock.advance(retryInMs - 1);
    expect(world.asked()).toEqual(['password']);
    await world.clock.advance(1);
    expect(world.asked()).toEqual(['password']);
  });

  it('is another matter than a sign-in that is refused: each counts for itself', async () => {
    const world = newWorld();
    const { clock, session } = world;
    world.answer = async () => REFUSED;
    await world.start();
    const waitOf = () => [session.snapshot().retryInMs, session.snapshot().failures];
    expect(waitOf()).toEqual([5_000, 1]);
    await clock.advance(5_000);
    expect(waitOf()).toEqual([10_000, 2]);
    expect(session.snapshot()).toEqual(
      withoutToken({ state: 'waiting', retryInMs: 10_000, failures: 2, lastError: REFUSED_ERROR }),
    );
    world.answer = async () => AWAY;
    await clock.advance(10_000);
    expect(waitOf()).toEqual([500, 1]);
    world.answer = async () => REFUSED;
    await clock.advance(500);
    expect(waitOf()).toEqual([5_000, 1]);
    const said = world
      .told()
      .lines.map(([level, { event, code, hint, attempts, failingForMs }, text]) => [
        level,
        event,
        code,
        hint,
        attempts,
        failingForMs,
        text,
      ]);
    const { code, hint } = REFUSED_ERROR;
    expect(said).toEqual([
      ['error', 'session.refused', code, hint, 1, 0, 'no session with the platform'],
      ['warn', 'session.still_failing', code, hint, 2, 5_000, 'still no session with the platform'],
      ['warn', 'session.failed', AWAY_ERROR.code, undefined, 3, 15_000, 'no session with the platform'],
      ['debug', 'session.attempt_failed', code, hint, 4, 15_500, 'another sign-in failed'],
    ]);
  });
});

describe('a refresh that fails', () => {
  const failing = (code: string) => async (what: string) => {
    if (what === 'refresh_token') throw new PlatformError('no way', { code, retryable: true });
    return undefined;
  };
  const answering = (answer: Answer) => async (what: string) => (what === 'refresh_token' ? answer : undefined);

  it.each([
    ...['connection_refused', 'dns', 'unreachable', 'tls', 'proxy'].map(
      (code) => [code, failing(`platform.${code}`)] as const,
    ),
    ['429', answering({ status: 429, text: '' })] as const,
  ])('without having come to the platform leaves its token as good as it was: %s', async (_, answer) => {
    const world = await newWorld({ answer }).start();
    await world.clock.advance(600_000);
    expect(world.session.snapshot()).toMatchObject({ state: 'waiting', usable: true, retryInMs: 500 });
    world.told();
    world.answer = async () => undefined;
    await world.clock.advance(500);
    const { requests, renewals } = world.told();
    expect([requests, renewals]).toEqual([[refreshOf(1), revocationOf(1)], ['refresh_token']]);
  });

  it.each([
    ['platform.timeout', failing('platform.timeout'), 'platform.timeout', 'no way'],
    [
      'an error without a code',
      async (what: string) => {
        if (what === 'refresh_token') throw new TypeError('odd');
        return undefined;
      },
      undefined,
      'odd',
    ],
    [
      'a refusal',
      answering(REFUSED),
      'platform.sign_in_refused',
      'the token endpoint answered 400 (invalid_grant) to the refresh_token grant',
    ],
    [
      'a 503',
      answering(AWAY),
      'platform.sign_in_unavailable',
      'the token endpoint answered 503 to the refresh_token grant',
    ],
    [
      'a page',
      answering({ status: 200, text: '<html>' }),
      'platform.sign_in_unreadable',
      'the token endpoint answered 200, but not in JSON (no content type)',
    ],
  ])('in any other way is followed by a login at once: %s', async (_, answer, code, error) => {
    const world = await newWorld({ answer }).start();
    const first = world.stored(1, 1_000_000);
    world.told();
    await world.clock.advance(600_000);
    const second = world.stored(2, 1_000_000);
    expect(world.told()).toEqual({
      requests: [refreshOf(1), LOGIN, revocationOf(1)],
      // What may have been used up is not kept.
      files: [[second, { ...first, refreshToken: undefined }], [second]],
      lines: [
        ['info', { event: 'session.refresh_failed', code, error }, 'refresh failed, logging in instead'],
        ['info', { event: 'session.valid', grant: 'password' }, 'session with the platform'],
        REVOKED,
      ],
      states: [
        withToken(1, 600_000, { state: 'renewing' }),
        withToken(2, 0, { state: 'valid', renewsInMs: 600_000, grant: 'password' }),
      ],
      renewals: ['password'],
    });
  });

  it('is not tried again by the same token where the login after it fails too', async () => {
    const world = await newWorld().start();
    world.answer = async () => AWAY;
    await world.clock.advance(600_000);
    expect(world.asked()).toEqual(['password', 'refresh_token', 'password']);
    await world.clock.advance(500);
    expect(world.asked()).toEqual(['password']);
  });

  it('counts the life of the login’s token from the login, not from the refresh', async () => {
    const world = await newWorld().start();
    const held = Promise.withResolvers<Answer>();
    world.answer = async (what) => (what === 'refresh_token' ? held.promise : undefined);
    await world.clock.advance(610_000);
    held.resolve(REFUSED);
    await world.clock.advance(0);
    expect(world.session.snapshot()).toEqual(
      withToken(2, 0, { state: 'valid', grant: 'password', renewsInMs: 600_000 }),
    );
  });
});

describe('a token that takes long to come', () => {
  it('has lived since it was asked for', async () => {
    const held = Promise.withResolvers<undefined>();
    const world = await newWorld({ answer: () => held.promise }).start();
    await world.clock.advance(19_000);
    held.resolve(undefined);
    await world.clock.advance(0);
    expect(world.session.snapshot()).toEqual(withToken(1, 19_000, { state: 'valid', renewsInMs: 581_000 }));
    const again = Promise.withResolvers<undefined>();
    world.answer = () => again.promise;
    await world.clock.advance(590_000);
    again.resolve(undefined);
    await world.clock.advance(0);
    expect(world.session.snapshot()).toEqual(withToken(2, 9_000, { state: 'valid', renewsInMs: 591_000 }));
  });

  it('is there for nobody before it is written down', async () => {
    const held = Promise.withResolvers<void>();
    const world = newWorld();
    world.answer = async () => {
      world.disk = () => held.promise;
      return undefined;
    };
    await world.start();
    const lease = world.session.lease();
    await world.clock.advance(1_000);
    expect(world.session.snapshot()).toEqual(withoutToken({}));
    held.resolve();
    expect((await lease).accessToken).toBe(accessToken(1));
  });

  it('is waited for by everyone who asks, and one that fails fails them all', async () => {
    const held = Promise.withResolvers<Answer>();
    const world = await newWorld({ answer: () => held.promise }).start();
    const leases = Promise.allSettled([world.session.lease(), world.session.lease(new AbortController().signal)]);
    held.resolve(REFUSED);
    const error = {
      message: `there is no session with the platform now: ${REFUSED_ERROR.message}`,
      code: 'platform.no_session',
      retryable: true,
      hint: REFUSED_ERROR.hint,
    };
    for (const { reason } of (await leases) as PromiseRejectedResult[]) {
      expect(reason).toMatchObject({ ...error, cause: { code: REFUSED_ERROR.code } });
    }
    expect(world.asked()).toEqual(['password']);
    await expect(world.session.lease()).rejects.toMatchObject(error);
  });
});

describe('a session that is asked for what it has not', () => {
  it('says so without a cause before it starts', async () => {
    const { session } = newWorld();
    for (const asking of [session.lease(), session.renewNow(), session.revokeNow()]) {
      const error = await asking.catch((reason) => reason);
      expect(error).toMatchObject({ message: 'there is no session with the platform now', retryable: true });
      expect([error.code, error.cause, error.hint]).toEqual(['platform.no_session', undefined, undefined]);
    }
  });
});

const byText = (a: unknown, b: unknown) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1);
