/**
 * A hostile day in half a minute: every way in, every fault, one judge. Always the same one, so that a tree is judged by what it is;
 * `PROVE_SEED=7 vitest run test/prove/day.test.ts` lives another, `scripts/prove` as many as one likes.
 */
import { expect, it } from 'vitest';
import { liveDay } from './day.ts';
import { FAULTS } from './faults.ts';
import { mixed, scheduleText } from './schedule.ts';

const SEED = Number(process.env.PROVE_SEED ?? 348_614);
const LENGTH_MS = 22_000;

it(`what was acknowledged is delivered, whatever comes, seed ${SEED}`, { timeout: 300_000 }, async () => {
  const schedule = mixed(SEED, LENGTH_MS, Object.keys(FAULTS).length, FAULTS);
  const { wrong, all, events } = await liveDay({ seed: SEED, schedule, perSecond: 300 });
  expect(wrong, `seed ${SEED}: ${scheduleText(schedule)}`).toEqual([]);
  expect(all.acknowledged).toBeGreaterThan(0);
  expect(events.acknowledged).toBeGreaterThan(0);
});

it('what was acknowledged is delivered, and has its reaction once, where nothing fails', async () => {
  const { wrong, all, events } = await liveDay({ seed: SEED, schedule: [], perSecond: 300 });
  expect(wrong).toEqual([]);
  expect(all.acknowledged).toBeGreaterThan(0);
  expect(events).toMatchObject({ missing: 0, repeated: 0 });
  expect(events.acknowledged).toBeGreaterThan(0);
});
