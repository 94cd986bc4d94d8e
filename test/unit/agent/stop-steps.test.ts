import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { stopSteps } from '../../../src/agent/running-agent.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

function steps() {
  const clock = new ManualClock();
  const lines: Record<string, unknown>[] = [];
  const log = pino({ base: null }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  return { clock, lines, step: stopSteps(log, clock) };
}

describe('shutdown step', () => {
  it('is logged with the component name if it times out', async () => {
    const { clock, lines, step } = steps();
    const stuck = step('sources', new Promise(() => {}), 15_000);
    await clock.advance(14_999);
    expect(lines).toEqual([]);
    await clock.advance(1);
    await stuck;
    expect(lines).toMatchObject([{ event: 'agent.stop_failed', step: 'sources', error: 'timed out after 15 s' }]);
  });

  it('clears its timer if the component stops in time, and logs component errors', async () => {
    const { clock, lines, step } = steps();
    await step('uplink', Promise.resolve(), 15_000);
    await step('ops', Promise.reject(new Error('gone')), 15_000);
    expect(clock.waiting).toBe(0);
    expect(lines).toMatchObject([{ event: 'agent.stop_failed', step: 'ops', error: 'gone' }]);
  });
});
