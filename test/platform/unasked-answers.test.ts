import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { Redactor } from '../../src/base/redactor.ts';
import { createDispatcher } from '../../src/platform/dispatcher.ts';
import { HttpBoundary, type PlatformAnswer } from '../../src/platform/http-boundary.ts';

const NO_CONTENT = 'HTTP/1.1 204 No Content\r\n\r\n';

/** A server of bytes: says what it is told to each request that came whole, and what it likes besides. */
describe('an answer that nobody asked for', () => {
  let server: Server;
  let boundary: HttpBoundary;
  let sockets: Socket[];
  /** What is said to each request in turn; a function says it by itself. */
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
  /** The status of the answer, or the code of what came instead. */
  const statusOf = (answer: Promise<PlatformAnswer>) =>
    answer.then(
      ({ status }) => status,
      (error: { code: string }) => error.code,
    );
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  const later = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
  const BUSY = 'HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n';

  it.each([
    ['with the first answer', `${NO_CONTENT}${NO_CONTENT}`],
    ['thrice with the first answer', `${NO_CONTENT}${NO_CONTENT}${NO_CONTENT}`],
    ['half of it with the first answer', `${NO_CONTENT}HTTP/1.1 204 No Con`],
  ])('does not settle the next post where it comes %s', async (_name, said) => {
    script = [said, BUSY, BUSY];
    expect(await statusOf(post())).toBe(204);
    expect(await statusOf(post())).toBe(503);
    expect(requests).toBe(2);
  });

  it('does not settle the next post where it comes while nothing is asked', async () => {
    script = [NO_CONTENT, BUSY];
    expect(await statusOf(post())).toBe(204);
    const closed = once(sockets[0]!, 'close');
    sockets[0]!.write(NO_CONTENT);
    // Whoever speaks unasked is not spoken to any more.
    await closed;
    expect(await statusOf(post())).toBe(503);
  });

  it('does not settle the next post where it comes while the agent does other work', async () => {
    script = [NO_CONTENT, BUSY];
    expect(await statusOf(post())).toBe(204);
    await turn();
    // It is there at once, and not read yet: the post goes out of a timer, before the loop looks at its sockets.
    sockets[0]!.write(NO_CONTENT);
    const next = new Promise<PlatformAnswer>((resolve, reject) => {
      setTimeout(() => post().then(resolve, reject), 0);
      for (const end = performance.now() + 20; performance.now() < end; );
    });
    expect(await statusOf(next)).toBe(503);
    expect(requests).toBe(2);
  });

  it('is no answer to a post that waits for its own: what it gets is what was said last on another connection', async () => {
    script = [(socket) => void socket.end(), NO_CONTENT];
    expect(await statusOf(post())).toBe('platform.connection_reset');
    expect(await statusOf(post())).toBe(204);
  });

  it.each([
    ['byte by byte', NO_CONTENT, 204],
    ['behind early hints, byte by byte', `HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n${NO_CONTENT}`, 204],
    [
      'with trailers',
      'HTTP/1.1 400 Bad\r\ntransfer-encoding: chunked\r\ntrailer: x-a\r\n\r\n2\r\nno\r\n0\r\nx-a: 1\r\n\r\n',
      400,
    ],
    ['with obsolete line folding', 'HTTP/1.1 204 No Content\r\nx-a: 1\r\n 2\r\n\r\n', /204|platform\./],
  ])('or one that comes %s, is read for what it is', async (_name, said, status) => {
    script = [
      async (socket) => {
        socket.setNoDelay(true);
        for (const byte of said) {
          socket.write(byte);
          await turn();
        }
      },
      BUSY,
    ];
    expect(String(await statusOf(post()))).toMatch(
      new RegExp(status instanceof RegExp ? status.source : String(status)),
    );
    expect(await statusOf(post())).toBe(503);
  });

  it.each([
    [
      'more headers than can be read',
      (socket: Socket) => void socket.write(`HTTP/1.1 204 No Content\r\n${'x-a: 1\r\n'.repeat(20_000)}\r\n`),
    ],
    [
      'one header of a megabyte',
      (socket: Socket) => void socket.write(`HTTP/1.1 204 No Content\r\nx-a: ${'a'.repeat(1_000_000)}\r\n\r\n`),
    ],
    [
      'two lengths',
      (socket: Socket) => void socket.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\ncontent-length: 4\r\n\r\n'),
    ],
    [
      'a length and chunks',
      (socket: Socket) =>
        void socket.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n'),
    ],
    [
      'a bare line feed for each end of a line',
      (socket: Socket) => void socket.write('HTTP/1.1 204 No Content\nx: y\n\n'),
    ],
  ])('or one with %s, is no success, and the next post is answered for itself', async (_name, said) => {
    script = [said, BUSY];
    expect(await statusOf(post())).toMatch(/^platform\./);
    await later(1);
    expect(await statusOf(post())).toBe(503);
  });
});
