import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import type { Broker } from '../../../src/broker/broker.ts';
import { Brokers } from '../../../src/broker/brokers.ts';
import { findings } from '../../../src/ops/findings.ts';
import type { MessageValue } from '../../../src/sources/messages/payload.ts';
import { MqttSource } from '../../../src/sources/mqtt/mqtt-source.ts';
import { pointsOf } from '../../../src/sources/points.ts';
import { Shared } from '../../../src/sources/source-kind.ts';
import { fasterClock } from '../doubles/faster-clock.ts';
import { makeIntakeBench, originOf, tagOf } from '../sources/sink-double.ts';
import { StrictBroker } from './strict-broker.ts';

const clock = fasterClock(50);

let server: StrictBroker;
let brokers: Brokers;
let gate: ReturnType<ReturnType<typeof makeIntakeBench>['gateOf']>;
let bench: ReturnType<typeof makeIntakeBench>;
/** Number of times that the topic of any value was read. */
let reads = 0;

beforeEach(() => {
  server = new StrictBroker();
});
afterEach(async () => {
  await brokers.stop(0);
  await server.stop();
});

/** Starts a source with one value per topic. */
async function start(topics: readonly string[], template?: string): Promise<void> {
  const spec = {
    url: `mqtt://127.0.0.1:${await server.start()}`,
    version: 5,
    qos: 1,
    sessionExpiryMs: 60_000,
  } as const;
  const values = topics.map((topic, at) => {
    const value: MessageValue = {
      get topic() {
        reads++;
        return topic;
      },
      template: template ?? topic,
    };
    return { key: `k${at}`, from: originOf('mqtt', 'plant', value) };
  });
  const tags = new Map([['T', tagOf('T', 1, values)]]);
  bench = makeIntakeBench(tags);
  brokers = new Brokers({ clientId: () => 'gw', clock, logger: silentLogger() });
  await brokers.set([{ name: 'plant', spec }]);
  gate = bench.gateOf('plant');
  const context = {
    source: { kind: 'mqtt', name: 'plant', everyMs: 0, timeFrom: 'source', spec } as const,
    points: pointsOf<MessageValue>(tags, 'plant', bench.intake),
    intake: bench.intake,
    instance: 'test',
    stateDir: '/nowhere',
    gate,
    status: gate.status,
    isTest: false,
    brokers,
    shared: new Shared(),
    notes: async () => new Map<string, string>(),
    clock,
    log: silentLogger(),
  };
  new MqttSource(context, new Map()).start();
  brokers.start();
}

const report = () => gate.status.report(0);
const stored = () => bench.sink.stored.map(({ value }) => value);

describe('MQTT topic that the broker does not allow', () => {
  it('is a problem of the source until the broker accepts the subscription', async () => {
    server.forbidden.add('site/secret');
    await start(['site/a', 'site/secret']);
    await vi.waitUntil(() => report().problem !== null);
    expect(report()).toMatchObject({
      connected: true,
      problem: 'the broker rejects the subscription to site/secret',
      hint: expect.stringContaining('read access'),
    });
    server.publish('site/a', '7');
    await vi.waitUntil(() => stored().includes(7));
    const found = findings({ sources: [report()] } as never);
    expect(found.filter(({ event }) => event === 'source.partial')).toMatchObject([
      { sentence: expect.stringContaining('site/secret') },
    ]);
    server.forbidden.clear();
    await vi.waitUntil(() => server.filters.length === 2, { timeout: 20_000 });
    expect(server.connections).toBe(1);
    await vi.waitUntil(() => report().problem === null && report().hint === null);
  });

  it('is replaced by its single topics if it is the wildcard of a template, which is not a problem', async () => {
    server.forbidden.add('plant/+/flow');
    const topics = Array.from({ length: 12 }, (_, at) => `plant/P-${at}/flow`);
    await start(topics, 'plant/{tag}/flow');
    await vi.waitUntil(() => server.filters.length === 12);
    expect(report().problem).toBeNull();
  });

  it('is identified and skipped if the broker closes the connection on its SUBSCRIBE', async () => {
    server.closesOn.add('site/secret').add('site/other');
    await start(['site/a', 'site/secret', 'site/b', 'site/other']);
    await vi.waitUntil(() => report().problem?.includes('and 1 more'), { timeout: 30_000 });
    await vi.waitUntil(() => server.filters.length === 2 && server.connected === 1, { timeout: 20_000 });
    expect([server.filters, report().problem]).toEqual([
      ['site/a', 'site/b'],
      'the broker rejects the subscription to site/secret and 1 more',
    ]);
    server.publish('site/b', '8');
    await vi.waitUntil(() => stored().includes(8));
    // One connection for all topics, two for each forbidden topic, and the current one.
    expect(server.connections).toBe(6);
  });

  it('is identified and skipped if the broker does not respond to its SUBSCRIBE, and the connection stays open', async () => {
    server.silentOn.add('site/secret');
    await start(['site/a', 'site/secret', 'site/b']);
    await vi.waitUntil(() => report().problem?.includes('site/secret'), { timeout: 20_000 });
    await vi.waitUntil(() => server.filters.length === 2, { timeout: 20_000 });
    expect(server.filters).toEqual(['site/a', 'site/b']);
    const { connections } = server;
    server.publish('site/b', '8');
    await vi.waitUntil(() => stored().includes(8));
    const { pings } = server;
    await vi.waitUntil(() => server.pings > pings, { timeout: 20_000 });
    expect(server.connections).toBe(connections);
  });

  it('precedes the topics of its device after a connection that ended during its SUBSCRIBE, if it is an availability topic', async () => {
    await start(['site/a']);
    await vi.waitUntil(() => server.filters.length === 1);
    vi.spyOn(server.closesOn, 'has').mockReturnValueOnce(true);
    (brokers.get('plant') as Broker).subscribe(['site/a'], async () => {}, { stateTopics: ['site/state'] });
    await vi.waitUntil(() => server.asked.length === 3, { timeout: 20_000 });
    expect(server.asked).toEqual(['+site/a', '+site/state', '+site/a']);
  });

  it('is assigned to its values in linear time if the broker rejects many topics', async () => {
    const topics = Array.from({ length: 400 }, (_, at) => `site/${at}`);
    for (const topic of topics) server.forbidden.add(topic);
    await start(topics);
    reads = 0;
    await vi.waitUntil(() => report().problem?.includes(`and ${topics.length - 1} more`), { timeout: 20_000 });
    expect(reads / topics.length).toBeLessThan(20);
  });
});

describe('MQTT broker that closes each connection at CONNECT', () => {
  it('is a problem of the source with a hint, until it accepts a connection', async () => {
    server.hangsUp = true;
    await start(['site/a']);
    await vi.waitUntil(() => report().problem !== null);
    expect(report()).toMatchObject({
      connected: false,
      problem: 'the broker closed the connection',
      hint: expect.stringContaining('set version: 3'),
    });
    server.hangsUp = false;
    await vi.waitUntil(() => report().connected === true, { timeout: 20_000 });
    expect(report()).toMatchObject({ problem: null, hint: null });
  });
});
