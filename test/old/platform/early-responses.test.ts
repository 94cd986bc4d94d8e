import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { createServer as createTlsServer } from 'node:tls';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type Clock, systemClock } from '../../../src/base/clock.ts';
import { freePort } from '../../../src/base/port-claim.ts';
import { Redactor } from '../../../src/base/redactor.ts';
import { createDispatcher } from '../../../src/platform/dispatcher.ts';
import { HttpBoundary } from '../../../src/platform/http-boundary.ts';
import { freshFolder } from '../../fresh-folder.ts';
import { PATIENCE_MS } from '../../setup.ts';
import { ManualClock } from '../../unit/doubles/manual-clock.ts';

const pem = (name: string) => readFileSync(join(import.meta.dirname, '../../fixtures/certificates', name), 'utf8');
const NO_CONTENT = 'HTTP/1.1 204 No Content\r\n\r\n';
const EMPTY_200 = 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n';
const CLOSING_204 = 'HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n';
const EARLY_HINTS = 'HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n';
const TOO_LARGE = 'HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n';
/** Post of the default size, which fits completely into the kernel buffers of a loopback connection. */
const POST_BYTES = 480_000;
/** More than the kernel accepts if the server does not read. */
const MORE_THAN_KERNEL_BUFFERS = 16_000_000;

type Manners = (socket: Socket, firstChunk: Buffer) => void;
const hangsUp =
  (text: string): Manners =>
  (socket) =>
    void socket.write(text, () => socket.destroy());
const ends =
  (text: string): Manners =>
  (socket) =>
    void socket.end(text);
const staysAndReadsNothing =
  (text: string): Manners =>
  (socket) =>
    void socket.pause().write(text);

const toClose: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of toClose.splice(0).reverse()) await close();
});

/** Closes the connection 50 ms after the response: later than the client waits for a reset. */
const hangsUpLater =
  (text: string): Manners =>
  (socket) =>
    void socket.pause().write(text, () => setTimeout(() => socket.destroy(), 50));
const sendsByteByByte =
  (text: string): Manners =>
  (socket) => {
    socket.pause();
    let at = 0;
    const next = () => {
      if (socket.destroyed || at === text.length) return;
      socket.write(text.charAt(at++), () => setTimeout(next, 2));
    };
    next();
  };
const sendsInformationFirst =
  (text: string): Manners =>
  (socket) =>
    void socket.pause().write(EARLY_HINTS.repeat(100), () => setTimeout(() => socket.write(text), 50));
/** Reads the request to its end, responds and ends the connection without `connection: close`. */
const readsAllAndEnds =
  (text: string): Manners =>
  (socket, firstChunk) => {
    let left = firstChunk.indexOf('\r\n\r\n') + 4 + POST_BYTES;
    const count = (chunk: Buffer) => {
      left -= chunk.length;
      if (left === 0) socket.end(text);
    };
    count(firstChunk);
    socket.on('data', count);
  };

/** Starts a server that reads the start of each request and then calls `manners`. */
async function rawServer(scheme: string, manners: Manners): Promise<string> {
  const sockets = new Set<Socket>();
  const serve = (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => {}).once('data', (chunk: Buffer) => manners(socket, chunk));
  };
  const server: Server =
    scheme === 'https'
      ? createTlsServer({ key: pem('server.key'), cert: pem('server.pem') }, serve)
      : createServer(serve);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  toClose.push(() => {
    for (const socket of sockets) socket.destroy();
    return new Promise((resolve) => server.close(resolve));
  });
  return `${scheme}://localhost:${(server.address() as AddressInfo).port}`;
}

function newBoundary(clock: Clock = systemClock): HttpBoundary {
  const sockets = createDispatcher({ connections: 1, caPem: pem('authority.pem') });
  const boundary = new HttpBoundary({
    sockets,
    clock,
    userAgent: 'tagferry/test',
    redactor: new Redactor(),
  });
  toClose.push(() => boundary.close());
  return boundary;
}

const post = (boundary: HttpBoundary, origin: string, bytes: number, signal?: AbortSignal) =>
  boundary.send({
    method: 'POST',
    url: new URL(`${origin}/v1/assets/7/values`),
    body: Buffer.alloc(bytes, 'x'),
    statusSuffices: true,
    deadlineMs: 60_000,
    signal,
  });

describe.each(['http', 'https'])('POST request over %s', (scheme) => {
  it.each([
    ['204 and a hang-up', hangsUp(NO_CONTENT), POST_BYTES],
    ['204 and an unannounced close', ends(NO_CONTENT), POST_BYTES],
    ['204 with an announced close, then a reset', hangsUp(CLOSING_204), POST_BYTES],
    ['an empty 200 and a hang-up', hangsUp(EMPTY_200), POST_BYTES],
    ['204 on a connection that stays open', staysAndReadsNothing(NO_CONTENT), POST_BYTES],
    ['204 on a connection closed 50 ms later', hangsUpLater(NO_CONTENT), POST_BYTES],
    ['204 with an announced close', ends(CLOSING_204), POST_BYTES],
    ['204 sent byte by byte', sendsByteByByte(NO_CONTENT), POST_BYTES],
    ['many 103 responses, then 204', sendsInformationFirst(NO_CONTENT), POST_BYTES],
    [
      '204 on a connection that stays open, for a body larger than the kernel buffers',
      staysAndReadsNothing(NO_CONTENT),
      MORE_THAN_KERNEL_BUFFERS,
    ],
    [
      '204 with an announced close, for a body larger than the kernel buffers',
      ends(CLOSING_204),
      MORE_THAN_KERNEL_BUFFERS,
    ],
  ])('fails if the server has not read the body: %s', async (_name, manners, bytes) => {
    const call = post(newBoundary(), await rawServer(scheme, manners), bytes);
    await expect(call).rejects.toMatchObject({ code: 'platform.body_unread', retryable: true });
  });

  it.each([
    ['without announcing it', NO_CONTENT],
    ['with an announcement', CLOSING_204],
    ['after an empty 200', EMPTY_200],
  ])('succeeds if the server has read the whole body and closes the connection %s', async (_name, text) => {
    const origin = await rawServer(scheme, readsAllAndEnds(text));
    const answer = await post(newBoundary(), origin, POST_BYTES);
    expect([answer.status, answer.truncated]).toEqual([Number(text.slice(9, 12)), undefined]);
  });

  it.each([
    ['before the body was sent', staysAndReadsNothing(TOO_LARGE), MORE_THAN_KERNEL_BUFFERS],
    ['with a hang-up', hangsUp(TOO_LARGE), POST_BYTES],
  ])('is rejected after a 413 %s', async (_name, manners, bytes) => {
    expect(await post(newBoundary(), await rawServer(scheme, manners), bytes)).toMatchObject({ status: 413 });
  });

  it('fails if the call is aborted or the connection is lost before it is sent', async () => {
    const boundary = newBoundary();
    const abort = new AbortController();
    const aborting = await rawServer(scheme, () => abort.abort());
    const aborted = post(boundary, aborting, POST_BYTES, abort.signal);
    await expect(aborted).rejects.toMatchObject({ code: 'platform.aborted' });
    const lost = post(boundary, await rawServer(scheme, (socket) => void socket.destroy()), POST_BYTES);
    await expect(lost).rejects.toMatchObject({ retryable: true });
    expect(boundary.inFlight).toBe(0);
  });

  it('releases the connection for the next request', async () => {
    const boundary = newBoundary();
    const origin = await rawServer(scheme, staysAndReadsNothing(TOO_LARGE));
    for (let call = 0; call < 3; call++) await post(boundary, origin, MORE_THAN_KERNEL_BUFFERS);
    expect(boundary.inFlight).toBe(0);
  });
});

const SOON = { timeout: PATIENCE_MS, interval: 1 };

describe('final byte of a POST request', () => {
  let clock: ManualClock;
  let boundary: HttpBoundary;
  let origin: string;
  let server: Socket;
  /** Bytes of the current post that the server has not received. */
  let missing: number;
  beforeEach(() => {
    clock = new ManualClock();
    boundary = newBoundary(clock);
    missing = 0;
  });

  /** Starts a server that counts all received bytes, or reads only the first part. */
  async function serve(reads: 'everything' | 'the first part'): Promise<void> {
    origin = await rawServer('http', (socket, firstChunk) => {
      server = socket;
      const count = (chunk: Buffer) => {
        if (missing === 0) missing = chunk.indexOf('\r\n\r\n') + 4 + POST_BYTES;
        missing -= chunk.length;
      };
      count(firstChunk);
      if (reads === 'everything') socket.on('data', count);
      else socket.pause();
    });
  }

  const waits = (count: number) => vi.waitFor(() => expect(clock.waiting).toBe(count), SOON);
  const missingBytes = (count: number) => vi.waitFor(() => expect(missing).toBe(count), SOON);

  /** Starts a post and waits until only its last byte is missing. */
  async function postedExceptLastByte(): Promise<{ call: ReturnType<typeof post> }> {
    const call = post(boundary, origin, POST_BYTES);
    // Timers: the call's deadline, and the delay of the last byte.
    await waits(2);
    await vi.waitFor(() => expect(missing).toBeGreaterThan(0), SOON);
    return { call };
  }

  /** Makes a post succeed and checks that its last byte arrives exactly after `delayMs`. */
  async function succeeds(delayMs: number): Promise<void> {
    const { call } = await postedExceptLastByte();
    await missingBytes(1);
    await clock.advance(delayMs - 1);
    expect(missing).toBe(1);
    await clock.advance(1);
    await missingBytes(0);
    server.write(NO_CONTENT);
    // Timers: the deadlines of the call and the response, and the wait for a reset.
    await waits(3);
    await clock.advance(10);
    expect(await call).toMatchObject({ status: 204 });
  }

  const LATE: [string, () => void][] = [
    ['resets it', () => server.write(NO_CONTENT, () => server.destroy())],
    ['ends it', () => server.end(NO_CONTENT)],
    ['keeps it', () => server.write(NO_CONTENT)],
  ];
  it.each(
    [30, 50, 100, 200].flatMap((ms) =>
      (['everything', 'the first part'] as const).flatMap((reads) =>
        LATE.map(([name, respond]) => ({ ms, reads, name, respond })),
      ),
    ),
  )('reveals a server that responds after $ms ms, reads $reads that arrives on a connection and $name', async (row) => {
    await serve(row.reads);
    const { call } = await postedExceptLastByte();
    await clock.advance(row.ms);
    row.respond();
    await expect(call).rejects.toMatchObject({ code: 'platform.body_unread' });
  });

  it('is delayed by 25 ms during rapid posting, except in one request every 10 s', async () => {
    await serve('everything');
    await succeeds(250);
    for (let post = 0; post < 43; post++) {
      await succeeds(25);
      await clock.advance(200);
    }
    await succeeds(250);
    await succeeds(25);
  });

  it('is delayed by 250 ms if no other request ended in the previous 250 ms', async () => {
    await serve('everything');
    await succeeds(250);
    await succeeds(25);
    await clock.advance(250);
    await succeeds(250);
  });

  it('is delayed by 250 ms on every connection after an early response on one of them', async () => {
    await serve('everything');
    await succeeds(250);
    const proven = { origin, server };
    await serve('the first part');
    const { call } = await postedExceptLastByte();
    server.write(NO_CONTENT);
    await expect(call).rejects.toMatchObject({ code: 'platform.body_unread' });
    ({ origin, server } = proven);
    missing = 0;
    await succeeds(250);
  });
});

describe('nginx response', () => {
  const folder = freshFolder('nginx-');
  it('is accepted if nginx rejects an oversized request before reading its body', async () => {
    const at = (name: string) => join(folder.path, name);
    const port = await freePort();
    writeFileSync(
      at('nginx.conf'),
      `daemon off; master_process off; pid ${at('pid')}; error_log ${at('error.log')};
       events {}
       http {
         access_log off; client_body_temp_path ${at('body')}; proxy_temp_path ${at('proxy')};
         fastcgi_temp_path ${at('fastcgi')}; uwsgi_temp_path ${at('uwsgi')}; scgi_temp_path ${at('scgi')};
         server { listen 127.0.0.1:${port}; client_max_body_size 64k; location / { return 204; } }
       }`,
    );
    const nginx: ChildProcess = spawn('nginx', ['-c', at('nginx.conf'), '-p', folder.path], {
      stdio: 'ignore',
      env: { PATH: `${process.env.PATH}:/usr/sbin` },
    });
    toClose.push(() => {
      nginx.kill();
      return once(nginx, 'exit');
    });
    const boundary = newBoundary();
    const origin = `http://127.0.0.1:${port}`;
    await vi.waitFor(async () => expect((await fetch(origin)).status).toBe(204), SOON);
    for (const bytes of [POST_BYTES, MORE_THAN_KERNEL_BUFFERS]) {
      expect(await post(boundary, origin, bytes)).toMatchObject({ status: 413 });
    }
  });
});
