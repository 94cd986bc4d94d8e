import { expect, it } from 'vitest';
import { silentLogger } from '../../src/base/logger.ts';
import { BrokerIntake } from '../../src/webhook/broker-intake.ts';
import type { ArrivedEvent } from '../../src/webhook/received-event.ts';
import { sign } from '../../src/webhook/signature.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const SECRET = 'the-secret-of-the-webhook';
const body = Buffer.from(JSON.stringify({ event_type: 'new_thing', occurred_at: '2026-11-23T04:00:00Z' }));

it('an event that waited at the broker is taken whatever this machine takes for the time, and known when it comes again', async () => {
  // A gateway without a clock of its own, before NTP has answered.
  const clock = new ManualClock(5_000);
  const taken: ArrivedEvent[] = [];
  const refused: string[] = [];
  const intake = new BrokerIntake({
    insertMany: async (events) => {
      taken.push(...events);
      return events.map(() => 'new' as const);
    },
    secrets: [SECRET],
    acceptSha1: false,
    concerns: () => true,
    clock,
    log: silentLogger(),
    received: () => {},
    rejected: (reason) => refused.push(reason),
    passed: () => {},
    inserted: () => {},
  });
  const header = (name: string) => (name === 'x-hub-signature-sha256' ? sign(body, SECRET) : undefined);
  await intake.take(body, header);
  clock.jumpWall(Date.UTC(2026, 10, 23, 5));
  await intake.take(body, header);
  expect(refused).toEqual([]);
  expect(taken.map(({ receivedAtMs }) => receivedAtMs)).toEqual([5_000, 5_000 + Date.UTC(2026, 10, 23, 5)]);
  // The inbox knows an event by this, in which no time of this machine is.
  expect(taken[1]!.identity).toEqual(taken[0]!.identity);
  await intake.take(Buffer.from(`${body} `), header);
  expect(refused).toEqual(['signature_wrong']);
});
