/** A day of the session with faults; `scripts/prove session` lives a month. */
import { expect, it } from 'vitest';
import { liveMonth } from './session-month.ts';

const SEED = Number(process.env.PROVE_SEED ?? 1);

it(`no call carries a dead token, no two renewals meet, none is left after a stop, seed ${SEED}`, {
  timeout: 180_000,
}, async () => {
  const { deadTokens, renewalsAtOnce, leftAfterStop, tokens } = await liveMonth(SEED, 1);
  expect({ deadTokens, renewalsAtOnce, leftAfterStop }).toEqual({ deadTokens: 0, renewalsAtOnce: 1, leftAfterStop: 0 });
  expect(tokens).toBeGreaterThan(80);
});
