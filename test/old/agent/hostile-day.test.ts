/** A hostile day in one minute. To repeat a day, run `HOSTILE_SEED=7 vitest run test/old/agent/hostile-day.test.ts`. */
import { expect, it } from 'vitest';
import { liveHostileDay } from './hostile-day.ts';

const SEED = Number(process.env.HOSTILE_SEED ?? 1);
const HAPPENINGS = 36;

it(`a hostile day neither loses nor invents values, seed ${SEED}`, { timeout: 300_000 }, async () => {
  const { count, happened } = await liveHostileDay(SEED, HAPPENINGS);
  const { acknowledged, ...wrong } = count;
  expect(wrong, `seed ${SEED}: ${happened.join(', ')}`).toEqual({ missing: 0, invented: 0, different: 0 });
  expect(acknowledged).toBeGreaterThan(500);
});
