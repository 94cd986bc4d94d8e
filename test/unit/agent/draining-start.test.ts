/**
 * Startup that drains its backlog in rounds. Posts in progress at the end of a round are not repeated in the next one.
 */
import { describe, expect, it } from 'vitest';
import { type DrainingStartOptions, drainFirst } from '../../../src/agent/draining-start.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { MemoryBuffer } from '../doubles/memory-buffer.ts';
import { DirectPlatform, OPTIONS, TAKEN } from '../uplink/plant.ts';

/** The platform responds immediately for one asset, and on demand for the other. */
const [QUICK, SLOW] = [7, 8];
const MINUTE = 60_000;

/** Starts with one value per asset in the first round, and two series that are not loaded. */
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
    access: {
      load: () => Promise.resolve({ holds: [], lostNodes: [], cursor: 0, damaged: 0 }),
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
          acquire: () => Promise.resolve(),
          refund() {},
          endRest() {},
        },
        session: { onChange: () => () => {}, snapshot: () => ({ state: 'valid' }) },
      },
      waiting: {
        during: (_why: unknown, work: (doing: unknown) => Promise<void>) =>
          work({ signal: stopping.signal, report() {}, untilOpen: (open: () => unknown) => open() }).then(
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
  // Prevents an unhandled rejection if a test fails earlier.
  done.catch(() => {});
  const assets = () => platform.ledger.posts.map(({ asset }) => asset);
  return { clock, platform, outgoing, answer, stopping, done, assets, renewals: () => renewals };
}

describe('backlog drain at startup', () => {
  it('waits for a slow response until the post deadline', async () => {
    const { clock, platform, outgoing, answer, done, assets, renewals } = start();
    await clock.advance(15_000);
    expect([assets(), outgoing.waiting, platform.inFlight]).toEqual([[QUICK], 1, 1]);
    expect(renewals()).toBe(0);
    answer.resolve(TAKEN);
    await clock.advance(1_000);
    await done;
    expect([assets(), outgoing.waiting, renewals()]).toEqual([[QUICK, SLOW], 0, 1]);
  });

  it('times out without a response and leaves the value in the buffer', async () => {
    const { clock, platform, outgoing, done, renewals } = start();
    await clock.advance(5 * MINUTE);
    await done;
    expect([outgoing.waiting, outgoing.inProgress.size, platform.inFlight, renewals()]).toEqual([1, 0, 0, 1]);
  });

  it('ends within ten seconds at shutdown', async () => {
    const { clock, platform, outgoing, stopping, done, renewals } = start();
    await clock.advance(15_000);
    stopping.abort(new Error('the agent is stopping'));
    await clock.advance(10_000);
    expect(await done).toBeUndefined();
    expect([outgoing.waiting, outgoing.inProgress.size, platform.inFlight, renewals()]).toEqual([1, 0, 0, 0]);
  });
});
