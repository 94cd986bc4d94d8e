/**
 * Fast simulated power failure: data without a sync is lost. `scripts/prove plug` cuts the power of a whole machine.
 */
import { expect, it } from 'vitest';
import { pullPlug } from './plug.ts';

const SEED = Number(process.env.PROVE_SEED ?? 1);

it(`a power failure loses no acknowledged value, seed ${SEED}`, { timeout: 300_000 }, async () => {
  const { values, events, allowedRepeats } = await pullPlug({ seed: SEED, cuts: 3 });
  expect(values).toMatchObject({ missing: 0, invented: 0, different: 0 });
  expect(values.repeated).toBeLessThanOrEqual(allowedRepeats);
  expect(events).toMatchObject({ missing: 0, invented: 0 });
  expect(events.acknowledged).toBe(events.sent);
});

it('a power failure with synchronous=NORMAL loses acknowledged values, as a control', {
  timeout: 300_000,
}, async () => {
  const { values } = await pullPlug({ seed: SEED, cuts: 2, isNormal: true });
  expect(values.missing).toBeGreaterThan(0);
});
