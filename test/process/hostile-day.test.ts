/**
 * A hostile day in a minute. `HOSTILE_SEED=7 vitest run test/process/hostile-day.test.ts` repeats one.
 */
import { expect, it } from 'vitest';
import { liveHostileDay } from './hostile-day.ts';

const SEED = Number(process.env.HOSTILE_SEED ?? 1);
const HAPPENINGS = 36;

it(`loses and invents nothing, whatever comes, seed ${SEED}`, { timeout: 300_000 }, async () => {
  const { count, happened } = await liveHostileDay(SEED, HAPPENINGS);
  const { acknowledged, ...wrong } = count;
  expect(wrong, `seed ${SEED}: ${happened.join(', ')}`).toEqual({ missing: 0, invented: 0, different: 0 });
  expect(acknowledged).toBeGreaterThan(500);
});
