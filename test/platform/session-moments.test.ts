/** Moments of the session that come together: a timer that came late, a renewal that someone asks for, calls that wait. */
import { getEventListeners } from 'node:events';
import { describe, expect, it } from 'vitest';
import { AWAY, accessToken, never, REFUSED, sessionWorlds, withToken } from './session-world.ts';

const HOUR_S = 3_600;
const newWorld = sessionWorlds();

describe('a session', () => {
  it('is usable while it has a token that is good', async () => {
    const world = newWorld({ lifeS: 100 });
    const { clock, session } = world;
    expect([session.isUsable, session.snapshot().usable]).toEqual([false, false]);
    await world.start();
    expect([session.isUsable, session.snapshot().usable]).toEqual([true, true]);
    world.answer = async () => AWAY;
    await clock.advance(89_999);
    expect(session.isUsable).toBe(true);
    await clock.advance(1);
    expect([session.isUsable, session.snapshot().usable]).toEqual([false, false]);
  });

  it('asks for a token at a call where its renewal is overdue, and not before it is due', async () => {
    const world = await newWorld({ lifeS: 3 }).start();
    const { clock, session } = world;
    // The life of a token is shorter than the rest between two.
    await clock.advance(4_000);
    await expect(session.lease()).rejects.toMatchObject({ code: 'platform.no_session' });
    expect(world.asked()).toEqual(['password']);
    // A machine that was asleep: no timer had its turn.
    const nowMs = clock.monotonicMs() + 1_000;
    Object.assign(clock, { monotonicMs: () => nowMs });
    expect((await session.lease()).accessToken).toBe(accessToken(2));
    expect(world.asked().slice(0, 1)).toEqual(['refresh_token']);
    Reflect.deleteProperty(clock, 'monotonicMs');
  });

  it('logs in anew before the day of its refresh token ends, however often it was refreshed', async () => {
    const world = await newWorld().start();
    // A refresh that comes later than this could not be followed by another.
    await world.clock.advance(85_399_999);
    expect(world.told().renewals).toEqual(['password', ...Array(142).fill('refresh_token')]);
    await world.clock.advance(1_000_001);
    expect(world.told().renewals).toEqual(['password', 'refresh_token']);
  });

  it('leaves a try that is overdue to its timer: no call asks for a token after one that failed', async () => {
    const world = await newWorld({ lifeS: HOUR_S, answer: async () => AWAY }).start();
    const { clock, session } = world;
    expect(session.snapshot().state).toBe('waiting');
    const nowMs = clock.monotonicMs() + HOUR_S * 1_000;
    Object.assign(clock, { monotonicMs: () => nowMs });
    await expect(session.lease()).rejects.toMatchObject({ code: 'platform.no_session' });
    expect(world.asked()).toEqual(['password']);
    Reflect.deleteProperty(clock, 'monotonicMs');
    world.answer = async () => undefined;
    await clock.advance(1_000);
    expect(session.isUsable).toBe(true);
  });

  it('is tried at once where someone asks, and then by its schedule from the beginning', async () => {
    const world = await newWorld({ answer: async () => REFUSED }).start();
    const { clock, session } = world;
    await clock.advance(15_000);
    const waitOf = () => [session.snapshot().retryInMs, session.snapshot().failures];
    expect(waitOf()).toEqual([20_000, 3]);
    world.asked();
    session.tryNow();
    session.tryNow();
    await clock.advance(0);
    expect([world.asked(), waitOf()]).toEqual([['password'], [5_000, 1]]);
    await clock.advance(5_000);
    expect(waitOf()).toEqual([10_000, 2]);
    await expect(session.renewNow()).rejects.toMatchObject({ code: 'platform.sign_in_refused' });
    expect(waitOf()).toEqual([5_000, 1]);
    // One timer, not that of before beside it.
    expect(clock.waiting).toBe(1);
    world.answer = async () => undefined;
    expect(await session.renewNow()).toEqual(withToken(1, 0, { state: 'valid', renewsInMs: 600_000 }));
    world.asked();
    session.tryNow();
    await clock.advance(0);
    expect(world.asked()).toEqual([]);
  });

  it('renews once for all who ask, and what is revoked by hand by a login', async () => {
    const world = await newWorld().start();
    const { session, clock } = world;
    await clock.advance(7_000);
    world.asked();
    const second = withToken(2, 0, { state: 'valid', renewsInMs: 600_000 });
    expect(await Promise.all([session.renewNow(), session.renewNow()])).toEqual([second, second]);
    await clock.advance(0);
    expect(world.asked()).toEqual(['refresh_token', 'revoke']);
    const renewal = session.renewNow();
    const third = withToken(4, 0, { state: 'valid', renewsInMs: 600_000, grant: 'password' });
    // After the renewal that is under way, whose tokens it means.
    expect(await session.revokeNow()).toEqual(third);
    await renewal;
    await clock.advance(0);
    expect(world.asked()).toEqual(['refresh_token', 'revoke', 'password', 'revoke']);
    expect(world.told().files.at(-1)).toEqual([world.stored(4, 1_000_000)]);
  });

  it('tells all who listen, though one of them fails, until they no longer want to know', async () => {
    const world = newWorld();
    const seen: string[] = [];
    const end = world.session.onChange(() => {
      seen.push(world.session.snapshot().state);
      throw new Error('no ears');
    });
    world.session.onChange(() => seen.push('beside'));
    await world.start();
    expect(seen).toEqual(['renewing', 'beside', 'valid', 'beside']);
    const failed = ['error', { event: 'session.listener_failed', error: 'no ears' }, 'a listener failed'];
    const { lines } = world.told();
    expect(lines.filter(([level]) => level === 'error')).toEqual([failed, failed]);
    end();
    await world.session.renewNow();
    expect(seen.slice(4)).toEqual(['beside', 'beside']);
  });
});

describe('a call that waits for a token', () => {
  it('ends at once where its signal fires, and asks for none where it has fired', async () => {
    const world = await newWorld({ answer: () => never }).start();
    const calling = new AbortController();
    const lease = world.session.lease(calling.signal);
    calling.abort(new Error('enough'));
    await expect(lease).rejects.toThrow('enough');
    await expect(world.session.lease(calling.signal)).rejects.toThrow('enough');
    const good = await newWorld().start();
    await expect(good.session.lease(calling.signal)).rejects.toThrow('enough');
    const used = new AbortController();
    expect((await good.session.lease(used.signal)).accessToken).toBe(accessToken(1));
  });

  it('leaves nothing at its signal, which may be that of a whole day', async () => {
    const held = Promise.withResolvers<undefined>();
    const world = await newWorld({ answer: () => held.promise }).start();
    const { signal } = new AbortController();
    const lease = world.session.lease(signal);
    expect(getEventListeners(signal, 'abort')).toHaveLength(1);
    held.resolve(undefined);
    expect((await lease).accessToken).toBe(accessToken(1));
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });

  it('waits for one renewal, and not for the next', async () => {
    const held = Promise.withResolvers<undefined>();
    const world = await newWorld({ lifeS: 1, answer: () => held.promise }).start();
    const lease = world.session.lease().catch((error) => error);
    // It has ended before it came, and so has the rest between two.
    await world.clock.advance(6_000);
    world.answer = () => never;
    held.resolve(undefined);
    const error = await lease;
    expect([error.message, error.cause]).toEqual(['there is no session with the platform now', undefined]);
    expect(world.asked()).toEqual(['password', 'refresh_token']);
  });
});
