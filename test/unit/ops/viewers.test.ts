import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { eventFrame } from '../../../src/base/inbound/event-stream.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { LiveStream } from '../../../src/ops/live/live-stream.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const MAX_VIEWERS = 40;
const NEWS = eventFrame('tick', 'x'.repeat(256 * 1024));

let clock: ManualClock;
let stream: LiveStream;
let server: Server;
/** Responses of the stream, in connection order. */
let responses: ServerResponse[];
let sockets: Socket[];

beforeEach(async () => {
  clock = new ManualClock();
  responses = [];
  sockets = [];
  stream = new LiveStream({
    feed: () => ({ begin: () => [], next: () => [NEWS] }),
    hello: () => ({ version: '1', gateway: 'gw', startedWallMs: 0, zone: { name: null, offsetMinutes: 0 } }),
    position: () => ({ second: 0, line: 0 }),
    clock,
    log: silentLogger(),
  });
  server = createServer((incoming, response) => {
    responses.push(response);
    stream.open(incoming, response, new URLSearchParams({ of: 'now' }), 'all');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});
afterEach(() => {
  stream.stop();
  for (const socket of sockets) socket.destroy();
  server.closeAllConnections();
  server.close();
});

const port = () => (server.address() as AddressInfo).port;

/** Connects a viewer that reads everything or nothing. */
async function view(reads: boolean): Promise<{ isClosed: () => boolean }> {
  const socket = connect(port(), '127.0.0.1');
  sockets.push(socket);
  if (reads) socket.resume();
  else socket.pause();
  socket.on('error', () => {}).write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
  const count = responses.length + 1;
  while (responses.length < count) await turn();
  const response = responses[count - 1]!;
  return { isClosed: () => response.destroyed };
}

/** Opens the stream like an operator. */
async function operate(): Promise<{ status: number | undefined; text: string }> {
  const outgoing = request({ host: '127.0.0.1', port: port(), agent: false }).end();
  const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
  const [text] = (await once(response.setEncoding('utf8'), 'data')) as [string];
  outgoing.on('error', () => {}).destroy();
  return { status: response.statusCode, text };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

describe('page at its viewer limit', () => {
  it('accepts a new viewer and disconnects the one that has been idle longest', async () => {
    const viewers = [];
    for (let i = 0; i < MAX_VIEWERS; i++) viewers.push(await view(i !== 20));
    while (responses[20]!.writableLength === 0) {
      await clock.advance(1_000);
      await turn();
    }
    for (let second = 0; second < 3; second++) {
      await clock.advance(1_000);
      await turn();
    }
    while (responses.some(({ writableLength }, i) => i !== 20 && writableLength > 0)) await turn();

    const { status, text } = await operate();
    expect(status).toBe(200);
    expect(text).toContain('event: hello');
    expect(viewers.flatMap(({ isClosed }, i) => (isClosed() ? [i] : []))).toEqual([20]);
  });

  it('disconnects the oldest viewer if all viewers are reading', async () => {
    const viewers = [];
    for (let i = 0; i < MAX_VIEWERS; i++) viewers.push(await view(true));
    expect((await operate()).status).toBe(200);
    expect(viewers.flatMap(({ isClosed }, i) => (isClosed() ? [i] : []))).toEqual([0]);
    expect(stream.viewers).toBeLessThanOrEqual(MAX_VIEWERS);
  });
});
