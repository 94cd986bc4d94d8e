import { expect, it } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import { BrokerIntake } from '../../../src/webhook/broker-intake.ts';
import type { ArrivedEvent } from '../../../src/webhook/received-event.ts';
import { sign } from '../../../src/webhook/signature.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const SECRET = 'the-secret-of-the-webhook';
const body = Buffer.from(JSON.stringify({ event_type: 'new_thing', occurred_at: '2026-11-23T04:00:00Z' }));

it('broker intake accepts a delayed event regardless of the clock, and rejects a modified body', async () => {
  // A gateway without a real-time clock, before NTP responds.
  const clock = new ManualClock(5_000);
  const stored: ArrivedEvent[] = [];
  const rejected: string[] = [];
  const intake = new BrokerIntake({
    arrivals: {
      store: async (event) => {
        stored.push(event);
      },
    },
    secrets: [SECRET],
    acceptSha1: false,
    concerns: () => true,
    clock,
    log: silentLogger(),
    rejected: (reason) => rejected.push(reason),
    passed: () => {},
  });
  const header = (name: string) => (name === 'x-hub-signature-sha256' ? sign(body, SECRET) : undefined);
  await intake.receive(body, header);
  clock.jumpWall(Date.UTC(2026, 10, 23, 5));
  await intake.receive(body, header);
  expect(rejected).toEqual([]);
  expect(stored.map(({ receivedAtMs }) => receivedAtMs)).toEqual([5_000, 5_000 + Date.UTC(2026, 10, 23, 5)]);
  // The identity contains no time of this machine.
  expect(stored[1]!.identity).toEqual(stored[0]!.identity);
  await intake.receive(Buffer.from(`${body} `), header);
  expect(rejected).toEqual(['signature_wrong']);
});
