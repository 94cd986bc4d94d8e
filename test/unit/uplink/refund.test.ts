import { once } from 'node:events';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import { Redactor } from '../../../src/base/redactor.ts';
import { PlatformClient } from '../../../src/platform/client.ts';
import { createDispatcher } from '../../../src/platform/dispatcher.ts';
import { HttpBoundary } from '../../../src/platform/http-boundary.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { Plant } from './plant.ts';

const UNAUTHORIZED = 'HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n';

let clock: ManualClock;
let server: Server;
let boundary: HttpBoundary;
let plant: Plant;
let responses: number;

beforeEach(async () => {
  [clock, responses] = [new ManualClock(), 0];
  server = createServer((socket) => {
    socket
      .on('error', () => {})
      .once('data', () => {
        responses++;
        server.close();
        socket.end(UNAUTHORIZED);
      });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const sockets = createDispatcher({ connections: 1 });
  boundary = new HttpBoundary({ sockets, clock, userAgent: 'tagferry/test', redactor: new Redactor() });
  const lease = { accessToken: 'token', responded: () => undefined, release: () => {} };
  plant = new Plant(clock, { request: (call) => client.request(call) }, {}, 60);
  const client = new PlatformClient({
    boundary,
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    tokens: { lease: async () => lease },
    budget: plant.budget,
    clock,
    log: silentLogger(),
  });
  await plant.uplink.start();
});
afterEach(async () => {
  await plant.uplink.stop(0);
  await boundary.close();
});

describe('request budget', () => {
  it('counts a post rejected with 401 if its retry does not reach the platform', async () => {
    plant.accept(1, 1);
    while (!plant.uplink.outage) {
      await clock.advance(10);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(plant.uplink.outage).toMatchObject({ code: 'platform.connection_refused' });
    expect(responses).toBe(1);
    expect(plant.budget.minuteUsed).toBe(1);
  });

  it('does not count posts whose connection is refused', async () => {
    server.close();
    plant.accept(1, 1);
    while ((plant.uplink.outage?.attempts ?? 0) < 3) {
      await clock.advance(1_000);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(plant.uplink.outage).toMatchObject({ code: 'platform.connection_refused' });
    await plant.uplink.stop(0);
    expect(plant.budget.minuteUsed).toBe(0);
  });
});
