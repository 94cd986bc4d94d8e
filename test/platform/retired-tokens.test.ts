/** Tokens on their way to revocation: in which order, at which moment, how often, and what is said of each. */
import { describe, expect, it } from 'vitest';
import { PlatformError } from '../../src/base/errors.ts';
import { RetiredTokens } from '../../src/platform/session/retired-tokens.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const REVOKED = ['debug', { event: 'session.revoked' }, 'token revoked'];
const FAILED = ['debug', { event: 'session.revoke_failed', code: 'platform.503' }, 'a token is not revoked yet'];
const MISSED = ['info', { event: 'session.revoke_missed' }, 'a replaced token expired before it could be revoked'];
const away = () => new PlatformError('away', { code: 'platform.503', retryable: true });

function world(answer: (text: string, signal: AbortSignal) => Promise<void> = async () => {}) {
  const clock = new ManualClock();
  const chance = { is: 0 };
  clock.random = () => chance.is;
  const lines: unknown[] = [];
  const log = Object.fromEntries(
    ['debug', 'info', 'warn', 'error'].map((level) => [
      level,
      (fields: object, text: string) => lines.push([level, fields, text]),
    ]),
  ) as never;
  const asked: string[] = [];
  const gone = { times: 0, next: () => {} };
  const tokens = new RetiredTokens({
    clock,
    log,
    revoke: async (text, signal) => {
      asked.push(text);
      await answer(text, signal);
    },
    onGone: () => {
      gone.times++;
      gone.next();
    },
  });
  /** A token that ends so long from now. */
  const token = (accessToken: string, endsInMs: number, inUse = 0, lifeMs = 60_000) => ({
    issued: { accessToken, refreshToken: undefined, expiresAtMs: clock.monotonicMs() + endsInMs, lifeMs, inUse },
    texts: () => [accessToken],
    expiresWallMs: 0,
  });
  return { clock, chance, lines, asked, gone, tokens, token };
}

const settled = async () => {
  for (let turn = 0; turn < 30; turn++) await Promise.resolve();
};

describe('tokens that were replaced', () => {
  it('are revoked one by one, what ends first first, each once', async () => {
    const hold = Promise.withResolvers<void>();
    const { clock, asked, lines, gone, tokens, token } = world((text) =>
      text === 'first' ? hold.promise : Promise.resolve(),
    );
    tokens.add(token('first', 90_000));
    await settled();
    const [late, soon] = [token('late', 80_000), token('soon', 50_000)];
    tokens.add(late);
    tokens.add(soon);
    tokens.add(token('soon', 50_000));
    tokens.add(token('again', 40_000));
    tokens.keep('again');
    expect(tokens.list().slice(1)).toEqual([late, soon]);
    await settled();
    expect([asked, gone.times]).toEqual([['first'], 0]);
    hold.resolve();
    await settled();
    expect(asked).toEqual(['first', 'soon', 'late']);
    expect(lines).toEqual([REVOKED, REVOKED, REVOKED]);
    expect([tokens.list(), gone.times, clock.waiting]).toEqual([[], 3, 0]);
  });

  it('are revoked whatever the moment at which they come, beside others that have just ended', async () => {
    for (let turns = 0; turns < 12; turns++) {
      const { asked, gone, tokens, token } = world();
      gone.next = async () => {
        gone.next = () => {};
        for (let turn = 0; turn < turns; turn++) await Promise.resolve();
        tokens.add(token('second', 60_000));
      };
      tokens.add(token('first', 60_000));
      await settled();
      expect(asked).toEqual(['first', 'second']);
    }
  });

  it('that calls use wait for these, but not until they have ended', async () => {
    const { clock, asked, tokens, token } = world();
    tokens.add(token('used', 60_000, 1));
    await clock.advance(56_999);
    expect([asked, clock.waiting]).toEqual([[], 1]);
    await clock.advance(1);
    expect([asked, clock.waiting]).toEqual([['used'], 0]);
  });

  it('that calls use are each revoked before it ends, whatever the others wait for', async () => {
    const { clock, asked, tokens, token } = world();
    tokens.add(token('later', 120_000, 1));
    tokens.add(token('sooner', 60_000, 1));
    await clock.advance(57_000);
    expect([asked, clock.waiting]).toEqual([['sooner'], 1]);
    await clock.advance(59_999);
    expect(asked).toEqual(['sooner']);
    await clock.advance(1);
    expect(asked).toEqual(['sooner', 'later']);
  });

  it('that calls let go of are revoked when somebody looks, by one timer and not by two', async () => {
    const { clock, asked, tokens, token } = world();
    const [one, two] = [token('one', 60_000, 1), token('two', 60_000, 1)];
    tokens.add(one);
    tokens.add(two);
    await settled();
    tokens.look();
    tokens.look();
    await settled();
    expect([asked, clock.waiting]).toEqual([[], 1]);
    two.issued.inUse = 0;
    tokens.look();
    await settled();
    expect([asked, tokens.list(), clock.waiting]).toEqual([['two'], [one], 1]);
  });

  it.each([
    ['of a short life soon', 3_599_999, [1_000, 2_000, 4_000, 8_000, 15_000, 15_000]],
    ['of a day without hurry', 3_600_000, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 120_000, 120_000]],
  ])('are tried again while the platform is away: those %s', async (_, lifeMs, waits) => {
    const { clock, chance, asked, lines, gone, tokens, token } = world(() => Promise.reject(away()));
    chance.is = 1;
    const one = token('one', 4_000_000, 0, lifeMs);
    tokens.add(one);
    await clock.advance(0);
    for (const waitMs of waits) {
      expect([asked.splice(0), lines.splice(0)]).toEqual([['one'], [FAILED]]);
      await clock.advance(waitMs - 1);
      expect([asked, tokens.list(), gone.times, clock.waiting]).toEqual([[], [one], 0, 1]);
      await clock.advance(1);
    }
    chance.is = 0;
    await clock.advance(120_000);
    asked.splice(0);
    // Half a second at the least.
    await clock.advance(499);
    const before = asked.length;
    await clock.advance(1);
    expect([before, asked.length]).toEqual([0, 1]);
  });

  it('do not wait for one another: one is away, the next is revoked', async () => {
    const { clock, asked, lines, tokens, token } = world((text) =>
      text === 'sooner' ? Promise.reject(away()) : Promise.resolve(),
    );
    tokens.add(token('sooner', 60_000));
    tokens.add(token('later', 120_000));
    await clock.advance(0);
    expect([asked, lines]).toEqual([
      ['sooner', 'later'],
      [FAILED, REVOKED],
    ]);
  });

  it('are given up in the millisecond in which they end, and not before', async () => {
    const { clock, asked, lines, gone, tokens, token } = world(() => Promise.reject(away()));
    tokens.add(token('over', 0));
    await clock.advance(0);
    expect([asked, lines.splice(0), gone.times, tokens.list()]).toEqual([[], [MISSED], 1, []]);
    tokens.add(token('nearly', 501));
    await clock.advance(500);
    expect([asked, tokens.list().length]).toEqual([['nearly', 'nearly'], 1]);
    await clock.advance(500);
    expect([asked.length, lines, gone.times, tokens.list()]).toEqual([2, [FAILED, FAILED, MISSED], 2, []]);
    expect(clock.waiting).toBe(0);
  });

  it.each([
    [new PlatformError('no', { code: 'platform.403', retryable: false }), { code: 'platform.403', error: 'no' }],
    [Object.assign(new Error('odd'), { retryable: true }), { code: undefined, error: 'odd' }],
  ])('are given up where the platform refuses, or nobody knows why: %s', async (error, fields) => {
    const { clock, asked, lines, gone, tokens, token } = world(() => Promise.reject(error));
    tokens.add(token('one', 60_000));
    await clock.advance(60_000);
    expect([asked, tokens.list(), gone.times, clock.waiting]).toEqual([['one'], [], 1, 0]);
    const refused = { event: 'session.revoke_refused', ...fields };
    expect(lines).toEqual([['warn', refused, 'the platform refused to revoke a token']]);
  });

  it('are revoked when all of their texts are, and all of them again where one is not', async () => {
    let isAway = true;
    const { clock, asked, lines, tokens, token } = world((text) =>
      text === 'refresh' && isAway ? Promise.reject(away()) : Promise.resolve(),
    );
    tokens.add({ ...token('access', 60_000), texts: () => ['access', 'refresh'] });
    await clock.advance(0);
    isAway = false;
    await clock.advance(500);
    expect([asked, lines]).toEqual([
      ['access', 'refresh', 'access', 'refresh'],
      [FAILED, REVOKED],
    ]);
  });
});

describe('a token that has two texts', () => {
  const refused = new PlatformError('it has expired', { code: 'platform.400' });
  const line = [
    'warn',
    { event: 'session.revoke_refused', code: 'platform.400', error: 'it has expired' },
    'the platform refused to revoke a token',
  ];

  it.each([
    ['the access token', ['access']],
    ['the refresh token', ['refresh']],
    ['each', ['access', 'refresh']],
  ])('is given up where %s is refused, when both were tried', async (_, texts) => {
    const { clock, asked, lines, tokens, token } = world(async (text) => {
      if (texts.includes(text)) throw refused;
    });
    tokens.add({ ...token('access', 60_000), texts: () => ['access', 'refresh'] });
    await clock.advance(60_000);
    expect([asked, tokens.list(), lines]).toEqual([['access', 'refresh'], [], [line]]);
  });

  it('is tried again where one is refused and the platform is away for the other', async () => {
    let isAway = true;
    const { clock, asked, lines, tokens, token } = world(async (text) => {
      if (text === 'access') throw refused;
      if (isAway) throw away();
    });
    tokens.add({ ...token('access', 60_000), texts: () => ['access', 'refresh'] });
    await clock.advance(0);
    expect([asked.splice(0), lines.splice(0), tokens.list().length]).toEqual([['access', 'refresh'], [FAILED], 1]);
    isAway = false;
    await clock.advance(500);
    expect([asked, lines, tokens.list()]).toEqual([['access', 'refresh'], [line], []]);
  });
});

describe('tokens at the end', () => {
  it('are all revoked at once, used or not, in their order, and no timer is left', async () => {
    const { clock, asked, lines, gone, tokens, token } = world();
    tokens.add(token('used', 60_000, 1));
    tokens.add(token('used too', 50_000, 2));
    await settled();
    expect(await tokens.drain(1_000)).toEqual([]);
    expect([asked, lines, gone.times, clock.waiting]).toEqual([['used', 'used too'], [REVOKED, REVOKED], 2, 0]);
    const late = token('late', 60_000);
    tokens.add(late);
    tokens.look();
    await clock.advance(3_600_000);
    expect([asked, tokens.list()]).toEqual([['used', 'used too'], [late]]);
  });

  it('wait for the one that is under way, which is not asked for twice', async () => {
    const hold = Promise.withResolvers<void>();
    const { asked, tokens, token } = world((text) => (text === 'first' ? hold.promise : Promise.resolve()));
    tokens.add(token('first', 90_000));
    tokens.add(token('second', 90_000));
    await settled();
    const draining = tokens.drain(1_000);
    await settled();
    expect(asked).toEqual(['first']);
    hold.resolve();
    expect(await draining).toEqual([]);
    expect(asked).toEqual(['first', 'second']);
  });

  it('are left when the budget is over, without a word of each', async () => {
    const signals: AbortSignal[] = [];
    const { clock, asked, lines, gone, tokens, token } = world((_, signal) => {
      signals.push(signal);
      return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(away())));
    });
    const all = [token('one', 60_000, 1), token('two', 60_000, 1)];
    for (const one of all) tokens.add(one);
    await settled();
    let left: unknown;
    void tokens.drain(1_000).then((tokensLeft) => {
      left = tokensLeft;
    });
    await clock.advance(999);
    expect([asked, left, signals.map(({ aborted }) => aborted)]).toEqual([['one'], undefined, [false]]);
    await clock.advance(1);
    expect([asked, left, lines, gone.times, clock.waiting]).toEqual([['one'], all, [], 0, 0]);
    expect(signals[0]!.aborted).toBe(true);
  });

  it('are each tried once where the platform is away', async () => {
    const { clock, asked, lines, tokens, token } = world(() => Promise.reject(away()));
    const all = [token('one', 60_000, 1), token('two', 60_000, 1)];
    for (const one of all) tokens.add(one);
    await settled();
    expect(await tokens.drain(1_000)).toEqual(all);
    expect([asked, lines, clock.waiting]).toEqual([['one', 'two'], [FAILED, FAILED], 0]);
    await clock.advance(60_000);
    expect(asked).toEqual(['one', 'two']);
  });
});
