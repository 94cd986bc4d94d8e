/** Which tokens are alive, and how each ends: every state of the session file, whole. */

import { describe, expect, it } from 'vitest';
import { PlatformError } from '../../src/base/errors.ts';
import { Redactor } from '../../src/base/redactor.ts';
import { issueToken } from '../../src/platform/session/issued-token.ts';
import type { StoredToken } from '../../src/platform/session/session-file.ts';
import { TokenKeeper } from '../../src/platform/session/token-keeper.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const DAY = 86_400_000;

function world(left: StoredToken[] | Error | Promise<StoredToken[]> = []) {
  const clock = new ManualClock();
  const lines: unknown[] = [];
  const line = (level: string) => (fields: object, text: string) => lines.push([level, fields, text]);
  const log = { debug: () => {}, info: line('info'), warn: line('warn') } as never;
  const revoked: string[] = [];
  const written: StoredToken[][] = [];
  const disk = { isBroken: false };
  const file = {
    read: async () => {
      if (left instanceof Error) throw left;
      return left;
    },
    write: async (tokens: StoredToken[]) => {
      if (disk.isBroken) throw new Error('no disk');
      written.push(tokens);
    },
  };
  const platform = { revoke: async (text: string, _signal: AbortSignal): Promise<void> => void revoked.push(text) };
  const keeper = new TokenKeeper({
    redactor: new Redactor(),
    file: file as never,
    clock,
    log,
    revoke: (text, signal) => platform.revoke(text, signal),
  });
  const issued = (
    accessToken: string,
    refreshToken: string | undefined,
    grant: 'password' | 'refresh_token' = 'refresh_token',
  ) => issueToken({ accessToken, refreshToken, expiresInMs: 600_000 }, grant, clock.monotonicMs(), undefined, () => 0);
  /** As the file has one that ends so long from now. */
  const stored = (accessToken: string, refreshToken: string | undefined, endsInMs = 600_000): StoredToken => ({
    accessToken,
    refreshToken,
    expiresWallMs: clock.wallMs() + endsInMs,
  });
  const settled = async () => {
    for (let turn = 0; turn < 40; turn++) await Promise.resolve();
  };
  const names = () => written.splice(0).map((tokens) => tokens.map(({ accessToken }) => accessToken));
  return { clock, lines, revoked, written, disk, platform, keeper, issued, stored, settled, names };
}

describe('the tokens that are alive', () => {
  it('are in the file before they are used, and revoked when they are replaced', async () => {
    const { clock, keeper, issued, stored, written, revoked, settled } = world();
    const one = issued('one', 'r1', 'password');
    const adopting = keeper.adopt(one);
    expect(keeper.current).toBeUndefined();
    await adopting;
    const oneStored = stored('one', 'r1');
    expect([written.splice(0), keeper.current]).toEqual([[[oneStored]], one]);
    await clock.advance(1_000);
    await keeper.adopt(issued('two', 'r2'));
    await settled();
    const twoStored = stored('two', 'r2');
    expect([written.splice(0), revoked]).toEqual([[[twoStored, oneStored], [twoStored]], ['one']]);
    await keeper.end(1_000);
    expect([revoked, written, keeper.current]).toEqual([['one', 'two'], [[], []], undefined]);
  });

  it('stand in the file by the wall clock of now, to the millisecond', async () => {
    const { clock, keeper, issued, stored, written } = world();
    await keeper.adopt(issued('one', 'r', 'password'));
    clock.jumpWall(DAY);
    await clock.advance(10_000.4);
    written.splice(0);
    await keeper.adopt(issued('two', 'r'));
    const two = stored('two', 'r');
    const round = (token: StoredToken) => ({ ...token, expiresWallMs: Math.round(token.expiresWallMs) });
    expect(written).toEqual([[round(two), round(stored('one', 'r', 589_999.6))]]);
    expect(Number.isInteger(written[0]![1]!.expiresWallMs)).toBe(true);
  });

  it('wait with those that share their refresh token, which revoking one would end', async () => {
    const { keeper, issued, revoked, settled, names } = world();
    await keeper.adopt(issued('one', 'r', 'password'));
    await keeper.adopt(issued('two', 'r'));
    await keeper.adopt(issued('three', 'r'));
    await settled();
    expect(revoked).toEqual([]);
    expect(names()).toEqual([['one'], ['two', 'one'], ['three', 'two', 'one']]);
    await keeper.adopt(issued('four', 'r', 'password'));
    await settled();
    expect(revoked).toEqual(['one', 'two', 'three']);
    expect(names()).toEqual([['four', 'three', 'one', 'two'], ['four', 'two', 'three'], ['four', 'three'], ['four']]);
  });

  it('are revoked though they share a refresh token, where that is none', async () => {
    const { keeper, issued, revoked, settled } = world();
    await keeper.adopt(issued('one', undefined, 'password'));
    await keeper.adopt(issued('two', undefined));
    await settled();
    expect(revoked).toEqual(['one']);
  });

  it.each([
    ['is replaced', 'r2', ['two', 'three']],
    ['goes on', 'r', []],
  ])(
    'are forgotten without a word in the millisecond in which they end, where their line %s',
    async (_, refreshToken, ended) => {
      const { clock, keeper, issued, revoked, settled, names, lines } = world();
      await keeper.adopt(issued('one', 'r', 'password'));
      await clock.advance(1);
      await keeper.adopt(issued('two', 'r'));
      await keeper.adopt(issued('three', 'r'));
      await clock.advance(599_999);
      await keeper.adopt(issued('four', refreshToken));
      await settled();
      expect([revoked, lines]).toEqual([ended, []]);
      names();
      await keeper.adopt(issued('five', refreshToken));
      expect(names()[0]).toEqual(['five', 'four', ...(ended.length > 0 ? [] : ['two', 'three'])]);
    },
  );

  it('are not revoked where a server gives the same one again', async () => {
    const { keeper, issued, revoked, settled, names } = world();
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
    expect(names().at(-1)).toEqual(['same']);
  });

  it('are revoked when the last call lets go of them', async () => {
    const { keeper, issued, revoked, settled } = world();
    const one = issued('one', 'r1', 'password');
    one.inUse = 2;
    await keeper.adopt(one);
    await keeper.adopt(issued('two', 'r2'));
    one.inUse = 1;
    keeper.released(one);
    keeper.released(keeper.current!);
    await settled();
    expect(revoked).toEqual([]);
    one.inUse = 0;
    keeper.released(one);
    await settled();
    expect(revoked).toEqual(['one']);
  });

  it('are none of the session’s any more where it ended while one was written down', async () => {
    const { keeper, issued, revoked, names } = world();
    await keeper.adopt(issued('one', 'r', 'password'));
    await keeper.adopt(issued('two', 'r'));
    const adopting = keeper.adopt(issued('late', 'r'));
    const ending = keeper.end(1_000);
    await Promise.all([adopting, ending]);
    expect([keeper.current, revoked]).toEqual([undefined, ['one', 'two', 'late']]);
    expect(names().at(-1)).toEqual([]);
  });

  it('are in the file where they could not be revoked within the budget, and said to be there', async () => {
    const { clock, keeper, issued, stored, platform, written, lines } = world();
    await keeper.adopt(issued('one', 'r', 'password'));
    await keeper.adopt(issued('two', 'r'));
    const two = stored('two', 'r');
    written.splice(0);
    platform.revoke = async (text, signal) => {
      if (text === 'two') await clock.sleep(5_000, signal);
    };
    const ending = keeper.end(1_000);
    await clock.advance(999);
    expect([written, lines]).toEqual([[[two]], []]);
    await clock.advance(1);
    await ending;
    expect(written).toEqual([[two], [two]]);
    const fields = { event: 'session.not_revoked', tokens: 1 };
    expect(lines).toEqual([['warn', fields, 'tokens are left for the next start to revoke']]);
  });

  it('say once that they cannot be written down, and again after it went well', async () => {
    const { keeper, issued, disk, lines } = world();
    const failed = [
      'warn',
      { event: 'session.file_failed', error: 'no disk' },
      'the session cannot be written down: a crash would leave its tokens unrevoked',
    ];
    disk.isBroken = true;
    await keeper.adopt(issued('one', 'r1'));
    await keeper.adopt(issued('two', 'r2'));
    expect([lines, keeper.current?.accessToken]).toEqual([[failed], 'two']);
    disk.isBroken = false;
    await keeper.adopt(issued('three', 'r3'));
    disk.isBroken = true;
    await keeper.adopt(issued('four', 'r4'));
    expect(lines).toEqual([failed, failed]);
  });
});

describe('the tokens of an earlier run', () => {
  it.each([
    ['that end in a millisecond are alive', 1, ['a']],
    ['that end now may be over', 0, ['a', 'r']],
    ['that were given a moment ago are alive', 659_999, ['a']],
    ['of a clock that was ahead may be over', 660_000, ['a', 'r']],
  ])('are revoked, with their refresh token where they may be over: those %s', async (_, forMs, texts) => {
    const wallMs = new ManualClock().wallMs();
    const left = [
      { accessToken: 'a', refreshToken: 'r', expiresWallMs: wallMs + forMs },
      { accessToken: 'b', refreshToken: undefined, expiresWallMs: wallMs - DAY },
    ];
    const { keeper, revoked, settled, lines, written } = world(left);
    await keeper.takeUpLeftovers();
    await settled();
    // What may end first comes first, but for the one that was under way when it came.
    expect(revoked).toEqual([...texts, 'b']);
    expect(written).toEqual([[left[1]], []]);
    expect(lines).toEqual([['info', { event: 'session.leftovers', tokens: 2 }, 'revoking the tokens of the last run']]);
  });

  it('are tried for as long as the pair can live, and no longer', async () => {
    for (const [refreshToken, lifeMs] of [
      ['r', DAY],
      [undefined, 660_000],
    ] as const) {
      const { clock, keeper, platform, names } = world([{ accessToken: 'a', refreshToken, expiresWallMs: 0 }]);
      let lastMs = 0;
      const startMs = clock.monotonicMs();
      platform.revoke = async () => {
        lastMs = clock.monotonicMs() - startMs;
        throw new PlatformError('away', { code: 'platform.503', retryable: true });
      };
      await keeper.takeUpLeftovers();
      clock.random = () => 1;
      await clock.advance(lifeMs - 1);
      expect(lastMs).toBeGreaterThan(lifeMs - 121_000);
      expect(names()).toEqual([]);
      await clock.advance(121_000);
      expect(lastMs).toBeLessThan(lifeMs);
      expect(names()).toEqual([[]]);
    }
  });

  it('that are none are not spoken of', async () => {
    const { keeper, lines, written } = world();
    await keeper.takeUpLeftovers();
    expect([lines, written]).toEqual([[], []]);
  });

  it('that cannot be read are spoken of, and the session begins without them', async () => {
    const { keeper, lines, revoked, settled } = world(new Error('no file'));
    await keeper.takeUpLeftovers();
    await settled();
    const fields = { event: 'session.file_unreadable', error: 'no file' };
    expect(lines).toEqual([['warn', fields, 'the tokens of the last run cannot be read']]);
    expect(revoked).toEqual([]);
  });

  it('are left in their file by a stop while the disk has not given them yet, and no longer', async () => {
    const read = Promise.withResolvers<StoredToken[]>();
    const { keeper, written } = world(read.promise);
    const taking = keeper.takeUpLeftovers();
    await keeper.end(1_000);
    expect(written).toEqual([]);
    read.resolve([]);
    await taking;
    await keeper.end(1_000);
    expect(written).toEqual([[]]);
  });
});
