import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { Redactor } from '../../../src/base/redactor.ts';
import { createDispatcher } from '../../../src/platform/dispatcher.ts';
import { HttpBoundary, type PlatformAnswer } from '../../../src/platform/http-boundary.ts';

const NO_CONTENT = 'HTTP/1.1 204 No Content\r\n\r\n';

describe('unsolicited response', () => {
  let server: Server;
  let boundary: HttpBoundary;
  let sockets: Socket[];
  /** Responses to consecutive complete requests; a function writes its response itself. */
  let script: (string | ((socket: Socket) => void))[];
  let requests: number;

  beforeEach(async () => {
    [sockets, script, requests] = [[], [], 0];
    server = createServer((socket) => {
      sockets.push(socket);
      let read = '';
      socket
        .on('error', () => {})
        .on('data', (chunk) => {
          read += chunk.toString('latin1');
          for (let end = read.indexOf('BODY'); end >= 0; end = read.indexOf('BODY')) {
            read = read.slice(end + 4);
            const said = script[requests++];
            if (typeof said === 'string') socket.write(said);
            else said?.(socket);
          }
        });
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const clock = systemClock;
    boundary = new HttpBoundary({
      redactor: new Redactor(),
      sockets: createDispatcher({ connections: 1 }),
      clock,
      userAgent: 'test',
    });
  });

  afterEach(async () => {
    await boundary.close();
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, 'close');
  });

  const post = (): Promise<PlatformAnswer> =>
    boundary.send({
      method: 'POST',
      url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/v1/assets/7/values`),
      body: 'BODY',
      statusSuffices: true,
      deadlineMs: 20_000,
    });
  /** Returns the response status or the error code. */
  const statusOf = (answer: Promise<PlatformAnswer>) =>
    answer.then(
      ({ status }) => status,
      (error: { code: string }) => error.code,
    );
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  const BUSY = 'HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n';

  it.each([
    ['with the first response', `${NO_CONTENT}${NO_CONTENT}`],
    ['three times with the first response', `${NO_CONTENT}${NO_CONTENT}${NO_CONTENT}`],
    ['half with the first response', `${NO_CONTENT}HTTP/1.1 204 No Con`],
  ])('does not settle the next post if it arrives %s', async (_name, said) => {
    script = [said, BUSY, BUSY];
    expect(await statusOf(post())).toBe(204);
    expect(await statusOf(post())).toBe(503);
    expect(requests).toBe(2);
  });

  it('does not complete the next request if it arrives while the connection is idle', async () => {
    script = [NO_CONTENT, BUSY];
    expect(await statusOf(post())).toBe(204);
    const closed = once(sockets[0]!, 'close');
    sockets[0]!.write(NO_CONTENT);
    await closed;
    expect(await statusOf(post())).toBe(503);
  });

  it('does not complete the next request if it arrives while the event loop is blocked', async () => {
    script = [NO_CONTENT, BUSY];
    expect(await statusOf(post())).toBe(204);
    await turn();
    // The response has arrived but is not read yet: the timer sends the post before the event loop polls its sockets.
    sockets[0]!.write(NO_CONTENT);
    const next = new Promise<PlatformAnswer>((resolve, reject) => {
      setTimeout(() => post().then(resolve, reject), 0);
      for (const end = performance.now() + 20; performance.now() < end; );
    });
    expect(await statusOf(next)).toBe(503);
    expect(requests).toBe(2);
  });

  it('does not affect the next request on a new connection', async () => {
    script = [(socket) => void socket.end(), NO_CONTENT];
    expect(await statusOf(post())).toBe('platform.connection_reset');
    expect(await statusOf(post())).toBe(204);
  });
});
