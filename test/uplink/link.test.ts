import { describe, expect, it } from 'vitest';
import { PlatformError } from '../../src/base/errors.ts';
import { PlatformAvailability } from '../../src/uplink/platform-availability.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { DirectPlatform, Plant } from './plant.ts';

const FAILURE = { code: '503', words: 'no' };

describe('a link that is away', () => {
  it('starts a try at least every 60 s however long a try takes, for as long as it takes', () => {
    const clock = new ManualClock(0, 3);
    const link = new PlatformAvailability(clock);
    let startedMs = clock.monotonicMs();
    for (let i = 0; i < 2_000; i++) {
      const takesMs = clock.random() * 50_000;
      const { nextTryAtMs } = link.fail(FAILURE, startedMs - takesMs);
      expect(nextTryAtMs - (startedMs - takesMs)).toBeLessThanOrEqual(60_000);
      expect(nextTryAtMs).toBeGreaterThan(clock.monotonicMs());
      startedMs = clock.monotonicMs();
    }
    expect(link.outage?.attempts).toBe(2_000);
  });

  it('grows the pause of a spent quota from a minute to an hour', () => {
    const clock = new ManualClock(0, 4);
    const link = new PlatformAvailability(clock);
    const pauses = Array.from({ length: 12 }, () => link.failQuota(FAILURE).nextTryAtMs - clock.monotonicMs());
    expect(pauses[0]).toBeLessThanOrEqual(60_000);
    expect(Math.min(...pauses.slice(8))).toBeGreaterThanOrEqual(1_800_000);
    expect(Math.max(...pauses)).toBeLessThanOrEqual(3_600_000);
    // A renewed session says nothing about the quota.
    link.tryNow();
    expect(link.outage?.nextTryAtMs).toBeGreaterThan(clock.monotonicMs());
    link.fail(FAILURE, clock.monotonicMs());
    link.tryNow();
    expect(link.outage?.nextTryAtMs).toBe(clock.monotonicMs());
  });

  it('spreads the first returns of 300 gateways after a common outage of an hour over a minute', async () => {
    const gateways = await Promise.all(
      Array.from({ length: 300 }, async (_, i) => {
        const clock = new ManualClock(Date.UTC(2026, 10, 21), i + 1);
        const platform = new DirectPlatform(clock);
        const plant = new Plant(clock, platform, {}, 400);
        await plant.uplink.start();
        let away = true;
        platform.failing = () =>
          away ? new PlatformError('no', { code: 'platform.connection_refused', retryable: true }) : undefined;
        plant.accept(1, 1, 20);
        await clock.advance(3_600_000);
        const returnedMs = clock.monotonicMs();
        away = false;
        await clock.advance(60_000);
        const first = platform.ledger.posts[0]!.atMs - returnedMs;
        const stopped = plant.uplink.stop(0);
        await clock.advance(100);
        await stopped;
        expect(plant.buffer.waiting).toBe(0);
        return first;
      }),
    );
    // No ten seconds see much more than their share, and none of the gateways waits longer than a minute.
    const counts = new Array<number>(6).fill(0);
    for (const first of gateways) counts[Math.floor(first / 10_000)]!++;
    expect(Math.max(...gateways)).toBeLessThanOrEqual(60_000);
    expect(Math.max(...counts)).toBeLessThan(130);
    const perSecond = new Map<number, number>();
    for (const first of gateways) {
      const second = Math.floor(first / 1_000);
      perSecond.set(second, (perSecond.get(second) ?? 0) + 1);
    }
    expect(Math.max(...perSecond.values())).toBeLessThan(30);
  });
});
