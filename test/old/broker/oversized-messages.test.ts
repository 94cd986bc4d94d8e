/**
 * Broker messages that exceed the memory of a gateway, sent to the built agent within the shipped memory limits.
 * `GatewayProcess` fails a test if the kernel killed the agent for exceeding the memory limit.
 */
import { createRequire } from 'node:module';
import { deflateSync } from 'node:zlib';
import { jetstream } from '@nats-io/jetstream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { NatsServers } from '../../e2e/harness/nats-servers.ts';
import { GatewayProcess } from '../agent/gateway-process.ts';
import { FloodingBroker, FloodingNats, type Piece, propertiesOf, publishOf } from '../sources/flooding-peers.ts';

const ASSET = 881;
const ENV = { COMMIT_INTERVAL: '100ms' };
/** Value sent after all others. */
const LAST = 60_000;
const TIMEOUT_MS = 120_000;

let sandbox: Sandbox;
let gateway: GatewayProcess | undefined;
let stops: (() => Promise<void>)[];

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  stops = [];
  gateway = undefined;
});
afterEach(async () => {
  await gateway?.dispose();
  for (const stop of stops) await stop();
  await sandbox.stop();
});

async function gatewayOf(source: string, value: string): Promise<GatewayProcess> {
  const tags = `sources:\n  line: { ${source} }\ntags:\n  T: { asset: ${ASSET}, values: { k: { from: line, ${value} } } }\n`;
  gateway = new GatewayProcess(sandbox.url, { tags, env: ENV });
  await gateway.start();
  return gateway;
}

const posted = () => sandbox.values.list(ASSET, 'k').map(({ value }) => value);

function* several(count: number, pieces: (n: number) => Piece[]): Iterable<Piece> {
  for (let n = 0; n < count; n++) yield* pieces(n);
}

const longTopic = (n: number) => `site/${String(n).padStart(64_000, 'x')}`;
const ONE = Buffer.from('1');

describe('MQTT messages over the size limit', () => {
  it.each([
    {
      what: 'one message of 250 MB',
      version: 3,
      count: 1,
      bound: 'packet',
      pieces: () => publishOf(3, 1, 'site/a', 250_000_000),
    },
    {
      what: 'one message of 250 MB',
      version: 5,
      count: 1,
      bound: 'packet',
      pieces: () => publishOf(5, 1, 'site/a', 250_000_000),
    },
    {
      what: '64 kB topics under a wildcard',
      version: 3,
      count: 5_000,
      bound: 'topic',
      pieces: (n: number) => publishOf(3, n + 1, longTopic(n), ONE),
    },
    {
      what: '50 properties of 60 kB with a one-byte payload',
      version: 5,
      count: 150,
      bound: 'headers',
      pieces: (n: number) => publishOf(5, n + 1, 'site/a', ONE, MANY_LARGE),
    },
    {
      what: '300,000 short properties',
      version: 5,
      count: 20,
      bound: 'headers',
      pieces: (n: number) => publishOf(5, n + 1, 'site/a', ONE, VERY_MANY),
    },
  ] as const)(
    'are discarded and confirmed: $what (MQTT $version)',
    async ({ version, count, bound, pieces }) => {
      const broker = new FloodingBroker(version, function* () {
        yield* several(count, pieces);
        yield* publishOf(version, LAST, 'site/a', Buffer.from('42'));
      });
      const port = await broker.start();
      stops.push(() => broker.stop());
      const agent = await gatewayOf(`mqtt: "mqtt://127.0.0.1:${port}", version: ${version}`, 'topic: "site/#"');
      await agent.until(() => posted().length > 0, 'the message behind them arrives', TIMEOUT_MS);
      await agent.until(() => broker.confirmed.size === count + 1, 'all are confirmed');
      expect([posted(), broker.connections, agent.bounds.kills]).toEqual([[42], 1, 0]);
      expect(agent.logged('broker.discarded')[0]).toMatchObject({ broker: 'line', bound, count: 1 });
      expect(agent.logged('broker.discarded').length).toBeLessThan(20);
      expect(await agent.metric('tagferry_source_errors_total')).toBe(count);
    },
    2 * TIMEOUT_MS,
  );
});

/** Encoder from Eclipse Tahu. */
const { get } = createRequire(import.meta.url)('sparkplug-payload') as {
  get(version: string): { encodePayload(payload: object): Uint8Array };
};

function birthOf(metrics: object[]): Buffer {
  return Buffer.from(get('spBv1.0').encodePayload({ timestamp: 1_795_219_200_000, seq: 0, metrics }));
}

describe('Sparkplug birth certificates', () => {
  it(
    'use bounded memory despite many nodes and metrics',
    async () => {
      const large = 600;
      const count = 1_200;
      const name = (n: number) => `${n}`.padStart(900, 'x');
      const metrics = Array.from({ length: 1_000 }, (_, n) => ({ name: name(n), alias: n, type: 'Double', value: n }));
      const flood = birthOf(metrics);
      const small = birthOf([]);
      const broker = new FloodingBroker(3, function* () {
        yield* publishOf(3, LAST, 'spBv1.0/G/NBIRTH/press', birthOf([{ name: 'm', type: 'Double', value: 42 }]));
        for (let n = 0; n < count; n++) {
          const payload = n < large ? flood : small;
          yield* publishOf(3, n + 1, `spBv1.0/G${n}/NBIRTH/press`, payload);
        }
      });
      const port = await broker.start();
      stops.push(() => broker.stop());
      const agent = await gatewayOf(`sparkplug: "mqtt://127.0.0.1:${port}", version: 3, qos: 1`, 'metric: press/m');
      await agent.until(() => broker.confirmed.size === count + 1, 'all are confirmed', TIMEOUT_MS);
      await agent.until(() => posted().length > 0, 'the value arrives');
      expect([posted(), agent.bounds.kills]).toEqual([[42], 0]);
      expect(agent.logged('sparkplug.nodes_limit')[0]).toMatchObject({ source: 'line', node: 'press', count: 1 });
      expect(agent.logged('sparkplug.nodes_limit').length).toBeLessThan(20);
    },
    2 * TIMEOUT_MS,
  );
});

describe('compressed Sparkplug messages', () => {
  it(
    'use bounded memory while waiting for a birth certificate, even if they are decompression bombs',
    async () => {
      const count = 400;
      const metrics = Array.from({ length: 30_000 }, () => ({ alias: 1, type: 'Double', value: 1 }));
      const encode = (payload: object) => Buffer.from(get('spBv1.0').encodePayload(payload));
      const compressed = (body: Buffer) =>
        encode({ uuid: 'SPBV1.0_COMPRESSED', body: deflateSync(body), metrics: [], seq: 7 });
      const waiting = compressed(encode({ timestamp: 1_795_219_200_000, seq: 7, metrics }));
      const bomb = compressed(Buffer.alloc(128 * 1024 * 1024));
      const broker = new FloodingBroker(3, function* () {
        yield* publishOf(3, LAST, 'spBv1.0/G/NBIRTH/press', birthOf([{ name: 'm', type: 'Double', value: 42 }]));
        for (let n = 1; n <= count; n++) yield* publishOf(3, n, 'spBv1.0/G/NDATA/press', n % 2 === 0 ? bomb : waiting);
      });
      const port = await broker.start();
      stops.push(() => broker.stop());
      const agent = await gatewayOf(`sparkplug: "mqtt://127.0.0.1:${port}", version: 3, qos: 1`, 'metric: press/m');
      await agent.until(() => broker.confirmed.size === count + 1, 'all are confirmed', TIMEOUT_MS);
      await agent.until(() => posted().length > 0, 'the value arrives');
      expect([posted(), agent.bounds.kills]).toEqual([[42], 0]);
      expect(agent.logged('sparkplug.unreadable')[0]).toMatchObject({ error: 'it exceeds 4 MiB when expanded' });
      expect(agent.logged('sparkplug.discarded').length).toBeGreaterThan(0);
    },
    2 * TIMEOUT_MS,
  );
});

const MANY_LARGE = propertiesOf(50, 60_000);
const VERY_MANY = propertiesOf(300_000, 0);

describe('NATS messages over the size limit', () => {
  it(
    'are discarded if the protocol line announces 256 MB',
    async () => {
      const server = new FloodingNats(function* () {
        yield Buffer.from('MSG site.a 1 268435455\r\n');
        yield 268_435_455;
        yield Buffer.from('\r\n');
      });
      const port = await server.start();
      stops.push(() => server.stop());
      const agent = await gatewayOf(`nats: "nats://127.0.0.1:${port}"`, 'subject: site.a');
      await agent.until(() => server.answered > 0, 'the agent responds to later messages', TIMEOUT_MS);
      expect([server.connections, agent.bounds.kills]).toEqual([1, 0]);
    },
    2 * TIMEOUT_MS,
  );

  it(
    'from a stream are discarded without redelivery',
    async () => {
      const servers = await NatsServers.make();
      stops.push(() => servers.dispose());
      await servers.start('max_payload: 64MB');
      const manager = await servers.manager();
      await manager.streams.add({ name: 'PLANT', subjects: ['site.>'] });
      const stream = jetstream(await servers.connection());
      await stream.publish('site.a', '1');
      await stream.publish('site.a', new Uint8Array(30_000_000));
      await stream.publish('site.a', '2');
      const agent = await gatewayOf(`nats: "${servers.url}", durable: gw`, 'subject: site.a');
      await agent.until(() => posted().length === 2, 'the messages around it arrive', TIMEOUT_MS);
      await agent.until(async () => {
        const { num_pending, num_ack_pending } = await manager.consumers.info('PLANT', 'gw');
        return num_pending === 0 && num_ack_pending === 0;
      }, 'nothing is redelivered');
      expect([posted().toSorted(), agent.bounds.kills]).toEqual([[1, 2], 0]);
      expect(agent.logged('broker.discarded')).toMatchObject([{ topic: 'site.a', bytes: 30_000_000, bound: 'packet' }]);
      expect(await agent.metric('tagferry_source_errors_total')).toBe(1);
    },
    2 * TIMEOUT_MS,
  );
});
