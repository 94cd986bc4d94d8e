import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import type { Broker } from '../../../src/broker/broker.ts';
import { Brokers } from '../../../src/broker/brokers.ts';
import { scanMessages } from '../../../src/sources/messages/scan.ts';
import type { ScannedValue } from '../../../src/sources/source-kind.ts';
import { StrictBroker } from '../broker/strict-broker.ts';

let server: StrictBroker;
let port: number;
beforeEach(async () => {
  server = new StrictBroker();
  port = await server.start();
});
afterEach(() => server.stop());

/** Listens again if a busy machine delivered fewer values. */
async function scanFor(count: number, what: readonly string[]): Promise<ScannedValue[]> {
  for (let waitMs = 600; ; waitMs *= 4) {
    const found = await scan(what, waitMs);
    if (found.length >= count || waitMs > 20_000) return found;
  }
}

async function scan(what: readonly string[], waitMs: number): Promise<ScannedValue[]> {
  const spec = { url: `mqtt://127.0.0.1:${port}`, version: 5, qos: 1, sessionExpiryMs: 60_000 } as const;
  const brokers = new Brokers({ clientId: () => 'gw', clock: systemClock, logger: silentLogger() });
  await brokers.set([{ name: 'plant', spec }]);
  const broker = (await brokers.inspection('plant')).get('plant') as Broker;
  const found: ScannedValue[] = [];
  const { signal } = new AbortController();
  for await (const step of scanMessages({ broker, what, waitMs, clock: systemClock, signal })) {
    if ('found' in step) found.push(step.found);
    else if ('done' in step) expect(step.done).toBeLessThanOrEqual(step.total);
  }
  return found;
}

const retain = (topic: string, payload: string) => server.publish(topic, payload, { retain: true });

describe('MQTT scan', () => {
  it('lists each numeric topic, and each number in a JSON message together with its timestamp', async () => {
    retain('plant/P-1/flow', '12.5');
    retain('plant/P-2/flow', '"7"');
    retain('plant/P-1/state', 'running');
    retain('plant/P-1/motor', '{"temp":71.5,"on":true,"phases":[{"a/b":1},{"a/b":2}],"name":"M1","ts":1795219200123}');
    retain('site/ft101', '{"value":"3.5","time":"2026-11-21T00:00:00Z"}');
    retain('site/old', '{"v":1,"t":1795219200}');
    retain('site/nothing', '{}');
    expect((await scanFor(8, [])).map(({ key, members }) => [key, members])).toEqual([
      ['flow', { topic: 'plant/P-1/flow' }],
      ['temp', { topic: 'plant/P-1/motor', at: '/temp', time: '/ts' }],
      ['on', { topic: 'plant/P-1/motor', at: '/on', time: '/ts' }],
      ['a_1b', { topic: 'plant/P-1/motor', at: '/phases/0/a~1b', time: '/ts' }],
      ['a_1b_2', { topic: 'plant/P-1/motor', at: '/phases/1/a~1b', time: '/ts' }],
      ['flow_2', { topic: 'plant/P-2/flow' }],
      ['value', { topic: 'site/ft101', at: '/value', time: '/time' }],
      ['v', { topic: 'site/old', at: '/v', time: '/t', time_unit: 's' }],
    ]);
    expect((await scanFor(2, ['plant/+/flow'])).map(({ sample }) => sample)).toEqual(['12.5', '7']);
    // The scan left no session at the broker.
    expect(server.filters).toEqual([]);
  });

  it('proposes samples for a list whose elements have timestamps', async () => {
    retain('site/a', '{"id":7,"data":{"samples":[{"v":1.5,"t":1795219200123},{"v":2.5,"t":1795219200223}]}}');
    retain('site/b', '[{"p":{"x":1},"time":"2026-11-21T00:00:00Z"},{"p":{"x":2},"time":"2026-11-21T00:00:01Z"}]');
    expect((await scanFor(3, [])).map(({ members, sample }) => [members, sample])).toEqual([
      [{ topic: 'site/a', samples: '/data/samples', at: '/v', time: '/t' }, '2.5'],
      [{ topic: 'site/a', at: '/id' }, '7'],
      [{ topic: 'site/b', samples: '', at: '/p/x', time: '/time' }, '2'],
    ]);
  });

  it('reports invalid topics, rejected topics and an unreachable broker', async () => {
    await expect(scan(['a/#/b'], 600)).rejects.toThrow('"a/#/b" contains a # before the last level');
    server.forbidden.add('#');
    await expect(scan([], 20_000)).rejects.toThrow('rejected subscriptions to #');
    await server.stop();
    await expect(scan([], 600)).rejects.toThrow(
      /broker is not connected \(failed to connect to 127\.0\.0\.1 port \d+: ECONNREFUSED\)/,
    );
  });
});
