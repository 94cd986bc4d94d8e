import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import type { BrokerSpec } from '../../../src/broker/broker-spec.ts';
import { Brokers } from '../../../src/broker/brokers.ts';
import type { Source } from '../../../src/config/tags.ts';
import { findings } from '../../../src/ops/findings.ts';
import type { Gate } from '../../../src/sources/intake/gate.ts';
import { SOURCE_KINDS } from '../../../src/sources/kinds.ts';
import { pointsOf } from '../../../src/sources/points.ts';
import { type RunningSource, Shared, type SourceContext } from '../../../src/sources/source-kind.ts';
import { StrictBroker } from '../broker/strict-broker.ts';
import { check } from '../config/folder.ts';
import { type IntakeBench, makeIntakeBench } from './sink-double.ts';

const GOOD = 0;
const log = silentLogger();
let logged: string[];
let bench: IntakeBench;
let gate: Gate;
let running: RunningSource | undefined;

beforeEach(() => {
  logged = [];
  for (const level of ['info', 'warn'] as const) {
    log[level] = (({ event }: { event: string }) => logged.push(event)) as typeof log.info;
  }
});

/** Opens the source `plant` as tags.yaml defines it. */
async function open(text: string, brokers: (source: Source) => unknown): Promise<void> {
  const { configuration, errors } = check({ 'tags.yaml': text });
  if (configuration === undefined) throw new Error(errors.join('\n'));
  const { tags, sources } = configuration.tags;
  const source = sources.get('plant')!;
  bench = makeIntakeBench(tags);
  gate = bench.gateOf('plant', source.timeFrom);
  const context = {
    source,
    points: pointsOf(tags, 'plant', bench.intake),
    gate,
    status: gate.status,
    brokers: await brokers(source),
    shared: new Shared(),
    notes: async () => new Map(),
    isTest: false,
    clock: systemClock,
    log,
  };
  const kind = SOURCE_KINDS.find((one) => one.kind === source.kind)!;
  running = await kind.open(context as unknown as SourceContext<never, never>);
  running.start();
}

/** Stored values with `bad` or `good`, by key. */
const stored = () =>
  bench.sink.stored.map(({ address, value, status }) => {
    const [, , key] = address.split('/');
    return `${key} ${value} ${status === GOOD ? 'good' : 'bad'}`;
  });
const report = () => gate.status.report(0);

describe('MQTT device that announces that it is offline', () => {
  let server: StrictBroker;
  let brokers: Brokers;

  beforeEach(() => {
    server = new StrictBroker();
    brokers = new Brokers({ clientId: () => 'gw', clock: systemClock, logger: log });
  });
  afterEach(async () => {
    await running?.stop(true);
    await brokers.stop(0);
    await server.stop();
  });

  let text: string;
  const reopen = async () => {
    await open(text, async ({ spec }) => {
      await brokers.set([{ name: 'plant', spec: spec as BrokerSpec }]);
      return brokers;
    });
    brokers.start();
  };
  const start = async (source: string, values: string) => {
    const port = await server.start();
    text = `sources: { plant: { mqtt: "mqtt://127.0.0.1:${port}"${source} } }
tags: { T: { asset: 1, values: { ${values} } } }
`;
    await reopen();
  };

  it.each([
    [
      'of Zigbee2MQTT',
      '',
      'availability: "z/{tag}/availability"',
      'z/T/availability',
      '{"state":"offline"}',
      '{"state":"online"}',
    ],
    ['of Tasmota', '', 'availability: "tele/{tag}/LWT"', 'tele/T/LWT', 'Offline', 'Online'],
    ['with its own texts', '', 'availability: s, payload_available: 1, payload_not_available: 0', 's', '0', '1'],
    [
      'with numbers in other forms',
      '',
      'availability: s, payload_available: 01, payload_not_available: 00',
      's',
      '00',
      '1.0',
    ],
    [
      'in the source',
      ', availability: gw/state, payload_not_available: "lost"',
      'deadband: 1',
      'gw/state',
      '"LOST"',
      '"online"',
    ],
  ])('has its latest values sent as bad until its next value: %s', async (_, source, value, topic, offline, online) => {
    await start(source, `t: { from: plant, topic: a, ${value} }, other: { from: plant, topic: b }`);
    await vi.waitUntil(() => server.filters.length === 3);
    server.publish('a', '20');
    server.publish('b', '7');
    await vi.waitUntil(() => stored().length === 2);
    server.publish(topic, offline, { retain: true });
    server.publish(topic, offline);
    await vi.waitUntil(() => stored().length > 2 && report().problem !== null);
    expect(report()).toMatchObject({ problem: `device unavailable according to ${topic}`, errors: 0 });
    const [finding] = findings({ sources: [report()] } as never);
    expect(finding).toMatchObject({ event: 'source.partial', sentence: expect.stringContaining(topic) });
    server.publish(topic, online);
    await vi.waitUntil(() => report().problem === null);
    server.publish('a', '20');
    await vi.waitUntil(() => stored().at(-1) === 't 20 good');
    const bad = source === '' ? ['t 20 bad'] : ['t 20 bad', 'other 7 bad'];
    expect(stored()).toEqual(['t 20 good', 'other 7 good', ...bad, 't 20 good']);
    expect(logged.filter((event) => /unavailable/.test(event))).toEqual(['mqtt.unavailable', 'mqtt.unavailable_over']);
  });

  it('has its retained values stored as bad', async () => {
    server.publish('a', '20', { retain: true });
    server.publish('s', 'offline', { retain: true });
    await start(', retained: take', 't: { from: plant, topic: a, availability: s }');
    await vi.waitUntil(() => stored().length > 0);
    expect(stored()).toEqual(['t 20 bad']);
    const before = stored().length;
    // The broker sends both retained messages again.
    server.forget();
    await vi.waitUntil(() => stored().length > before);
    expect(stored().slice(before)).toEqual(['t 20 bad']);
    server.publish('a', '21');
    await vi.waitUntil(() => stored().at(-1) === 't 21 good');
  });

  it('has its retained values skipped with time_from: arrival, although they contain a timestamp', async () => {
    server.publish('a', '{"v":20,"t":"2026-01-01T00:00:00Z"}', { retain: true });
    await start(', time_from: arrival', 't: { from: plant, topic: a, at: /v, time: /t }');
    await vi.waitUntil(() => server.filters.length === 1 && server.pending === 0);
    server.publish('a', '{"v":21,"t":"2026-01-01T00:00:00Z"}');
    await vi.waitUntil(() => stored().at(-1) === 't 21 good');
    expect(stored()).toEqual(['t 21 good']);
  });

  it('is still known after a restart and after a reload, which lose no queued messages', async () => {
    await start('', 't: { from: plant, topic: a, availability: s }');
    await vi.waitUntil(() => server.filters.length === 2);
    server.publish('s', 'offline', { retain: true });
    await vi.waitUntil(() => report().problem !== null && server.pending === 0);
    await running!.stop();
    await brokers.stop(0);
    server.publish('a', '20');
    brokers = new Brokers({ clientId: () => 'gw', clock: systemClock, logger: log });
    await reopen();
    await vi.waitUntil(() => report().problem === 'device unavailable according to s' && server.pending === 0);
    expect(stored()).toEqual(['t 20 good', 't 20 bad']);
    const replaced = running!;
    await replaced.stop();
    await reopen();
    replaced.leave?.();
    await vi.waitUntil(() => report().problem === 'device unavailable according to s' && server.pending === 0);
    expect(stored()).toEqual([]);
  });

  it('is reported with other texts, and the values stay good', async () => {
    await start('', 't: { from: plant, topic: a, availability: s }');
    await vi.waitUntil(() => server.filters.length === 2);
    server.publish('a', '20');
    server.publish('s', 'asleep');
    server.publish('s', '');
    await vi.waitUntil(() => report().rejected !== null);
    expect(report().rejected).toMatchObject({ count: 1, problem: 's: "asleep" is neither "online" nor "offline"' });
    expect(stored()).toEqual(['t 20 good']);
    expect(logged).toContain('mqtt.unreadable');
  });

  it('is reported with unreadable JSON, and later messages are stored', async () => {
    await start('', 't: { from: plant, topic: a, availability: s }');
    await vi.waitUntil(() => server.filters.length === 2);
    for (const payload of ['{"state":{"toString":1}}', '[{"toString":1}]', '{"state":["offline"]}']) {
      server.publish('s', payload);
    }
    server.publish('a', '20');
    server.publish('s', '{"state":"\ufeffoffline\\u0000"}');
    await vi.waitUntil(() => stored().at(-1) === 't 20 bad' && server.pending === 0);
    const problem = String.raw`s: "{\"state\":[\"offline\"]}" is neither "online" nor "offline"`;
    expect(report()).toMatchObject({ errors: 3, rejected: { count: 3, problem } });
  });

  it('sends a message that fails to be read, which is reported once and acknowledged', async () => {
    await start('', 't: { from: plant, topic: a, availability: s }');
    await vi.waitUntil(() => server.filters.length === 2);
    const write = gate.write.bind(gate);
    const failures = [
      () => {
        throw new TypeError('cannot read the message');
      },
      () => Promise.reject(new TypeError('failed commit')),
    ];
    // The notes of the subscription are written without readings.
    vi.spyOn(gate, 'write').mockImplementation((readings, notes) =>
      readings.length > 0 && failures.length > 0 ? failures.shift()!() : write(readings, notes),
    );
    server.publish('a', '20');
    await vi.waitUntil(() => report().rejected !== null && server.pending === 0);
    expect(report()).toMatchObject({ errors: 1, rejected: { count: 1, problem: 'a: cannot read the message' } });
    // The message is redelivered after a failed commit.
    server.publish('a', '21');
    await vi.waitUntil(() => stored().length > 0 && server.pending === 0);
    expect([stored(), report().errors]).toEqual([['t 21 good'], 1]);
  });

  it('shares the problem of the source with other devices, of bounded length', async () => {
    const topic = 'd'.repeat(1_000);
    await start(
      '',
      `t: { from: plant, topic: a, availability: ${topic} }, u: { from: plant, topic: b, availability: s }`,
    );
    await vi.waitUntil(() => server.filters.length === 4);
    for (const one of [topic, 's']) server.publish(one, 'offline');
    const problem = `2 devices unavailable, for example according to ${'d'.repeat(100)}…`;
    await vi.waitUntil(() => report().problem === problem);
  });

  it('is unknown if the broker rejects the topic, which the source reports as a problem', async () => {
    server.forbidden.add('s');
    await start('', 't: { from: plant, topic: a, availability: s }');
    await vi.waitUntil(() => report().problem === 'the broker rejects the subscription to s');
    server.publish('a', '20');
    await vi.waitUntil(() => stored().length === 1);
  });
});

describe('NATS device that announces that it is offline', () => {
  it('has its latest value sent as bad', async () => {
    let pulled: { subjects: string[]; handler: (message: unknown) => Promise<void> } | undefined;
    const text = `sources: { plant: { nats: "nats://127.0.0.1" } }
tags: { T: { asset: 1, values: { t: { from: plant, subject: "p.>", availability: p.state } } } }
`;
    await open(text, () => ({
      get: () => ({ pull: (options: typeof pulled) => (pulled = options), state: () => ({}) }),
    }));
    // Filters of a consumer must not overlap.
    expect(pulled?.subjects).toEqual(['p.>']);
    const send = (subject: string, data: string, seq: number) =>
      pulled!.handler({ subject, data: Buffer.from(data), seq, info: { timestampNanos: 1.79e18 } });
    await send('p.a', '20', 1);
    await send('p.state', 'offline', 2);
    expect(stored()).toEqual(['t 20 good', 't 20 bad']);
    expect(gate.status.problem).toBe('device unavailable according to p.state');
  });
});

describe('availability in tags.yaml', () => {
  it.each([
    ['availability: "a/+"', 'contains a wildcard'],
    ['availability: a, payload_available: X, payload_not_available: x', 'must differ from payload_available'],
  ])('is rejected by check: %s', (members, reason) => {
    const text = `sources: { plant: { mqtt: "mqtt://127.0.0.1" } }
tags: { T: { asset: 1, values: { t: { from: plant, topic: a, ${members} } } } }
`;
    expect(check({ 'tags.yaml': text }).errors).toEqual([expect.stringContaining(reason)]);
  });
});
