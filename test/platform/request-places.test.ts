import { describe, expect, it } from 'vitest';
import { RequestBudget } from '../../src/platform/request-budget.ts';
import { RequestPlaces } from '../../src/platform/request-places.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const MINUTE_MS = 60_000;

/** Chance that is the same each time. */
function placesBy(seed: number): RequestPlaces {
  const clock = new ManualClock(0, seed);
  return new RequestPlaces(() => clock.random());
}

/** The places of so many minutes, each asked for at the one before. */
function placesOf(places: RequestPlaces, perMinute: number, minutes: number, fromMs = 0): number[] {
  const all: number[] = [];
  const untilMs = fromMs + minutes * MINUTE_MS;
  for (let ms = places.after(fromMs, perMinute); ms < untilMs; ms = places.after(ms, perMinute)) all.push(ms);
  return all;
}

describe('the places of requests in a minute', () => {
  it.each([0.25, 0.72, 1, 1.2, 2.5, 13, 50.3])(
    'are as many as the share of %d a minute says, in any part of the minute',
    (perMinute) => {
      for (const chance of [1, 2, 3]) {
        const all = placesOf(placesBy(chance), perMinute, 60);
        for (let at = 1; at < all.length; at++) expect(all[at]).toBeGreaterThan(all[at - 1]!);
        expect(Math.abs(all.length - 60 * perMinute)).toBeLessThan(2);
        for (const [from, to] of [
          [0, 0.5],
          [0.5, 1],
          [0.9, 1],
        ] as const) {
          const inPart = all.filter((ms) => (ms / MINUTE_MS) % 1 >= from && (ms / MINUTE_MS) % 1 < to);
          expect(Math.abs(inPart.length - 60 * perMinute * (to - from))).toBeLessThan(4);
        }
      }
    },
  );

  it('are of the minutes that the limit has, as often as it is told of them', () => {
    const told = placesBy(4);
    const own = placesOf(placesBy(4), 2.5, 10).map((ms) => ms + 23_000);
    told.opensAt(23_000);
    // Whole seconds, and the time on the way.
    told.opensAt(5 * MINUTE_MS + 24_500);
    told.opensAt(7 * MINUTE_MS + 21_500);
    const later = placesOf(told, 2.5, 10, 23_000);
    expect(later.length).toBeGreaterThan(20);
    for (const [at, ms] of later.entries()) expect(ms).toBeCloseTo(own[at]!, 3);
    told.opensAt(26_000);
    expect(told.after(26_000, 2.5)).not.toBeCloseTo(own[0]!, 0);
  });

  it('are lost while the limit is closed, come as soon as somebody ends the rest, and stay where a request is given back', async () => {
    const clock = new ManualClock(0, 3);
    const budget = new RequestBudget(clock, { requestsPerMinute: 400, requestsPerDay: 0, quietSinceMs: -Infinity });
    expect(budget.tryTake('live')).toBe(true);
    const nowMs = clock.monotonicMs();
    budget.refused(50_000);
    budget.restUntil(nowMs + 50_000);
    const placeMs = budget.nextAtMs('live');
    expect(placeMs).toBeGreaterThan(nowMs + 50_000);
    expect(placeMs).toBeLessThan(nowMs + 50_000 + 2 * budget.intervalMs);
    budget.endRest();
    expect(budget.nextAtMs('live')).toBeLessThan(nowMs + 2 * budget.intervalMs);
    const freeMs = budget.nextAtMs('live');
    await clock.advance(Math.max(0, freeMs - nowMs) + 1);
    expect(budget.tryTake('live')).toBe(true);
    expect(budget.nextAtMs('live')).toBeGreaterThan(clock.monotonicMs());
    budget.giveBack();
    expect(budget.nextAtMs('live')).toBeLessThanOrEqual(clock.monotonicMs());
  });
});
