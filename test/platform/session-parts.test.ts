/** The parts that the session decides by, each for itself. */
import { describe, expect, it } from 'vitest';
import { PlatformError } from '../../src/base/errors.ts';
import { formRequest } from '../../src/platform/grants/form-request.ts';
import { hintOf } from '../../src/platform/grants/grant-error.ts';
import { processTokenAnswer } from '../../src/platform/grants/token-answer.ts';
import { issueToken, isUsable, tokenHint } from '../../src/platform/session/issued-token.ts';
import { RetiredTokens } from '../../src/platform/session/retired-tokens.ts';
import type { Session } from '../../src/platform/session/session.ts';
import type { StoredToken } from '../../src/platform/session/session-file.ts';
import { sessionReport } from '../../src/platform/session/session-report.ts';
import {
  nextGrant,
  renewAtMs,
  retryDelayMs,
  revokeByMs,
  unprovenDelayMs,
  usableUntilMs,
} from '../../src/platform/session/session-timing.ts';
import { SignInFailureLog } from '../../src/platform/session/sign-in-failure-log.ts';
import { TokenKeeper } from '../../src/platform/session/token-keeper.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

describe('times of the session', () => {
  it('follow from the life of a token, with a bound for long lives', () => {
    expect([renewAtMs(0, 660_000, () => 0), renewAtMs(0, 660_000, () => 1)]).toEqual([396_000, 495_000]);
    expect(renewAtMs(100, 1_000, () => 1)).toBe(5_100);
    expect([usableUntilMs(660_000, 660_000), usableUntilMs(100_000, 100_000)]).toEqual([600_000, 90_000]);
    expect([revokeByMs(660_000, 660_000), revokeByMs(100_000, 100_000)]).toEqual([630_000, 95_000]);
  });

  it('use a refresh token while the one after it would still be seen', () => {
    const token = { refreshToken: 'r', refreshUntilMs: 10_000, lifeMs: 4_000 };
    expect([nextGrant(token, 5_999), nextGrant(token, 6_000)]).toEqual(['refresh_token', 'password']);
    expect([nextGrant(undefined, 0), nextGrant({ ...token, refreshToken: undefined }, 0)]).toEqual([
      'password',
      'password',
    ]);
  });

  it('space tries: of one that is refused up to a minute, and after a quarter of an hour up to an hour', () => {
    const refused = (lastDelayMs: number, forMs: number) =>
      retryDelayMs({ kind: 'refused', sinceMs: 0, failures: 9, lastDelayMs }, forMs, () => 1);
    expect([refused(0, 0), refused(5_000, 0), refused(40_000, 899_999), refused(60_000, 900_000)]).toEqual([
      5_000, 10_000, 60_000, 120_000,
    ]);
    expect(refused(3_000_000, 900_000)).toBe(3_600_000);
  });

  it('space tries of a platform that is away, from chance to an even spread', () => {
    const away = (failures: number, random: number, restMs?: number) =>
      retryDelayMs({ kind: 'unavailable', sinceMs: 0, failures, lastDelayMs: 0 }, 0, () => random, restMs);
    expect([1, 2, 3, 6, 8].map((failures) => away(failures, 1))).toEqual([1_000, 2_000, 4_000, 30_000, 30_000]);
    expect([away(1, 0), away(8, 0), away(9, 1)]).toEqual([500, 500, 30_000]);
    expect(away(9, 0)).toBe(20_500);
    expect([away(1, 0, 7_000), away(9, 1, 7_000)]).toEqual([7_000, 30_000]);
  });

  it('space tokens that never worked, ever more, up to a minute', () => {
    expect([0, 1, 2, 3, 4, 5, 6, 60].map(unprovenDelayMs)).toEqual([
      0, 0, 5_000, 10_000, 20_000, 40_000, 60_000, 60_000,
    ]);
  });
});

describe('a token', () => {
  const TOKENS = { accessToken: 'a', refreshToken: 'r', expiresInMs: 100_000 };
  const DAY = 86_400_000;

  it('counts its refresh token’s day from the login, not from a refresh', () => {
    const login = issueToken(TOKENS, 'password', 1_000, undefined, () => 0);
    expect(login).toMatchObject({
      refreshUntilMs: 1_000 + DAY,
      expiresAtMs: 101_000,
      issuedAtMs: 1_000,
      proven: false,
    });
    expect(issueToken(TOKENS, 'refresh_token', 50_000, login, () => 0).refreshUntilMs).toBe(1_000 + DAY);
    expect(issueToken(TOKENS, 'password', 50_000, login, () => 0).refreshUntilMs).toBe(50_000 + DAY);
    expect(issueToken(TOKENS, 'refresh_token', 50_000, undefined, () => 0).refreshUntilMs).toBe(50_000 + DAY);
    expect([isUsable(login, 90_999), isUsable(login, 91_000)]).toEqual([true, false]);
    expect(isUsable({ ...login, refused: true }, 0)).toBe(false);
  });

  it('is shown by its last four characters, where it is long', () => {
    expect([tokenHint('0123456789abcdef'), tokenHint('0123456789abcde'), tokenHint('abcd')]).toEqual([
      '…cdef',
      '…',
      '…',
    ]);
  });

  it('is told of in whole seconds, and of what there is', () => {
    const snapshot = { state: 'valid', usable: true, ageMs: 1_499, expiresInMs: 1_500, renewsInMs: 0, failures: 2 };
    expect(sessionReport({ snapshot: () => snapshot } as unknown as Session)).toEqual({
      state: 'valid',
      usable: true,
      age_seconds: 1,
      expires_in_seconds: 2,
      renews_in_seconds: 0,
      failures: 2,
    });
  });
});

describe('what a token endpoint answers', () => {
  const context = { grant: 'password', sent: ['the-password', ''], wallMs: 0 };
  const answerOf = (status: number, body: unknown) => ({ status, text: JSON.stringify(body), header: () => undefined });
  const outcome = (status: number, body: unknown = {}) => {
    try {
      processTokenAnswer(answerOf(status, body), context);
      return 'taken';
    } catch (error) {
      return (error as { failure: string }).failure;
    }
  };

  it.each([
    [500, 'x', 'unavailable'],
    [499, 'x', 'refused'],
    [408, 'x', 'unavailable'],
    [429, 'x', 'rate_limited'],
    [400, 'temporarily_unavailable', 'unavailable'],
    [400, 'server_error', 'unavailable'],
    [302, 'x', 'unreadable'],
    [404, undefined, 'unreadable'],
    [404, 'x', 'refused'],
    [403, undefined, 'refused'],
    [400, undefined, 'refused'],
    [401, undefined, 'refused'],
  ])('with %d and the error %s is %s', (status, error, expected) => {
    expect(outcome(status, error === undefined ? {} : { error })).toBe(expected);
  });

  it('is a token of up to 8,192 characters, and of no more', () => {
    expect(outcome(200, { access_token: 'a'.repeat(8_192) })).toBe('taken');
    expect(outcome(200, { access_token: 'a'.repeat(8_193) })).toBe('unreadable');
    expect(outcome(201, { access_token: 'a' })).toBe('taken');
    expect(outcome(200, { access_token: 'a', error: 'none' })).toBe('unreadable');
    const lifeOf = (life: unknown) =>
      processTokenAnswer(answerOf(200, { access_token: 'a', expires_in: life }), context).expiresInMs;
    expect([lifeOf('60'), lifeOf('60 s'), lifeOf('1234567890'), lifeOf(1), lifeOf(0.5), lifeOf(90_000)]).toEqual([
      60_000, 660_000, 660_000, 1_000, 660_000, 86_400_000,
    ]);
  });

  it('is met with the hint that belongs to it', () => {
    const hint = (grant: string, error?: string, status = 400, person = false) =>
      hintOf({ grant, person }, error, status);
    expect(hint('password', 'invalid_grant')).toContain('TECHNICAL_USERNAME');
    expect(hint('refresh_token', 'invalid_grant')).toBe('Sign in again.');
    expect(hint('password', 'invalid_client')).toContain('CLIENT_AUTH=body');
    for (const error of ['unauthorized_client', 'unsupported_grant_type']) {
      for (const person of [true, false]) expect(hint('g', error, 400, person)).toContain('may not use the g grant');
    }
    expect([hint('password', undefined, 401), hint('password', 'other', 400)].map((text) => text.slice(0, 32))).toEqual(
      Array(2).fill('Check CLIENT_ID, CLIENT_SECRET, '),
    );
    for (const status of [403, 404, 302]) expect(hint('password', undefined, status)).toContain('PLATFORM_URL');
    expect(hint('authorization_code', 'invalid_grant', 400, true)).toContain('a code is good once');
    expect(hint('refresh_token', 'invalid_grant', 400, true)).toBe('Sign in again: tagferry login');
    expect(hint('authorization_code', 'invalid_client', 401, true)).toContain('where the sign-in uses it');
    expect(hint('authorization_code', undefined, 401, true)).toBe('Check CLIENT_ID, and sign in again: tagferry login');
  });

  it('may repeat nothing that was sent as a secret, in the form or in the header', () => {
    const basic = `Basic ${Buffer.from('id:s%C3%BC+x').toString('base64')}`;
    const form = new URLSearchParams({ grant_type: 'password', username: 'u', password: 'pw', client_secret: 'cs' });
    const url = new URL('http://platform');
    expect(formRequest(url, form, { authorization: basic }).sent).toEqual(['pw', 'cs', basic.slice(6), 'sü x']);
    expect(formRequest(url, new URLSearchParams(), { authorization: 'Bearer t' }).sent).toEqual(['t']);
    const nameless = `Basic ${Buffer.from('id').toString('base64')}`;
    expect(formRequest(url, new URLSearchParams({ code: 'c', token: 't', code_verifier: 'v' }), {}).sent).toEqual([
      'c',
      'v',
      't',
    ]);
    expect(formRequest(url, new URLSearchParams({ refresh_token: 'r' }), { authorization: nameless }).sent).toEqual([
      'r',
      nameless.slice(6),
    ]);
  });
});

describe('tokens that were replaced', () => {
  const token = (accessToken: string, expiresAtMs: number, inUse = 0) => ({
    issued: { accessToken, refreshToken: undefined, expiresAtMs, lifeMs: 60_000, inUse },
    texts: () => [accessToken],
    expiresWallMs: 0,
  });
  function world(answer: (text: string) => Promise<void> = async () => {}) {
    const clock = new ManualClock();
    const lines: { level: string; event: string }[] = [];
    const log = Object.fromEntries(
      ['debug', 'info', 'warn'].map((level) => [level, ({ event }: { event: string }) => lines.push({ level, event })]),
    ) as never;
    const asked: string[] = [];
    const revoke = async (text: string) => {
      asked.push(text);
      await answer(text);
    };
    const tokens = new RetiredTokens({ clock, log, revoke, onGone: () => {} });
    return { clock, lines, asked, tokens };
  }
  const settled = async () => {
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  };

  it('are revoked one by one, what ends first first, each once', async () => {
    const hold = Promise.withResolvers<void>();
    const { asked, lines, tokens } = world((text) => (text === 'first' ? hold.promise : Promise.resolve()));
    tokens.add(token('first', 90_000));
    await settled();
    tokens.add(token('late', 80_000));
    tokens.add(token('soon', 50_000));
    tokens.add(token('soon', 50_000));
    tokens.add(token('again', 40_000));
    tokens.keep('again');
    expect(tokens.list()).toHaveLength(3);
    await settled();
    expect(asked).toEqual(['first']);
    hold.resolve();
    await settled();
    expect(asked).toEqual(['first', 'soon', 'late']);
    expect(lines).toEqual(Array(3).fill({ level: 'debug', event: 'session.revoked' }));
    expect(tokens.list()).toEqual([]);
  });

  it('that calls use wait for these, but not until they have ended', async () => {
    const { clock, asked, tokens } = world();
    tokens.add(token('used', clock.monotonicMs() + 60_000, 1));
    await clock.advance(56_999);
    expect(asked).toEqual([]);
    await clock.advance(1);
    expect(asked).toEqual(['used']);
  });

  it('that calls use are each revoked before it ends, whatever the others wait for', async () => {
    const { clock, asked, tokens } = world();
    tokens.add(token('later', clock.monotonicMs() + 120_000, 1));
    tokens.add(token('sooner', clock.monotonicMs() + 60_000, 1));
    await clock.advance(57_000);
    expect(asked).toEqual(['sooner']);
    await clock.advance(60_000);
    expect(asked).toEqual(['sooner', 'later']);
  });

  it('are tried again while the platform is away, and given up where it refuses', async () => {
    let error: Error = new PlatformError('away', { code: 'platform.503', retryable: true });
    const { clock, asked, lines, tokens } = world(() => Promise.reject(error));
    tokens.add(token('one', clock.monotonicMs() + 60_000));
    await clock.advance(10_000);
    expect(asked.length).toBeGreaterThan(1);
    expect(tokens.list()).toHaveLength(1);
    error = new PlatformError('no', { code: 'platform.403', retryable: false });
    await clock.advance(20_000);
    expect(tokens.list()).toEqual([]);
    expect(lines.at(-1)).toEqual({ level: 'warn', event: 'session.revoke_refused' });
  });
});

describe('the tokens that are alive', () => {
  const DAY = 86_400_000;
  function world(left: StoredToken[] = []) {
    const clock = new ManualClock();
    const lines: string[] = [];
    const line = ({ event }: { event: string }) => lines.push(event);
    const log = { debug: () => {}, info: line, warn: line } as never;
    const revoked: string[] = [];
    const written: string[][] = [];
    const disk = { isBroken: false };
    const file = {
      read: async () => left,
      write: async (tokens: StoredToken[]) => {
        if (disk.isBroken) throw new Error('no disk');
        written.push(tokens.map(({ accessToken }) => accessToken));
      },
    };
    const revoke = async (text: string) => void revoked.push(text);
    const keeper = new TokenKeeper({ file: file as never, clock, log, revoke });
    const issued = (accessToken: string, refreshToken: string, grant: 'password' | 'refresh_token' = 'refresh_token') =>
      issueToken({ accessToken, refreshToken, expiresInMs: 600_000 }, grant, clock.monotonicMs(), undefined, () => 0);
    const settled = async () => {
      for (let turn = 0; turn < 40; turn++) await Promise.resolve();
    };
    return { clock, lines, revoked, written, disk, keeper, issued, settled };
  }

  it('are in the file before they are used, and revoked when they are replaced', async () => {
    const { keeper, issued, written, revoked, settled } = world();
    await keeper.adopt(issued('one', 'r1', 'password'));
    expect([written, keeper.current?.accessToken]).toEqual([[['one']], 'one']);
    await keeper.adopt(issued('two', 'r2'));
    await settled();
    expect([written[1], written.at(-1), revoked]).toEqual([['two', 'one'], ['two'], ['one']]);
    await keeper.end(1_000);
    expect([revoked, written.at(-1), keeper.current]).toEqual([['one', 'two'], [], undefined]);
  });

  it('wait with those that share their refresh token, which revoking one would end', async () => {
    const { keeper, issued, revoked, settled } = world();
    await keeper.adopt(issued('one', 'r', 'password'));
    await keeper.adopt(issued('two', 'r'));
    await keeper.adopt(issued('three', 'r'));
    await settled();
    expect(revoked).toEqual([]);
    await keeper.adopt(issued('four', 'r', 'password'));
    await settled();
    expect(revoked).toEqual(['one', 'two', 'three']);
  });

  it('are not revoked where a server gives the same one again', async () => {
    const { keeper, issued, revoked, settled, written } = world();
    await keeper.adopt(issued('same', 'r1', 'password'));
    await keeper.adopt(issued('same', 'r2'));
    await settled();
    expect(revoked).toEqual([]);
    const used = keeper.current!;
    used.inUse = 1;
    await keeper.adopt(issued('other', 'r3'));
    await settled();
    expect(revoked).toEqual([]);
    // It is on its way to revocation, and comes back.
    await keeper.adopt(issued('same', 'r4'));
    used.inUse = 0;
    keeper.released(used);
    await settled();
    expect(revoked).toEqual(['other']);
    expect(written.at(-1)).toEqual(['same']);
  });

  it('are none of the session’s any more where it ended while one was written down', async () => {
    const { keeper, issued, revoked } = world();
    const adopting = keeper.adopt(issued('late', 'r', 'password'));
    const ending = keeper.end(1_000);
    await Promise.all([adopting, ending]);
    expect([keeper.current, revoked]).toEqual([undefined, ['late']]);
  });

  it('say once that they cannot be written down, and again after it went well', async () => {
    const { keeper, issued, disk, lines } = world();
    disk.isBroken = true;
    await keeper.adopt(issued('one', 'r1'));
    await keeper.adopt(issued('two', 'r2'));
    expect(lines).toEqual(['session.file_failed']);
    disk.isBroken = false;
    await keeper.adopt(issued('three', 'r3'));
    disk.isBroken = true;
    await keeper.adopt(issued('four', 'r4'));
    expect(lines).toEqual(['session.file_failed', 'session.file_failed']);
  });

  it.each([
    ['surely alive', 600_000, ['a']],
    ['perhaps over by now', -1, ['a', 'r']],
    ['of a clock that was ahead', 660_000, ['a', 'r']],
  ])('of an earlier run are revoked, with their refresh token where they may be over: %s', async (_, forMs, texts) => {
    const wallMs = new ManualClock().wallMs();
    const { keeper, revoked, settled, lines } = world([
      { accessToken: 'a', refreshToken: 'r', expiresWallMs: wallMs + forMs },
      { accessToken: 'b', refreshToken: undefined, expiresWallMs: wallMs - DAY },
    ]);
    await keeper.takeUpLeftovers();
    await settled();
    expect(revoked.toSorted()).toEqual([...texts, 'b'].toSorted());
    expect(lines).toEqual(['session.leftovers']);
  });

  it('of no earlier run are not spoken of', async () => {
    const { keeper, lines } = world();
    await keeper.takeUpLeftovers();
    expect(lines).toEqual([]);
  });
});

describe('what the log says of the sign-in', () => {
  it('is each failure once and clearly, and that it is there again where it was missed', async () => {
    const clock = new ManualClock();
    const lines: [string, Record<string, unknown>][] = [];
    const levels = ['debug', 'info', 'warn', 'error'].map((level) => [
      level,
      (fields: Record<string, unknown>) => lines.push([level, fields]),
    ]);
    const log = new SignInFailureLog(clock, Object.fromEntries(levels) as never);
    const away = new PlatformError('away', { code: 'platform.503', retryable: true });
    log.recovered('password');
    log.recovered('refresh_token');
    expect(lines.splice(0)).toEqual([
      ['info', { event: 'session.valid', grant: 'password' }],
      ['debug', { event: 'session.valid', grant: 'refresh_token' }],
    ]);
    for (const _ of [1, 2]) {
      log.failed(away, false, 500);
      await clock.advance(1_000);
      log.failed(new PlatformError('no', { code: 'platform.401', retryable: false }), true, 5_000);
      log.recovered('refresh_token');
      expect(
        lines
          .splice(0)
          .map(([level, { event, attempts, failingForMs, missedForMs }]) => [
            level,
            event,
            attempts,
            failingForMs ?? missedForMs,
          ]),
      ).toEqual([
        ['warn', 'session.failed', 1, 0],
        ['error', 'session.refused', 2, 1_000],
        ['info', 'session.valid', 2, 1_000],
      ]);
    }
  });
});
