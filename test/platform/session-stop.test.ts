/** How a session stops: at every moment, within its budget, with nothing left behind but what it says. */
import { describe, expect, it } from 'vitest';
import {
  type Answer,
  AWAY,
  never,
  REFUSED,
  revocationOf,
  sessionWorlds,
  withoutToken,
  withToken,
} from './session-world.ts';

const newWorld = sessionWorlds();

/** Whether it is over by now. */
function watched(promise: Promise<unknown>): { isOver: boolean } {
  const watch = { isOver: false };
  void promise.then(() => {
    watch.isOver = true;
  });
  return watch;
}

const leftOver = (tokens: number) => [
  'warn',
  { event: 'session.not_revoked', tokens },
  'tokens are left for the next start to revoke',
];

describe('a stop', () => {
  it('gives revocation what a token request under way has left of the budget', async () => {
    const world = await newWorld().start();
    const { clock, session } = world;
    const held = Promise.withResolvers<undefined>();
    world.answer = (what) => (what === 'revoke' ? never : held.promise);
    const renewal = session.renewNow().catch(() => {});
    const stopping = session.stop(5_000);
    const watch = watched(stopping);
    await clock.advance(2_000);
    world.asked();
    held.resolve(undefined);
    await clock.advance(2_999);
    expect([world.asked(), watch.isOver]).toEqual([['revoke'], false]);
    await clock.advance(1);
    expect(watch.isOver).toBe(true);
    await Promise.all([stopping, renewal]);
    expect(clock.waiting).toBe(0);
  });

  it('waits for a token request for half of its budget, and gives the other to revocation', async () => {
    const world = await newWorld().start();
    const { clock, session } = world;
    const first = world.stored(1, 1_000_000);
    world.answer = () => never;
    const renewal = session.renewNow().catch((error) => error);
    world.told();
    const watch = watched(session.stop());
    await clock.advance(2_499);
    expect(world.told().requests).toEqual([]);
    await clock.advance(1);
    expect(world.told()).toMatchObject({ requests: [revocationOf(1)], files: [], lines: [] });
    await clock.advance(2_499);
    expect(watch.isOver).toBe(false);
    await clock.advance(1);
    expect(watch.isOver).toBe(true);
    expect(world.told()).toEqual({
      requests: [],
      // It was to be refreshed: what has become of its refresh token is not known.
      files: [[{ ...first, refreshToken: undefined }]],
      lines: [leftOver(1)],
      states: [],
      renewals: [],
    });
    expect(await renewal).toMatchObject({ state: 'revoked' });
    expect(clock.waiting).toBe(0);
  });

  it('gives revocation half a second though nothing is left', async () => {
    const world = await newWorld().start();
    const { clock, session } = world;
    world.answer = () => never;
    const renewal = session.renewNow().catch(() => {});
    const stopping = session.stop(600);
    const watch = watched(stopping);
    await clock.advance(299);
    expect(world.asked().at(-1)).toBe('refresh_token');
    await clock.advance(1);
    expect(world.asked()).toEqual(['revoke']);
    await clock.advance(499);
    expect(watch.isOver).toBe(false);
    await clock.advance(1);
    expect(watch.isOver).toBe(true);
    await Promise.all([stopping, renewal]);
  });

  it('in the middle of a refresh that fails is no reason to log in', async () => {
    const world = await newWorld().start();
    const { clock, session } = world;
    const held = Promise.withResolvers<Answer>();
    world.answer = async (what) => (what === 'refresh_token' ? held.promise : undefined);
    const renewal = session.renewNow().catch(() => {});
    await clock.advance(0);
    world.told();
    const stopping = session.stop();
    held.resolve(REFUSED);
    await clock.advance(10_000);
    await Promise.all([stopping, renewal]);
    expect(world.asked()).toEqual(['password', 'refresh_token', 'revoke']);
    const { lines, states } = world.told();
    expect(lines.map(([, { event }]) => event)).toEqual(['session.revoked']);
    expect(states).toEqual([withToken(1, 0, { state: 'revoked', usable: false })]);
  });

  it('in the middle of a login takes the tokens that come, and revokes them, and is no trouble to speak of where none do', async () => {
    for (const answer of [undefined, AWAY]) {
      const held = Promise.withResolvers<Answer | undefined>();
      const world = newWorld({ answer: async (what) => (what === 'password' ? held.promise : undefined) });
      await world.start();
      const lease = world.session.lease().catch((error) => error);
      const stopping = world.session.stop();
      // Nobody waits for what is asked for to be revoked.
      await expect(world.session.lease()).rejects.toMatchObject({ code: 'platform.no_session' });
      held.resolve(answer);
      await stopping;
      expect(await lease).toMatchObject({ code: 'platform.no_session' });
      const { states, lines } = world.told();
      expect(world.asked()).toEqual(answer ? ['password'] : ['password', 'revoke']);
      expect(states.map(({ state }) => state)).toEqual(['renewing', 'revoked']);
      const events = lines.map(([, { event }]) => event);
      expect(events).toEqual(answer ? [] : ['session.valid', 'session.revoked']);
      expect(world.clock.waiting).toBe(0);
      await world.clock.advance(3_600_000);
      expect(world.asked()).toEqual([]);
    }
  });

  it('does not wait for what waits: a try, a renewal or a token that calls use', async () => {
    for (const [answer, asked] of [
      [async () => AWAY, ['password']],
      [async () => undefined, ['password', 'revoke']],
    ] as const) {
      const world = await newWorld({ answer }).start();
      await world.session.lease().catch(() => {});
      await world.session.stop();
      expect([world.asked(), world.clock.waiting]).toEqual([asked, 0]);
      expect(world.session.snapshot()).toMatchObject({ state: 'revoked', usable: false });
      world.session.tryNow();
      await expect(world.session.lease()).rejects.toMatchObject({ code: 'platform.no_session' });
      await expect(world.session.renewNow()).rejects.toMatchObject({ code: 'platform.no_session' });
      await world.clock.advance(3_600_000);
      expect(world.asked()).toEqual([]);
    }
  });

  it('while the tokens of the last run are read waits for these, and revokes them', async () => {
    const held = Promise.withResolvers<void>();
    const world = newWorld({ disk: () => held.promise });
    world.left = [world.stored(9, 100_000)];
    const starting = world.start();
    const stopping = world.session.stop();
    await world.clock.advance(2_499);
    expect(world.told()).toMatchObject({ requests: [], files: [] });
    held.resolve();
    await Promise.all([starting, stopping]);
    const { requests, files } = world.told();
    expect([requests, files.at(-1), world.clock.waiting]).toEqual([[revocationOf(9)], [], 0]);
  });

  it('before the start touches nothing', async () => {
    const world = newWorld();
    world.left = [world.stored(9, 0)];
    await world.session.stop();
    expect(world.told()).toEqual({
      requests: [],
      files: [],
      lines: [],
      states: [withoutToken({ state: 'revoked' })],
      renewals: [],
    });
    await expect(world.start()).rejects.toThrow('a session starts once');
  });
});
