import { describe, expect, it } from 'vitest';
import { PlatformError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/logger.ts';
import { Redactor } from '../../src/base/redactor.ts';
import { PlatformClient } from '../../src/platform/client.ts';
import type { HttpRequest, PlatformAnswer } from '../../src/platform/http-boundary.ts';
import { Session } from '../../src/platform/session/session.ts';
import { SessionFile } from '../../src/platform/session/session-file.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { Plant } from './plant.ts';

/**
 * Many gateways that were started by the same power cut into the same outage of the platform: each with its session, its
 * client, its budget and its uplink, and a clock of its own that the test moves. The control is the same herd without chance.
 */

const GATEWAYS = 300;
const OUTAGE_MS = 15 * 60_000;
const AFTER_MS = 75_000;
const ASSETS = [1, 2, 3, 4];
const VALUES_OF_ASSET = 300;
/** A live post takes as many values of the backlog along as it has of its own. */
const LEAST_POSTS = (ASSETS.length * VALUES_OF_ASSET) / 200;
/** Full jitter up to 30 s: 20 logins a second at most on average, and what chance puts on top. */
const MOST_LOGINS_PER_SECOND = 45;
/** Some ten posts follow each login within two seconds. */
const MOST_POSTS_PER_SECOND = 400;
const BASE_URL = 'https://platform.example';

class UnjitteredClock extends ManualClock {
  override random(): number {
    return 0.5;
  }
}

/** The tokens stay in memory: real writes would take time that the clock of the test does not know. */
class NoFile extends SessionFile {
  override async read() {
    return [];
  }
  override async write() {}
}

interface Returned {
  /** Milliseconds from the platform's return to each password grant that it answered. */
  logins: number[];
  /** The same of each post that it took. */
  posts: number[];
  left: number;
}

async function outage(clock: ManualClock): Promise<Returned> {
  const startMs = clock.monotonicMs();
  const returnMs = startMs + OUTAGE_MS;
  const seen: Returned = { logins: [], posts: [], left: 0 };
  const send = async ({ url, body }: HttpRequest): Promise<PlatformAnswer> => {
    const sinceReturnMs = clock.monotonicMs() - returnMs;
    if (sinceReturnMs < 0) {
      throw new PlatformError('no', { code: 'platform.connection_refused', retryable: true });
    }
    await clock.sleep(20);
    if (url.pathname.endsWith('/values')) {
      seen.posts.push(sinceReturnMs);
      return { status: 204, header: () => undefined, text: '', redact: String };
    }
    if (String(body).includes('grant_type=password')) seen.logins.push(sinceReturnMs);
    const token = { access_token: 'access', refresh_token: 'refresh', token_type: 'bearer', expires_in: 660 };
    return { status: 200, header: () => undefined, text: JSON.stringify(token), redact: String };
  };
  const log = silentLogger();
  const session = new Session({
    redactor: new Redactor(),
    boundary: { send },
    baseUrl: BASE_URL,
    credentials: () => ({
      client: { clientId: 'client', clientSecret: 'secret', clientAuth: 'basic' },
      user: { username: 'gateway@example.com', password: 'password' },
    }),
    file: new NoFile('/nowhere'),
    clock,
    log,
  });
  const client = new PlatformClient({ boundary: { send }, baseUrl: BASE_URL, tokens: session, clock, log });
  const plant = new Plant(clock, client, { postMaxValues: 100 }, 400);
  // As the daemon has it.
  session.onChange(() => {
    if (session.snapshot().state === 'valid') plant.uplink.tryNow();
  });
  await session.start(new AbortController().signal);
  await plant.uplink.start();
  for (const asset of ASSETS) plant.accept(asset, asset, VALUES_OF_ASSET);
  await clock.advance(OUTAGE_MS);
  plant.buffer.flush(clock.monotonicMs());
  await clock.advance(AFTER_MS);
  seen.left = plant.buffer.waiting;
  const stopped = Promise.all([plant.uplink.stop(0), session.stop(0)]);
  await clock.advance(1_000);
  await stopped;
  return seen;
}

/** How many happened in the fullest second, whichever moment it begins. */
function mostInASecond(timesMs: readonly number[]): number {
  const sorted = [...timesMs].sort((a, b) => a - b);
  let most = 0;
  let first = 0;
  for (const [last, atMs] of sorted.entries()) {
    while (atMs - sorted[first]! >= 1_000) first++;
    most = Math.max(most, last - first + 1);
  }
  return most;
}

const herd = (clockOf: (number: number) => ManualClock) =>
  Promise.all(Array.from({ length: GATEWAYS }, (_, i) => outage(clockOf(i + 1))));

describe('300 gateways after a common outage', { timeout: 900_000 }, () => {
  it('spread their logins and their backlogs, which would all come in the same seconds without jitter', async () => {
    const wallMs = Date.UTC(2026, 10, 21);
    const spread = await herd((seed) => new ManualClock(wallMs, seed));
    const control = await herd((seed) => new UnjitteredClock(wallMs, seed));
    const logins = (of: Returned[]) => of.flatMap((one) => one.logins);
    const posts = (of: Returned[]) => of.flatMap((one) => one.posts);
    for (const one of [...spread, ...control]) {
      expect(one.logins).toHaveLength(1);
      expect(one.left).toBe(0);
      expect(one.posts.length).toBeGreaterThanOrEqual(LEAST_POSTS);
    }
    expect(mostInASecond(logins(control))).toBe(GATEWAYS);
    expect(mostInASecond(logins(spread))).toBeLessThan(MOST_LOGINS_PER_SECOND);
    expect(mostInASecond(posts(control))).toBeGreaterThan(4 * MOST_POSTS_PER_SECOND);
    expect(mostInASecond(posts(spread))).toBeLessThan(MOST_POSTS_PER_SECOND);
    // Spread, and yet nobody is late: the longest wait of a session is 30 s, and the backlog follows at the budget's pace.
    expect(Math.max(...logins(spread))).toBeLessThanOrEqual(31_000);
    expect(Math.max(...posts(spread))).toBeLessThanOrEqual(60_000);
  });
});
