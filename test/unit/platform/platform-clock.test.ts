import { beforeEach, describe, expect, it } from 'vitest';
import { PlatformClock } from '../../../src/platform/platform-clock.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const NOW = Date.UTC(2026, 10, 21);
const YEARS = 10 * 365 * 86_400_000;
const DAY = 86_400_000;

let clock: ManualClock;
let platform: PlatformClock;

const dated = (ms: number) => ({
  header: (name: string) => (name === 'date' ? new Date(ms).toUTCString() : undefined),
});
const witness = (...times: number[]) => {
  for (const ms of times) platform.witness(dated(ms));
  return platform.nowMs();
};

const grant = (ms: number, createdAt: unknown = Math.floor(ms / 1000)) => {
  platform.witnessGrant(dated(ms), createdAt);
  return platform.nowMs();
};

beforeEach(() => {
  clock = new ManualClock(NOW);
  platform = new PlatformClock(clock);
});

describe('platform clock', () => {
  it('accepts a response that agrees with the gateway clock', () => {
    expect(witness(NOW + 5_000)).toBe(NOW + 5_000);
    expect(platform.isDisputed).toBe(false);
  });

  it('accepts a response that contradicts the gateway clock if a token response confirms it', () => {
    expect(witness(NOW - DAY)).toBeUndefined();
    expect(platform.isDisputed).toBe(true);
    expect(grant(NOW - DAY + 1_000)).toBe(NOW - DAY + 1_000);
    expect(platform.isDisputed).toBe(false);
  });

  it('accepts a token response that contradicts the gateway clock if another response confirms it', () => {
    expect(grant(NOW - DAY)).toBeUndefined();
    expect(platform.isDisputed).toBe(true);
    expect(witness(NOW + YEARS)).toBeUndefined();
    expect(witness(NOW - DAY + 1_000)).toBe(NOW - DAY + 1_000);
  });

  it('is not set without a token response, even if other responses confirm each other', async () => {
    expect(witness(NOW + YEARS, NOW + YEARS, NOW + YEARS)).toBeUndefined();
    grant(NOW);
    for (let response = 0; response < 3; response++) {
      await clock.advance(1_000);
      expect(witness(clock.wallMs() + YEARS)).toBe(clock.wallMs());
    }
  });

  it('is not set by a token response whose date was changed in transit', () => {
    expect(grant(NOW + YEARS, NOW / 1000)).toBeUndefined();
    expect(witness(NOW + YEARS)).toBeUndefined();
    expect(grant(NOW + YEARS, NOW / 1000)).toBeUndefined();
  });

  it('is set by a token response without created_at and a response that confirms it', () => {
    grant(NOW + DAY, undefined);
    expect(witness(NOW + DAY)).toBe(NOW + DAY);
  });

  it('ignores a single response with a different date', () => {
    witness(NOW);
    expect(witness(NOW + YEARS)).toBe(NOW);
    expect(witness(NOW - DAY)).toBe(NOW);
    expect(witness(NOW + 1_000)).toBe(NOW);
    expect(witness(NOW + YEARS)).toBe(NOW);
  });

  it.each([25_000, -25_000])('ignores 44 responses that each shift the date by %i ms', async (stepMs) => {
    witness(NOW);
    for (let response = 1; response <= 44; response++) {
      await clock.advance(100);
      witness(clock.wallMs() + response * stepMs);
      expect(platform.offsetMs()).toBe(0);
    }
  });

  it('ignores differences smaller than the reading error', async () => {
    witness(NOW);
    for (let response = 1; response <= 600; response++) {
      await clock.advance(1_000);
      witness(platform.nowMs()! + 1_900);
    }
    expect(platform.offsetMs()).toBe(0);
  });

  it('changes by at most 500 ppm if token responses differ by less than the reading error', async () => {
    grant(NOW);
    for (let response = 1; response <= 600; response++) {
      await clock.advance(1_000);
      grant(platform.nowMs()! + 1_900);
    }
    expect(platform.offsetMs()).toBeLessThanOrEqual(300.001);
  });

  it('limits the step caused by a single response after a month without responses', async () => {
    witness(NOW);
    await clock.advance(30 * DAY);
    witness(clock.wallMs() + 1_000_000);
    expect(platform.offsetMs()).toBe(0);
  });

  it.each([100e-6, -100e-6])(
    'accepts individual correct token responses during a month with a drift of %f',
    async (drift) => {
      const intervalMs = 10 * 60_000;
      witness(NOW);
      for (let elapsedMs = intervalMs; elapsedMs <= 30 * DAY; elapsedMs += intervalMs) {
        await clock.advance(intervalMs);
        const trueMs = NOW + elapsedMs * (1 + drift);
        grant(trueMs - clock.random() * 900);
        expect(Math.abs(platform.nowMs()! - trueMs)).toBeLessThan(2_500);
        // Replaces any stored date, so that correct dates cannot confirm each other.
        witness(trueMs + YEARS + elapsedMs);
      }
    },
  );

  it('compares later responses with the confirmed time after a jump', async () => {
    witness(NOW);
    grant(NOW + DAY);
    expect(witness(NOW + DAY + 1_000)).toBe(NOW + DAY + 1_000);
    await clock.advance(60_000);
    expect(witness(NOW + DAY + 86_000)).toBe(NOW + DAY + 61_000);
    expect(witness(NOW + 3 * DAY)).toBe(NOW + DAY + 61_000);
  });

  it('follows the gateway clock if a single response agrees with it', async () => {
    witness(NOW + 20_000);
    expect(witness(NOW + 1_000)).toBe(NOW + 1_000);
  });

  it('is trusted again after a minute without a second response', async () => {
    witness(NOW + YEARS);
    await clock.advance(61_000);
    expect(platform.isDisputed).toBe(false);
    expect(platform.nowMs()).toBeUndefined();
  });

  it('accepts the first response if the gateway clock has never been set', () => {
    clock = new ManualClock(1_000);
    platform = new PlatformClock(clock);
    expect(witness(NOW)).toBe(NOW);
  });

  it.each(['-5', '2026-11-21', 'soon', ''])('ignores the invalid date “%s”', (text) => {
    platform.witness({ header: () => text });
    expect(platform.nowMs()).toBeUndefined();
    expect(platform.isDisputed).toBe(false);
  });
});
