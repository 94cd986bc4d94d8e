import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { LiveStream } from '../../../src/sandbox/live/live-stream.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const MAX_VIEWERS = 20;
/** With this many series, each second's frames have about 160 kB. */
const KEYS = Array.from({ length: 2_000 }, (_, i) => `key-${i}`);

let clock: ManualClock;
let sandbox: Sandbox;
let server: Server;
/** Responses of the stream, in order. */
let responses: ServerResponse[];
let sockets: Socket[];

beforeEach(async () => {
  clock = new ManualClock();
  sandbox = new Sandbox({ clock });
  await sandbox.start();
  const stream = new LiveStream(sandbox);
  responses = [];
  sockets = [];
  server = createServer((request, response) => {
    responses.push(response);
    stream.open(request, response, undefined, '');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  server.closeAllConnections();
  server.close();
  await sandbox.stop();
});

/** Opens the stream, and optionally reads it. */
async function view(reads: boolean): Promise<void> {
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  sockets.push(socket);
  if (reads) socket.resume();
  else socket.pause();
  const count = responses.length + 1;
  socket.on('error', () => {}).write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
  while (responses.length < count) await turn();
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

async function passSecond(): Promise<void> {
  const points = [{ timestampMs: clock.wallMs(), value: 1, status: undefined, stamped: true }];
  sandbox.acceptValues(
    881,
    KEYS.map((key) => ({ key, group: undefined, unit: undefined, points })),
  );
  await clock.advance(1_000);
  while (responses.some(({ writableLength, destroyed }, i) => i !== 7 && !destroyed && writableLength > 0))
    await turn();
}

const statusOf = (response: ServerResponse) => [response.statusCode, response.destroyed];

describe('sandbox page with the maximum number of viewers', () => {
  it('accepts a new viewer and disconnects the one that has been idle longest', async () => {
    for (let i = 0; i < MAX_VIEWERS; i++) await view(i !== 7);
    while (responses[7]!.writableLength === 0) await passSecond();
    for (let second = 0; second < 3; second++) await passSecond();
    await view(true);
    expect(statusOf(responses[MAX_VIEWERS]!)).toEqual([200, false]);
    expect(responses.flatMap(({ destroyed }, i) => (destroyed ? [i] : []))).toEqual([7]);
  });

  it('disconnects the oldest viewer if all viewers are reading', async () => {
    for (let i = 0; i <= MAX_VIEWERS; i++) await view(true);
    expect(statusOf(responses[MAX_VIEWERS]!)).toEqual([200, false]);
    expect(responses.flatMap(({ destroyed }, i) => (destroyed ? [i] : []))).toEqual([0]);
  });
});
