// Long: 9 min
import { randomInt } from 'node:crypto';
import { expect, it } from 'vitest';
import { liveHostileDay } from '../old/agent/hostile-day.ts';
import { runRound } from '../old/agent/kill-round.ts';

const ROUND_MS = 150_000;
const HAPPENINGS = 120;

it('minutes of kills, outages, rotations, full disks and hostile requests lose, repeat or invent no values', {
  timeout: 30 * 60_000,
}, async () => {
  for (let round = 0; round < 2; round++) {
    const seed = randomInt(1, 1_000_000);
    const report = await runRound(seed, ROUND_MS, AbortSignal.timeout(10 * 60_000));
    expect(report.wrong, `KILL_SEED=${seed}: ${report.output}`).toEqual([]);
    const { count } = await liveHostileDay(seed, HAPPENINGS);
    expect(count, `HOSTILE_SEED=${seed}`).toMatchObject({ missing: 0, invented: 0, different: 0 });
  }
});
