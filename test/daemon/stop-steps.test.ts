import { pino } from 'pino';
import { expect, it } from 'vitest';
import { stopSteps } from '../../src/daemon/stop-steps.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

function steps() {
  const clock = new ManualClock();
  const lines: Record<string, unknown>[] = [];
  const log = pino({ base: null }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  return { clock, lines, step: stopSteps(log, clock) };
}

it('a stop goes on behind a part that does not end in its time, and says which', async () => {
  const { clock, lines, step } = steps();
  const stuck = step('sources', new Promise(() => {}), 15_000);
  await clock.advance(14_999);
  expect(lines).toEqual([]);
  await clock.advance(1);
  await stuck;
  expect(lines).toMatchObject([{ event: 'agent.stop_failed', step: 'sources', error: 'it was not over within 15 s' }]);
});

it('a part that ends in its time leaves no timer behind, and one that fails is named', async () => {
  const { clock, lines, step } = steps();
  await step('uplink', Promise.resolve(), 15_000);
  await step('ops', Promise.reject(new Error('gone')), 15_000);
  expect(clock.waiting).toBe(0);
  expect(lines).toMatchObject([{ event: 'agent.stop_failed', step: 'ops', error: 'gone' }]);
});
