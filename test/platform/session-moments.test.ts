/** Moments of the session that come together: a stop in the middle of a request, a timer that came late, a token that died young. */
import { afterEach, describe, expect, it } from 'vitest';
import type { HttpRequest, PlatformAnswer } from '../../src/platform/http-boundary.ts';
import { Session } from '../../src/platform/session/session.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

type Answer = Pick<PlatformAnswer, 'status' | 'text'>;
const HOUR_S = 3_600;

const worlds: { end(): Promise<unknown> }[] = [];
afterEach(async () => {
  for (const { end } of worlds.splice(0)) await end();
});

/** A session whose platform answers as it is told to; the clock stands until it is moved. */
function world(lifeS = HOUR_S) {
  const clock = new ManualClock();
  const lines: string[] = [];
  const line = ({ event }: { event: string }) => void lines.push(event);
  const log = { debug: line, info: line, warn: line, error: line } as never;
  const asked: string[] = [];
  const platform = { answer: async (_: string): Promise<Answer | undefined> => undefined };
  let issued = 0;
  const token = (): Answer => {
    const name = `token-${++issued}`;
    return { status: 200, text: JSON.stringify({ access_token: name, refresh_token: `r-${name}`, expires_in: lifeS }) };
  };
  async function send({ url, body, signal }: HttpRequest): Promise<PlatformAnswer> {
    const what = new URLSearchParams(String(body)).get('grant_type') ?? url.pathname.split('/').at(-1)!;
    asked.push(what);
    const aborted = Promise.withResolvers<never>();
    signal?.throwIfAborted();
    signal?.addEventListener('abort', () => aborted.reject(signal.reason), { once: true });
    const told = await Promise.race([platform.answer(what), aborted.promise]);
    return { ...(told ?? (what === 'revoke' ? { status: 200, text: '{}' } : token())), header: () => undefined };
  }
  const session = new Session({
    boundary: { send },
    baseUrl: 'http://platform.test',
    credentials: () => ({
      client: { clientId: 'id', clientSecret: 'secret', clientAuth: 'basic' },
      user: { username: 'user', password: 'password' },
    }),
    file: { read: async () => [], write: async () => {} } as never,
    clock,
    log,
  });
  const start = async () => {
    await session.start(new AbortController().signal);
    await clock.advance(0);
  };
  worlds.push({
    end: async () => {
      const ending = session.stop();
      await clock.advance(10_000);
      await ending;
    },
  });
  return { clock, lines, asked, platform, session, start };
}

const never = new Promise<never>(() => {});

describe('a stop', () => {
  it('gives revocation what a token request under way has left of the budget', async () => {
    const { clock, asked, platform, session, start } = world();
    await start();
    const held = Promise.withResolvers<undefined>();
    platform.answer = (what) => (what === 'revoke' ? never : held.promise);
    const renewal = session.renewNow().catch(() => {});
    let isOver = false;
    const stopping = session.stop(5_000).then(() => {
      isOver = true;
    });
    await clock.advance(2_000);
    held.resolve(undefined);
    await clock.advance(2_999);
    expect([asked.at(-1), isOver]).toEqual(['revoke', false]);
    await clock.advance(1);
    expect(isOver).toBe(true);
    await Promise.all([stopping, renewal]);
  });

  it('gives revocation half a second though nothing is left', async () => {
    const { clock, asked, platform, session, start } = world();
    await start();
    platform.answer = () => never;
    const renewal = session.renewNow().catch(() => {});
    let isOver = false;
    const stopping = session.stop(600).then(() => {
      isOver = true;
    });
    await clock.advance(300);
    expect(asked.at(-1)).toBe('revoke');
    await clock.advance(499);
    expect(isOver).toBe(false);
    await clock.advance(1);
    expect(isOver).toBe(true);
    await Promise.all([stopping, renewal]);
  });

  it('in the middle of a refresh that fails is no reason to log in', async () => {
    const { clock, asked, lines, platform, session, start } = world();
    await start();
    const held = Promise.withResolvers<Answer>();
    platform.answer = async (what) => (what === 'refresh_token' ? held.promise : undefined);
    const renewal = session.renewNow().catch(() => {});
    await clock.advance(0);
    const stopping = session.stop();
    held.resolve({ status: 400, text: '{"error":"invalid_grant"}' });
    await clock.advance(10_000);
    await Promise.all([stopping, renewal]);
    expect(asked).toEqual(['password', 'refresh_token', 'revoke']);
    expect(lines).not.toContain('session.refresh_failed');
  });
});

describe('a session', () => {
  it('is usable while it has a token that is good', async () => {
    const { clock, platform, session, start } = world(100);
    expect([session.isUsable, session.snapshot().usable]).toEqual([false, false]);
    await start();
    expect([session.isUsable, session.snapshot().usable]).toEqual([true, true]);
    platform.answer = async () => ({ status: 503, text: '' });
    await clock.advance(89_999);
    expect(session.isUsable).toBe(true);
    await clock.advance(1);
    expect([session.isUsable, session.snapshot().usable]).toEqual([false, false]);
  });

  it('asks for a token at a call where its renewal is overdue, and not before it is due', async () => {
    const { clock, asked, session, start } = world(3);
    await start();
    // The life of a token is shorter than the rest between two.
    await clock.advance(4_000);
    await expect(session.lease()).rejects.toMatchObject({ code: 'platform.no_session' });
    expect(asked).toEqual(['password']);
    // A machine that was asleep: no timer had its turn.
    const nowMs = clock.monotonicMs() + 1_000;
    Object.assign(clock, { monotonicMs: () => nowMs });
    expect((await session.lease()).accessToken).toBe('token-2');
    expect(asked).toHaveLength(2);
    Reflect.deleteProperty(clock, 'monotonicMs');
  });

  it('leaves a try that is overdue to its timer: no call asks for a token after one that failed', async () => {
    const { clock, asked, platform, session, start } = world();
    platform.answer = async () => ({ status: 503, text: '' });
    await start();
    expect(session.snapshot().state).toBe('waiting');
    const nowMs = clock.monotonicMs() + HOUR_S * 1_000;
    Object.assign(clock, { monotonicMs: () => nowMs });
    await expect(session.lease()).rejects.toMatchObject({ code: 'platform.no_session' });
    expect(asked).toEqual(['password']);
    Reflect.deleteProperty(clock, 'monotonicMs');
    platform.answer = async () => undefined;
    await clock.advance(1_000);
    expect(session.isUsable).toBe(true);
  });

  it('replaces a token that worked and died at once, the next within the minute no sooner than five seconds after it came', async () => {
    const { clock, asked, session, start } = world();
    await start();
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
    expect(asked.filter((what) => what !== 'revoke')).toHaveLength(2);
    await die();
    expect(session.snapshot()).toMatchObject({ state: 'waiting', retryInMs: 3_000 });
    await clock.advance(2_999);
    expect(asked.filter((what) => what !== 'revoke')).toHaveLength(2);
    await clock.advance(1);
    expect(asked.filter((what) => what !== 'revoke')).toHaveLength(3);
    // A minute later it is the first again.
    await clock.advance(60_000);
    await session.renewNow();
    await die();
    expect(session.snapshot().state).toBe('renewing');
  });
});
