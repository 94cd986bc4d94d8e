/** Tokens that the platform refuses, and those that calls still use. */
import { describe, expect, it } from 'vitest';
import type { Lease } from '../../src/platform/token-source.ts';
import { never, sessionWorlds, withToken } from './session-world.ts';

const HOUR_S = 3_600;
const newWorld = sessionWorlds();

describe('a token that the platform refuses', () => {
  const refusedLine = (unproven: number) => [
    'info',
    { event: 'session.token_refused', unproven },
    'the platform refused the access token',
  ];
  const FRESH = {
    code: 'platform.fresh_token_refused',
    message: 'the platform answers 401 to tokens that it has just given',
    hint: 'Check API_KEY_HEADER, and that PLATFORM_URL is the address that gave the token.',
  };

  it('without ever having worked is replaced at once, then after ever longer rests, and its kind is forgotten with one that works', async () => {
    const world = await newWorld().start();
    const { clock, session } = world;
    const refuse = async () => {
      const lease = await session.lease();
      lease.refused();
      lease.refused();
      lease.release();
      return lease;
    };
    await clock.advance(10_000);
    world.told();
    await refuse();
    expect(session.snapshot()).toEqual(withToken(1, 10_000, { state: 'renewing', usable: false }));
    await clock.advance(0);
    expect(world.told()).toMatchObject({ lines: [refusedLine(1), expect.anything(), expect.anything()] });
    for (const [at, restMs] of [5_000, 10_000, 20_000, 40_000, 60_000, 60_000].entries()) {
      world.told();
      await refuse();
      expect(session.snapshot()).toEqual(
        withToken(2 + at, 0, { state: 'waiting', usable: false, retryInMs: restMs, lastError: FRESH }),
      );
      const fields = { retryInMs: restMs, attempts: 1, failingForMs: 0, hint: FRESH.hint, code: FRESH.code };
      expect(world.told().lines).toEqual([
        refusedLine(at + 2),
        ['warn', { event: 'session.failed', error: FRESH.message, ...fields }, 'no session with the platform'],
      ]);
      await expect(session.lease()).rejects.toMatchObject({
        message: `there is no session with the platform now: ${FRESH.message}`,
        hint: FRESH.hint,
        retryable: true,
        cause: { ...FRESH, retryable: true },
      });
      await clock.advance(restMs - 1);
      expect(world.told().requests).toEqual([]);
      await clock.advance(1);
      expect(world.told().lines[0]).toEqual([
        'info',
        { event: 'session.valid', grant: 'refresh_token', attempts: 1, missedForMs: restMs },
        'session with the platform',
      ]);
    }
    const worked = await session.lease();
    worked.accepted();
    worked.release();
    await clock.advance(60_000);
    world.told();
    await refuse();
    expect(world.told().lines[0]).toEqual(refusedLine(0));
    expect(session.snapshot().state).toBe('renewing');
  });

  it('and worked and died is replaced at once, the next within the minute no sooner than five seconds after it came', async () => {
    const world = await newWorld({ lifeS: HOUR_S }).start();
    const { clock, session } = world;
    const tokens = () => world.asked().filter((what) => what !== 'revoke').length;
    const die = async () => {
      const lease = await session.lease();
      lease.accepted();
      lease.refused();
      lease.release();
    };
    await clock.advance(1_000);
    await die();
    expect(session.snapshot().state).toBe('renewing');
    await clock.advance(2_000);
    expect(tokens()).toBe(2);
    await die();
    expect(session.snapshot()).toMatchObject({ state: 'waiting', retryInMs: 3_000 });
    await clock.advance(2_999);
    expect(tokens()).toBe(0);
    await clock.advance(1);
    expect(tokens()).toBe(1);
    // It has rested long enough when it dies.
    await clock.advance(5_000);
    await die();
    expect(session.snapshot().state).toBe('renewing');
    await clock.advance(0);
    // A minute later it is the first again.
    await clock.advance(59_999);
    await session.renewNow();
    await die();
    expect(session.snapshot()).toMatchObject({ state: 'waiting', retryInMs: 5_000 });
    await clock.advance(60_000);
    await session.renewNow();
    await die();
    expect(session.snapshot().state).toBe('renewing');
  });

  it('while another is asked for is not asked for twice, and its rest is not another trouble', async () => {
    const world = await newWorld().start();
    const first = await world.session.lease();
    first.refused();
    await world.clock.advance(0);
    const second = await world.session.lease();
    world.answer = () => never;
    void world.session.renewNow().catch(() => {});
    await world.clock.advance(0);
    world.told();
    second.refused();
    expect(world.session.snapshot()).toEqual(withToken(2, 0, { state: 'renewing', usable: false }));
    expect(world.told()).toEqual({ requests: [], files: [], lines: [refusedLine(2)], states: [], renewals: [] });
    world.answer = async () => undefined;
  });

  it('that was replaced before, or after the stop, changes nothing', async () => {
    const world = await newWorld().start();
    const old: Lease = await world.session.lease();
    await world.session.renewNow();
    const current: Lease = await world.session.lease();
    world.told();
    old.refused();
    expect(world.told()).toEqual({ requests: [], files: [], lines: [], states: [], renewals: [] });
    await world.session.stop();
    world.told();
    current.refused();
    current.release();
    await world.clock.advance(3_600_000);
    expect(world.told()).toEqual({ requests: [], files: [], lines: [], states: [], renewals: [] });
  });

  it('is no sign against those before it where an old one works after all', async () => {
    const world = await newWorld().start();
    const { session, clock } = world;
    const old = await session.lease();
    (await session.lease()).refused();
    await clock.advance(0);
    // Of the token before: it says nothing of the one of now.
    old.accepted();
    (await session.lease()).refused();
    expect(world.told().lines.filter(([, { event }]) => event === 'session.token_refused')).toEqual([
      refusedLine(1),
      refusedLine(2),
    ]);
  });
});

describe('a token that calls use', () => {
  it('is revoked when the last of them lets go, whatever it does twice, and the current one is not', async () => {
    const world = await newWorld().start();
    const { session, clock } = world;
    const [one, two] = [await session.lease(), await session.lease()];
    await session.renewNow();
    await clock.advance(0);
    one.release();
    one.release();
    await clock.advance(0);
    expect(world.asked()).toEqual(['password', 'refresh_token']);
    const current = await session.lease();
    current.release();
    await clock.advance(0);
    expect(world.asked()).toEqual([]);
    two.release();
    await clock.advance(0);
    expect(world.asked()).toEqual(['revoke']);
    expect(world.told().files.at(-1)).toEqual([world.stored(2, 1_000_000)]);
  });
});
