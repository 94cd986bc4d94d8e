/** A start that drains its backlog a part at a time: what is under way when one round ends is not posted again in the next. */
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../src/base/logger.ts';
import { SeriesCatalogue } from '../../src/buffer/series.ts';
import { type DrainingStartOptions, drainFirst } from '../../src/daemon/draining-start.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { MemoryBuffer } from '../doubles/memory-buffer.ts';
import { DirectPlatform, OPTIONS, TAKEN } from '../uplink/plant.ts';

/** One of them is answered at once, the other when the test says so. */
const [QUICK, SLOW] = [7, 8];
const MINUTE = 60_000;

/** A start with a value of each asset in the round that drains, and others that are not loaded. */
function start() {
  const clock = new ManualClock();
  const answer = Promise.withResolvers<typeof TAKEN>();
  const platform = new DirectPlatform(clock, ({ asset }) => (asset === SLOW ? answer.promise : TAKEN));
  const outgoing = new MemoryBuffer();
  const value = { timeMs: 1, acceptedMs: 0 };
  outgoing.accept([QUICK, SLOW].map((asset) => ({ ...value, number: asset, asset, series: asset })));
  const series = { key: 'flow', group: undefined, unit: undefined, instrumentation: undefined };
  const buffer = {
    facts: { notLoaded: 2, dirty: false },
    catalogue: new SeriesCatalogue([QUICK, SLOW].map((asset) => ({ ...series, id: asset, asset }))),
    get bufferedValues() {
      return outgoing.waiting;
    },
    outgoing,
    holds: {
      load: () => Promise.resolve({ objects: [], refusals: [], cursor: 0, damaged: 0 }),
      save: () => Promise.resolve(),
    },
    committer: { failure: undefined },
    isAlive: () => true,
  };
  const stopping = new AbortController();
  const count = { inc: () => {} };
  let renewals = 0;
  const done = drainFirst(
    buffer as never,
    {
      settings: {
        ...OPTIONS,
        postConcurrency: 4,
        postSuccess: [204],
        postGzip: false,
        valuesPath: '/v1/assets/{asset_id}/values',
      },
      tags: new Map(),
      platform: {
        client: platform,
        budget: {
          isLimited: false,
          intervalMs: 0,
          tryTake: () => true,
          nextAtMs: () => 0,
          giveBack() {},
          endRest() {},
        },
        session: { onChange: () => () => {}, snapshot: () => ({ state: 'valid' }) },
      },
      waiting: {
        during: (_why: unknown, work: (doing: unknown) => Promise<void>) =>
          work({ signal: stopping.signal, tell() {}, untilOpen: (open: () => unknown) => open() }).then(
            () => !stopping.signal.aborted,
          ),
      },
      clock,
      log: silentLogger(),
      metrics: { posts: count, delivered: count, quarantined: count },
      startSession: () => Promise.resolve(),
      renew: () => {
        renewals++;
        return Promise.resolve({ open: () => Promise.resolve({ ...buffer, facts: { notLoaded: 0, dirty: false } }) });
      },
    } as unknown as DrainingStartOptions,
  );
  // A test that fails before it waits for it leaves nothing unheard behind.
  done.catch(() => {});
  const assets = () => platform.ledger.posts.map(({ asset }) => asset);
  return { clock, platform, outgoing, answer, stopping, done, assets, renewals: () => renewals };
}

describe('the end of a round', () => {
  it('waits for an answer that is slow, as long as a post may take', async () => {
    const { clock, platform, outgoing, answer, done, assets, renewals } = start();
    await clock.advance(MINUTE);
    expect([assets(), outgoing.waiting, platform.inFlight]).toEqual([[QUICK], 1, 1]);
    expect(renewals()).toBe(0);
    answer.resolve(TAKEN);
    await clock.advance(1_000);
    await done;
    expect([assets(), outgoing.waiting, renewals()]).toEqual([[QUICK, SLOW], 0, 1]);
  });

  it('comes though an answer never does: then its value waits again', async () => {
    const { clock, platform, outgoing, done, renewals } = start();
    await clock.advance(5 * MINUTE);
    await done;
    expect([outgoing.waiting, outgoing.underWay.size, platform.inFlight, renewals()]).toEqual([1, 0, 0, 1]);
  });

  it('comes within ten seconds where the agent is stopped meanwhile', async () => {
    const { clock, platform, outgoing, stopping, done, renewals } = start();
    await clock.advance(30_000);
    stopping.abort(new Error('the agent stops'));
    await clock.advance(10_000);
    expect(await done).toBeUndefined();
    expect([outgoing.waiting, outgoing.underWay.size, platform.inFlight, renewals()]).toEqual([1, 0, 0, 0]);
  });
});
