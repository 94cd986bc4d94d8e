/**
 * A hostile day in half a minute, with every input, every fault and one oracle. The seed is fixed, so that results
 * depend on the source tree only. `PROVE_SEED=7 vitest run test/prove/day.test.ts` runs a different day, and
 * `scripts/prove` runs any number of days.
 */
import { expect, it } from 'vitest';
import { liveDay } from './day.ts';
import { FAULTS } from './faults.ts';
import { mixed, scheduleText } from './schedule.ts';

const SEED = Number(process.env.PROVE_SEED ?? 348_614);
const LENGTH_MS = 22_000;

it(`acknowledged values are delivered under all faults, seed ${SEED}`, { timeout: 300_000 }, async () => {
  const schedule = mixed(SEED, LENGTH_MS, Object.keys(FAULTS).length, FAULTS);
  const { wrong, all, events, rules } = await liveDay({ seed: SEED, schedule, perSecond: 300 });
  expect(wrong, `seed ${SEED}: ${scheduleText(schedule)}`).toEqual([]);
  expect(all.acknowledged).toBeGreaterThan(0);
  expect(events.acknowledged).toBeGreaterThan(0);
  expect(rules.crossings).toBeGreaterThan(0);
});

it('acknowledged values are delivered and acknowledged events run reactions exactly once without faults', async () => {
  const { wrong, all, events } = await liveDay({ seed: SEED, schedule: [], perSecond: 300 });
  expect(wrong).toEqual([]);
  expect(all.acknowledged).toBeGreaterThan(0);
  expect(events).toMatchObject({ missing: 0, repeated: 0 });
  expect(events.acknowledged).toBeGreaterThan(0);
});
