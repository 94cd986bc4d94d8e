import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import { Brokers } from '../../../src/broker/brokers.ts';
import type { MessageValue } from '../../../src/sources/messages/payload.ts';
import { MqttSource } from '../../../src/sources/mqtt/mqtt-source.ts';
import { pointsOf } from '../../../src/sources/points.ts';
import { Shared } from '../../../src/sources/source-kind.ts';
import { makeIntakeBench, originOf, storeFault, tagOf } from '../sources/sink-double.ts';
import { StrictBroker } from './strict-broker.ts';

/** Silence after which a broker disconnects a client: 1.5 times the keep-alive (MQTT 5, 3.1.2.10). */
const SILENCE_MS = 45_000;
const MINUTES = 5;

const VALUE: MessageValue = { topic: 'site/t', template: 'site/t' };
const TAGS = new Map([['T', tagOf('T', 1, [{ key: 'v', from: originOf('mqtt', 'plant', VALUE) }])]]);

let server: StrictBroker;
let port: number;
beforeEach(async () => {
  // The broker may send more messages than the agent reads while earlier ones are waiting.
  server = new StrictBroker({ window: 65_535 });
  port = await server.start();
});
afterEach(() => server.stop());

it.each([
  { what: 'a commit takes minutes', version: 5, holds: true, fault: undefined },
  { what: 'the buffer is full', version: 5, holds: false, fault: 'buffer.full' },
  { what: 'so much is waiting that no more is read', version: 3, holds: true, fault: undefined },
] as const)(
  'MQTT keep-alive continues while $what, and the connection stays open',
  async ({ version, holds, fault }) => {
    const { sink, gateOf, intake, clock } = makeIntakeBench(TAGS);
    const log = silentLogger();
    const spec = {
      url: `mqtt://127.0.0.1:${port}`,
      version,
      qos: 1,
      sessionExpiryMs: 60_000,
    } as const;
    const brokers = new Brokers({ clientId: () => 'gw', clock, logger: log });
    await brokers.set([{ name: 'plant', spec }]);
    const gate = gateOf('plant');
    const source = new MqttSource(
      {
        source: { kind: 'mqtt', name: 'plant', everyMs: 0, timeFrom: 'source', spec },
        points: pointsOf<MessageValue>(TAGS, 'plant', intake),
        intake,
        instance: 'test',
        stateDir: '/nowhere',
        gate,
        status: gate.status,
        isTest: false,
        brokers,
        shared: new Shared(),
        notes: async () => new Map(),
        clock,
        log,
      },
      new Map(),
    );
    sink.holds = holds;
    if (fault) sink.fault = storeFault(fault);
    source.start();
    brokers.start();
    await vi.waitUntil(() => server.filters.length === 1, { timeout: 30_000 });
    const count = 5_000;
    for (let n = 0; n < count; n++) server.publish('site/t', String(n));
    await vi.waitUntil(() => gate.waiting > 0, { timeout: 30_000 });
    for (let passedMs = 0; passedMs < MINUTES * 60_000; passedMs += SILENCE_MS) {
      const before = server.pings;
      await clock.advance(SILENCE_MS);
      await vi.waitUntil(() => server.pings > before, { timeout: 30_000 });
    }
    expect([gate.status.report(0).connected, brokers.get('plant')!.state().failures, server.confirmed]).toEqual([
      true,
      0,
      0,
    ]);
    sink.fault = undefined;
    sink.holds = false;
    sink.commit();
    await vi.waitUntil(
      async () => {
        await clock.advance(20_000);
        return server.pending === 0;
      },
      { timeout: 40_000 },
    );
    expect(sink.stored.map(({ value }) => value).toSorted((a, b) => a - b)).toEqual(
      Array.from({ length: count }, (_, n) => n),
    );
    expect(server.wrong).toEqual([]);
    await brokers.stop(0);
    await gate.stop();
  },
);
