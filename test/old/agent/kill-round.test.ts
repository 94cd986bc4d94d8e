import { expect, it } from 'vitest';
import { runRound } from './kill-round.ts';

const SEED = Number(process.env.KILL_SEED ?? 2);

it(`values, events and reactions survive kills, outages, rotations and hostile requests, seed ${SEED}`, {
  timeout: 300_000,
}, async () => {
  const report = await runRound(SEED, 6_000, AbortSignal.timeout(240_000));
  expect(report.wrong, report.output).toEqual([]);
  expect(report.did.kills).toBeGreaterThan(0);
});
