/** The parts that the session decides by, each for itself. */
import { describe, expect, it } from 'vitest';
import { PlatformError } from '../../src/base/errors.ts';
import { issueToken, isUsable, tokenHint } from '../../src/platform/session/issued-token.ts';
import type { Session } from '../../src/platform/session/session.ts';
import { sessionReport } from '../../src/platform/session/session-report.ts';
import { snapshotOf } from '../../src/platform/session/session-snapshot.ts';
import {
  maxRestMs,
  nextGrant,
  renewAtMs,
  retryDelayMs,
  revokeByMs,
  unprovenDelayMs,
  usableUntilMs,
} from '../../src/platform/session/session-timing.ts';
import { SignInFailureLog } from '../../src/platform/session/sign-in-failure-log.ts';
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
      retryDelayMs({ kind: 'refused', sinceMs: 7_000_000, failures: 9, lastDelayMs }, 7_000_000 + forMs, () => 1);
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

  it('keep to a rest that the platform asks for, up to a quarter of an hour for a 429 and a minute else', () => {
    const rests = [undefined, 0, 60_000, 60_001, 900_000, 900_001];
    expect(rests.map((askedMs) => maxRestMs(askedMs, true))).toEqual([0, 0, 60_000, 60_001, 900_000, 900_000]);
    expect(rests.map((askedMs) => maxRestMs(askedMs, false))).toEqual([0, 0, 60_000, 60_000, 60_000, 60_000]);
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
    expect(login).toEqual({
      accessToken: 'a',
      refreshToken: 'r',
      grant: 'password',
      issuedAtMs: 1_000,
      lifeMs: 100_000,
      expiresAtMs: 101_000,
      renewAtMs: 61_000,
      refreshUntilMs: 1_000 + DAY,
      inUse: 0,
      refused: false,
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

  it('is told of whole: what it is, how long it has been and will be, and what went wrong', () => {
    const token = issueToken({ ...TOKENS, accessToken: '0123456789abcdef' }, 'password', 1_000, undefined, () => 0);
    const source = { state: 'valid', usable: true, token, nextAtMs: 61_000, failures: 0, error: undefined } as const;
    const valid = {
      state: 'valid',
      usable: true,
      grant: 'password',
      ageMs: 1_000,
      expiresInMs: 99_000,
      renewsInMs: 59_000,
      retryInMs: undefined,
      accessTokenHint: '…cdef',
      failures: 0,
      lastError: undefined,
    };
    expect(snapshotOf(source, 2_000)).toEqual(valid);
    expect(snapshotOf(source, 200_000)).toEqual({ ...valid, ageMs: 199_000, expiresInMs: 0, renewsInMs: 0 });
    const error = new PlatformError('away', { code: 'platform.503', hint: 'Wait.' });
    expect(snapshotOf({ ...source, state: 'waiting', usable: false, failures: 2, error }, 2_000)).toEqual({
      ...valid,
      state: 'waiting',
      usable: false,
      renewsInMs: undefined,
      retryInMs: 59_000,
      failures: 2,
      lastError: { code: 'platform.503', message: 'away', hint: 'Wait.' },
    });
    const without = { ...source, state: 'renewing', token: undefined, nextAtMs: undefined } as const;
    expect(snapshotOf({ ...without, error: { hint: 'of no error of ours' } }, 2_000)).toEqual({
      ...valid,
      state: 'renewing',
      grant: undefined,
      ageMs: undefined,
      expiresInMs: undefined,
      renewsInMs: undefined,
      accessTokenHint: undefined,
      lastError: { code: 'unknown', message: '[object Object]', hint: undefined },
    });
  });

  it('is reported in whole seconds, and of what there is', () => {
    const report = (snapshot: object) => sessionReport({ snapshot: () => snapshot } as unknown as Session);
    const lastError = { code: 'platform.503', message: 'away', hint: 'Wait.' };
    expect(
      report({
        state: 'waiting',
        usable: true,
        grant: 'password',
        ageMs: 1_499,
        expiresInMs: 1_500,
        renewsInMs: 0,
        retryInMs: 499,
        accessTokenHint: '…cdef',
        failures: 2,
        lastError,
      }),
    ).toEqual({
      state: 'waiting',
      usable: true,
      grant: 'password',
      age_seconds: 1,
      expires_in_seconds: 2,
      renews_in_seconds: 0,
      retry_in_seconds: 0,
      access_token: '…cdef',
      failures: 2,
      last_error: lastError,
    });
    expect(report({ state: 'none', usable: false, failures: 0 })).toEqual({
      state: 'none',
      usable: false,
      failures: 0,
    });
  });
});

describe('what the log says of the sign-in', () => {
  const away = new PlatformError('away', { code: 'platform.503', retryable: true });
  const refused = new PlatformError('no', { code: 'platform.401', hint: 'Look.' });
  function world() {
    const clock = new ManualClock();
    const lines: unknown[] = [];
    const levels = ['debug', 'info', 'warn', 'error'].map((level) => [
      level,
      (fields: object, text: string) => lines.push([level, fields, text]),
    ]);
    return { clock, lines, log: new SignInFailureLog(clock, Object.fromEntries(levels) as never) };
  }
  const AWAY = { code: 'platform.503', error: 'away', hint: undefined };
  const REFUSED = { code: 'platform.401', error: 'no', hint: 'Look.' };

  it('is nothing loud of a renewal that went well', () => {
    const { lines, log } = world();
    log.recovered('password');
    log.recovered('refresh_token');
    expect(lines).toEqual([
      ['info', { event: 'session.valid', grant: 'password' }, 'session with the platform'],
      ['debug', { event: 'session.valid', grant: 'refresh_token' }, 'session renewed'],
    ]);
  });

  it('is each failure once and clearly, and that it is there again where it was missed', async () => {
    const { clock, lines, log } = world();
    for (const _ of [1, 2]) {
      log.failed(away, false, 500.4);
      await clock.advance(1_000.4);
      log.failed(refused, true, 5_000);
      log.recovered('refresh_token');
      const [first, second] = [
        { attempts: 1, failingForMs: 0, retryInMs: 500 },
        { attempts: 2, failingForMs: 1_000, retryInMs: 5_000 },
      ];
      expect(lines.splice(0)).toEqual([
        ['warn', { event: 'session.failed', ...AWAY, ...first }, 'no session with the platform'],
        ['error', { event: 'session.refused', ...REFUSED, ...second }, 'no session with the platform'],
        [
          'info',
          { event: 'session.valid', grant: 'refresh_token', attempts: 2, missedForMs: 1_000 },
          'session with the platform',
        ],
      ]);
    }
  });

  it('is of each kind of failure for itself: at each doubling, every ten minutes, and to who looks closely', async () => {
    const { clock, lines, log } = world();
    const levelsOf = () =>
      (lines.splice(0) as [string, { event: string }][]).map(([level, { event }]) => [level, event]);
    log.failed(away, false, 0);
    log.failed(new Error('odd'), false, 0);
    expect(lines.splice(1)).toEqual([
      [
        'warn',
        {
          event: 'session.failed',
          code: 'unknown',
          error: 'odd',
          hint: undefined,
          retryInMs: 0,
          attempts: 2,
          failingForMs: 0,
        },
        'no session with the platform',
      ],
    ]);
    lines.splice(0);
    const still = ['warn', 'session.still_failing'];
    const quiet = ['debug', 'session.attempt_failed'];
    for (let attempt = 2; attempt <= 5; attempt++) log.failed(refused, true, 0);
    expect(levelsOf()).toEqual([['error', 'session.refused'], still, quiet, still]);
    await clock.advance(599_999);
    log.failed(refused, true, 0);
    await clock.advance(1);
    log.failed(refused, true, 7);
    const fields = { ...REFUSED, retryInMs: 7, attempts: 8, failingForMs: 600_000 };
    expect(lines.splice(1)).toEqual([
      ['warn', { event: 'session.still_failing', ...fields }, 'still no session with the platform'],
    ]);
    expect(levelsOf()).toEqual([quiet]);
  });
});
