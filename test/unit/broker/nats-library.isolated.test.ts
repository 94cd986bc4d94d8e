import { expect, it, vi } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import { Redactor } from '../../../src/base/redactor.ts';
import { BrokerLog } from '../../../src/broker/broker-log.ts';
import { NatsPull } from '../../../src/broker/nats/nats-pull.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { openConnection } from './open-connection.ts';

const tries = vi.hoisted(() => ({ count: 0 }));
vi.mock('@nats-io/jetstream', () => ({
  jetstreamManager: () => {
    tries.count++;
    throw Object.assign(new Error('too many files are open'), { code: 'EMFILE' });
  },
  get jetstream() {
    tries.count++;
    throw Object.assign(new Error('too many files are open'), { code: 'EMFILE' });
  },
}));

it('NATS client library is loaded again if the first attempt failed because file descriptors were exhausted', async () => {
  const clock = new ManualClock();
  const { connection, close } = openConnection();
  const pull = new NatsPull(
    { stream: 'S', durable: 'd', ackWaitMs: 1_000, ordered: false, subjects: () => ['a'], handler: async () => {} },
    { clock, log: new BrokerLog({ name: 'line', clock, logger: silentLogger() }), redactor: new Redactor() },
  );
  const run = pull.run(connection);
  run.catch(() => {});
  await vi.waitFor(async () => {
    await clock.advance(1_000);
    expect([tries.count > 1, pull.problem]).toEqual([true, 'EMFILE']);
  });
  close();
  pull.close();
  await expect(run).resolves.toBeUndefined();
});
