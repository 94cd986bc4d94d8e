/** A pulled plug, the fast way: what no sync has covered is gone. `scripts/prove plug` pulls that of a whole machine. */
import { expect, it } from 'vitest';
import { pullPlug } from './plug.ts';

const SEED = Number(process.env.PROVE_SEED ?? 1);

it(`a pulled plug loses nothing that was acknowledged, seed ${SEED}`, { timeout: 300_000 }, async () => {
  const { values, events, allowedRepeats } = await pullPlug({ seed: SEED, cuts: 3 });
  expect(values).toMatchObject({ missing: 0, invented: 0, different: 0 });
  expect(values.repeated).toBeLessThanOrEqual(allowedRepeats);
  expect(events).toMatchObject({ missing: 0, invented: 0 });
  expect(events.acknowledged).toBe(events.sent);
});

it('with synchronous=NORMAL it does, or these tests prove nothing', { timeout: 300_000 }, async () => {
  const { values } = await pullPlug({ seed: SEED, cuts: 2, isNormal: true });
  expect(values.missing).toBeGreaterThan(0);
});
