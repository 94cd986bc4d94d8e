import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import mqtt from 'mqtt';
import { pino } from 'pino';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { type Clock, systemClock } from '../../../src/base/clock.ts';
import { SourceStopped, StoreError } from '../../../src/base/errors.ts';
import { Broker } from '../../../src/broker/broker.ts';
import { StrictBroker } from './strict-broker.ts';

/** Shortens pauses between connection attempts. */
const hurried: Clock = { ...systemClock, sleep: (ms, signal) => systemClock.sleep(ms / 100, signal) };
const CONNACK = Buffer.from([0x20, 0x02, 0x00, 0x00]);
/** CONNACK with a resumed session. */
const RESUMED = Buffer.from([0x20, 0x02, 0x01, 0x00]);
const CONNACK_5 = Buffer.from([0x20, 0x03, 0x00, 0x00, 0x00]);
/** DISCONNECT: the session was taken over. */
const TAKEN_OVER = Buffer.from([0xe0, 0x01, 0x8e]);

let server: Server | undefined;
let broker: Broker | undefined;
let conflicts = 0;
afterEach(async () => {
  await broker?.stop();
  await new Promise((resolve) => (server ? server.close(resolve) : resolve(undefined)));
});

async function brokerAt(url: string, version: 3 | 5 = 3): Promise<Record<string, unknown>[]> {
  const lines: Record<string, unknown>[] = [];
  conflicts = 0;
  const logger = pino({ base: null, level: 'info' }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  broker = new Broker({
    name: 'plant',
    spec: { url, version, qos: 1, sessionExpiryMs: 60_000 },
    clientId: 'x',
    clock: hurried,
    logger,
    nameTaken: () => conflicts++,
  });
  broker.start();
  return lines;
}

describe('broker log', () => {
  it.each([
    ['reports a client with the same ID if the broker keeps closing a resumed session', RESUMED],
    ['reports no client with the same ID if the broker does not resume the session', CONNACK],
  ])('contains one entry for repeated disconnects, and %s', async (_, connack) => {
    let connections = 0;
    server = createServer((socket) => {
      connections++;
      socket.on('error', () => {});
      socket.once('data', () => socket.end(connack));
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const lines = await brokerAt(`mqtt://127.0.0.1:${port}`);
    await vi.waitUntil(() => connections >= 40, { timeout: 20_000 });
    const away = lines.filter(({ event }) => event === 'broker.away').map(({ count }) => count);
    expect(away.slice(0, 4)).toEqual([1, 2, 4, 8]);
    expect(lines.length).toBeLessThan(14);
    expect(conflicts > 0).toBe(connack === RESUMED);
  });

  it('reports the MQTT 5 reason code for a duplicate client ID with a hint', async () => {
    server = createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => socket.end(Buffer.concat([CONNACK_5, TAKEN_OVER])));
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const lines = await brokerAt(`mqtt://127.0.0.1:${port}`, 5);
    const away = () => lines.find(({ event }) => event === 'broker.away');
    await vi.waitUntil(() => away() !== undefined, { timeout: 20_000 });
    expect(away()).toMatchObject({
      code: 'broker.name_taken',
      error: expect.stringContaining('another client'),
      hint: expect.stringContaining('tagferry identity new'),
      count: 1,
    });
    expect(conflicts).toBeGreaterThan(0);
  });

  it('repeats the entry while the broker remains disconnected', async () => {
    const probe = createServer().listen(0, '127.0.0.1');
    await once(probe, 'listening');
    const { port } = probe.address() as { port: number };
    await new Promise((resolve) => probe.close(resolve));
    const lines = await brokerAt(`mqtt://127.0.0.1:${port}`);
    await vi.waitUntil(() => lines.length >= 4, { timeout: 20_000 });
    expect(lines.slice(0, 4).map(({ event, count }) => [event, count])).toEqual(
      [1, 2, 4, 8].map((count) => ['broker.away', count]),
    );
    expect(lines[0]).toMatchObject({ code: 'ECONNREFUSED', error: expect.stringContaining('ECONNREFUSED') });
  });

  it('contains a warning about a message that cannot be stored, unless the source has stopped', async () => {
    const strict = new StrictBroker();
    const url = `mqtt://127.0.0.1:${await strict.start()}`;
    const stranger = await mqtt.connectAsync(url);
    try {
      const lines = await brokerAt(url);
      const errors: Error[] = [new SourceStopped(), new SourceStopped()];
      const taken: string[] = [];
      broker!.subscribe(['t'], async ({ payload }) => {
        const text = Buffer.from(payload).toString();
        const error = errors.shift();
        if (error) throw error;
        taken.push(text);
      });
      await vi.waitUntil(() => strict.filters.includes('t'));
      for (const text of ['one', 'two']) {
        await stranger.publishAsync('t', text, { qos: 1 });
        await vi.waitUntil(() => taken.includes(text), { timeout: 20_000 });
        if (text === 'one') errors.push(new StoreError('full', { code: 'store.full' }));
      }
      const refused = lines.filter(({ event }) => event === 'broker.refused');
      expect(refused.map(({ code, count }) => [code, count])).toEqual([['store.full', 1]]);
    } finally {
      await stranger.endAsync();
      await broker!.stop();
      await strict.stop();
    }
  });
});
