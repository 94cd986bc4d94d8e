/** One day of the session with faults; `scripts/prove session` runs a month. */
import { expect, it } from 'vitest';
import { liveMonth } from './session-month.ts';

const SEED = Number(process.env.PROVE_SEED ?? 1);

it(`a session sends no invalid token, renews one token at a time, and leaves no token after shutdown, seed ${SEED}`, {
  timeout: 180_000,
}, async () => {
  const { deadTokens, renewalsAtOnce, leftAfterStop, tokens } = await liveMonth(SEED, 1);
  expect({ deadTokens, renewalsAtOnce, leftAfterStop }).toEqual({ deadTokens: 0, renewalsAtOnce: 1, leftAfterStop: 0 });
  expect(tokens).toBeGreaterThan(80);
});
