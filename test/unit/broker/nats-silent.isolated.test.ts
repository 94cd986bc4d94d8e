import { pino } from 'pino';
import { expect, it, vi } from 'vitest';
import { Redactor } from '../../../src/base/redactor.ts';
import { BrokerLog } from '../../../src/broker/broker-log.ts';
import { NatsPull } from '../../../src/broker/nats/nats-pull.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { openConnection } from './open-connection.ts';

const asked = vi.hoisted(() => ({ count: 0 }));
vi.mock('@nats-io/jetstream', () => {
  const config = { ack_policy: 'explicit', filter_subject: 'a' };
  return {
    jetstreamManager: async () => ({ consumers: { info: async () => ({ stream_name: 'S', name: 'd', config }) } }),
    jetstream: () => ({
      consumers: {
        get: async () => ({
          fetch: async () => {
            asked.count++;
            throw new Error('heartbeats missed');
          },
        }),
      },
    }),
  };
});

// Found by `scripts/prove stops`: one log entry every four seconds.
it('NATS consumer that receives no messages is logged only at the repeat interval', async () => {
  const clock = new ManualClock();
  const counts: unknown[] = [];
  const logger = pino({ base: null }, { write: (line: string) => void counts.push(JSON.parse(line).count) });
  const { connection, close } = openConnection();
  const pull = new NatsPull(
    { stream: 'S', durable: 'd', ackWaitMs: 1_000, ordered: false, subjects: () => ['a'], handler: async () => {} },
    { clock, log: new BrokerLog({ name: 'line', clock, logger }), redactor: new Redactor() },
  );
  const run = pull.run(connection);
  run.catch(() => {});
  await vi.waitFor(async () => {
    await clock.advance(1_000);
    expect(asked.count).toBeGreaterThan(9);
  });
  close();
  pull.close();
  await expect(run).resolves.toBeUndefined();
  expect(counts.slice(0, 4)).toEqual([1, 2, 4, 8]);
});
