import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import {
  type AddressInfo,
  connect,
  createServer as createTcpServer,
  type Socket,
  type Server as TcpServer,
} from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { gzipSync } from 'node:zlib';
import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { Redactor } from '../../../src/base/redactor.ts';
import { createDispatcher, type DispatcherOptions, proxyFor } from '../../../src/platform/dispatcher.ts';
import { HttpBoundary, type HttpBoundaryOptions } from '../../../src/platform/http-boundary.ts';
import { hasNoBody } from '../../../src/platform/response-body.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { until } from './session-bench.ts';

const CERTIFICATES = join(import.meta.dirname, '../../fixtures/certificates');
const pem = (name: string) => readFileSync(join(CERTIFICATES, name), 'utf8');

const toClose: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of toClose.splice(0).reverse()) await close();
});

async function listening(server: Server | TcpServer): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => sockets.add(socket));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  toClose.push(() => {
    for (const socket of sockets) socket.destroy();
    return new Promise((resolve) => server.close(resolve));
  });
  return (server.address() as AddressInfo).port;
}

const httpServer = (listener: RequestListener) => listening(createServer(listener));
const tlsServer = (certificate: string, listener: RequestListener = (_, response) => response.end('secure')) =>
  listening(createTlsServer({ key: pem('server.key'), cert: pem(certificate) }, listener));

function boundaryOf(
  dispatcher: Partial<DispatcherOptions> = {},
  options: Partial<HttpBoundaryOptions> = {},
): HttpBoundary {
  const sockets = createDispatcher({ connections: 2, ...dispatcher });
  const boundary = new HttpBoundary({
    redactor: new Redactor(),
    sockets,
    clock: systemClock,
    userAgent: 'tagferry/test',
    ...options,
  });
  toClose.push(() => boundary.close());
  return boundary;
}

const get = (boundary: HttpBoundary, address: string, more = {}) =>
  boundary.send({ method: 'GET', url: new URL(address), ...more });

describe('HTTP client', () => {
  it('returns a response of any status with its headers and text', async () => {
    const seen: IncomingMessage['headers'][] = [];
    const port = await httpServer((request, response) => {
      seen.push(request.headers);
      response.writeHead(418, { 'X-Colour': 'brown' }).end('short and stout');
    });
    const answer = await get(boundaryOf(), `http://127.0.0.1:${port}/pot?size=1`);
    expect(answer).toMatchObject({ status: 418, text: 'short and stout' });
    expect(answer.header('x-colour')).toBe('brown');
    expect(answer.header('X-COLOUR')).toBe('brown');
    expect(seen[0]!['user-agent']).toBe('tagferry/test');
  });

  it('reuses the connection for consecutive calls', async () => {
    const ports = new Set<number | undefined>();
    const port = await httpServer((request, response) => {
      ports.add(request.socket.remotePort);
      response.end();
    });
    const boundary = boundaryOf();
    for (let call = 0; call < 5; call++) await get(boundary, `http://127.0.0.1:${port}/`);
    expect(ports.size).toBe(1);
  });

  it('truncates an oversized response and returns its status', async () => {
    const port = await httpServer((_, response) => response.writeHead(204 + 1).end('x'.repeat(1_000_000)));
    const answer = await get(boundaryOf(), `http://127.0.0.1:${port}/`, { maxAnswerBytes: 1_000 });
    expect(answer).toMatchObject({ status: 205, truncated: true });
    expect(answer.text).toHaveLength(1_000);
  });

  it('reports a refused connection', async () => {
    const port = await httpServer(() => undefined);
    await toClose.pop()!();
    const call = get(boundaryOf(), `http://127.0.0.1:${port}/`);
    await expect(call).rejects.toMatchObject({ code: 'platform.connection_refused', retryable: true });
  });

  it('reports a connection that is closed before or during the response', async () => {
    const port = await httpServer((request, response) => {
      if (request.url === '/before') return void request.socket.destroy();
      response.writeHead(200, { 'content-length': '100' });
      response.write('half', () => request.socket.destroy());
    });
    const boundary = boundaryOf();
    for (const path of ['before', 'middle']) {
      const call = get(boundary, `http://127.0.0.1:${port}/${path}`);
      await expect(call).rejects.toMatchObject({ code: 'platform.connection_reset', retryable: true });
    }
  });

  it('aborts a call whose response never starts or never finishes', async () => {
    const port = await httpServer((request, response) => {
      if (request.url === '/drip') response.write('a');
    });
    const clock = new ManualClock();
    const boundary = boundaryOf({}, { clock });
    for (const path of ['never', 'drip']) {
      const call = get(boundary, `http://127.0.0.1:${port}/${path}`, { deadlineMs: 20_000 });
      const ended = expect(call).rejects.toMatchObject({ code: 'platform.timeout', retryable: true });
      await clock.advance(20_000);
      await ended;
    }
  });

  it('reports a host name that does not resolve', async () => {
    const call = get(boundaryOf(), 'http://no-such-host.invalid/');
    await expect(call).rejects.toMatchObject({ code: 'platform.dns', retryable: true });
  });

  it('aborts a call in progress, and never sends an aborted call that was waiting for a socket', async () => {
    const seen: string[] = [];
    const answers: (() => void)[] = [];
    const port = await httpServer((request, response) => {
      seen.push(request.url!);
      answers.push(() => response.end());
    });
    const boundary = boundaryOf({ connections: 1 });
    const first = get(boundary, `http://127.0.0.1:${port}/first`);
    await until(() => seen.length === 1);
    const abort = new AbortController();
    const second = get(boundary, `http://127.0.0.1:${port}/second`, { signal: abort.signal });
    abort.abort(new Error('no more'));
    await expect(second).rejects.toMatchObject({ code: 'platform.aborted', cause: { message: 'no more' } });
    answers[0]!();
    await first;
    const third = get(boundary, `http://127.0.0.1:${port}/third`);
    await until(() => answers.length === 2);
    answers[1]!();
    await third;
    expect(seen).toEqual(['/first', '/third']);
  });

  it('aborts calls in progress and rejects new calls when closed', async () => {
    let seen = 0;
    const port = await httpServer(() => void seen++);
    const boundary = boundaryOf();
    const call = get(boundary, `http://127.0.0.1:${port}/`);
    const failed = expect(call).rejects.toMatchObject({ code: 'platform.aborted' });
    await until(() => seen === 1);
    await boundary.close();
    await failed;
    await expect(get(boundary, `http://127.0.0.1:${port}/`)).rejects.toMatchObject({ code: 'platform.aborted' });
  });
});

describe('compressed response', () => {
  const body = JSON.stringify({ ok: 'x'.repeat(2_000) });
  const answering = (bytes: Buffer, coding: string) =>
    httpServer((_, response) => response.writeHead(200, { 'content-encoding': coding }).end(bytes));

  it.each(['gzip', 'x-gzip', 'GZIP'])('is expanded if its encoding is %s', async (coding) => {
    const port = await answering(gzipSync(body), coding);
    const answer = await get(boundaryOf(), `http://127.0.0.1:${port}/`);
    expect(answer.text).toBe(body);
    expect(answer.header('content-encoding')).toBeUndefined();
  });

  it.each([
    ['expands beyond the limit', gzipSync('x'.repeat(5_000_000))],
    ['is damaged', gzipSync(body).subarray(0, 30)],
  ])('is reported as truncated if it %s', async (_, bytes) => {
    const port = await answering(bytes, 'gzip');
    const answer = await get(boundaryOf(), `http://127.0.0.1:${port}/`);
    expect(answer).toMatchObject({ status: 200, text: '', truncated: true });
  });
});

describe('204', () => {
  it.each([
    ['without a length', 'HTTP/1.1 204 No Content\r\n\r\n'],
    ['with a length of 0', 'HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n'],
    ['with the length of a missing body', 'HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n'],
    ['with a body', 'HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n{}'],
    ['with an empty chunked body', 'HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
    ['without a reason', 'HTTP/1.1 204\r\n\r\n'],
    ['of a compressing proxy', 'HTTP/1.1 204 No Content\r\nContent-Encoding: gzip\r\n\r\n'],
    ['after an informational response', 'HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n'],
    ['that closes the connection', 'HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n'],
    ['of HTTP/1.0', 'HTTP/1.0 204 No Content\r\n\r\n'],
  ])('%s is one complete response without a body', async (_, text) => {
    let requests = 0;
    const port = await listening(
      createTcpServer((socket) => {
        socket.on('data', () => {
          requests++;
          socket.write(text);
        });
        socket.on('error', () => {});
      }),
    );
    const boundary = boundaryOf();
    for (const sent of [1, 2]) {
      const answer = await get(boundary, `http://127.0.0.1:${port}/`, { statusSuffices: true });
      expect([answer.status, hasNoBody(answer), requests]).toEqual([204, true, sent]);
    }
  });
});

describe('host with several addresses', () => {
  it('is called at its new address after a 503 from the previous address', async () => {
    const old = createServer((_, response) => response.writeHead(503).end());
    const port = await listening(old);
    const current = createServer((_, response) => response.end('moved'));
    await new Promise<void>((resolve) => current.listen(port, '127.0.0.2', resolve));
    toClose.push(() => new Promise((resolve) => current.close(resolve)).finally(() => current.closeAllConnections()));
    let address = '127.0.0.1';
    const lookup = ((_host: string, _options: object, call: (error: null, addresses: object[]) => void) =>
      call(null, [{ address, family: 4 }])) as unknown as NonNullable<DispatcherOptions['lookup']>;
    const boundary = boundaryOf({ lookup, connections: 1 });
    const statusOf = async () => (await get(boundary, `http://platform.test:${port}/`)).status;
    expect(await statusOf()).toBe(503);
    address = '127.0.0.2';
    expect([await statusOf(), await statusOf()]).toEqual([503, 200]);
    expect(await statusOf()).toBe(200);
  });

  it('is reached over a slow link if another address is unreachable', async () => {
    // The listener accepts no connections for half a second, so that a handshake takes about a second.
    const shared = new Int32Array(new SharedArrayBuffer(8));
    const worker = new Worker(
      `const { workerData: shared } = require('node:worker_threads');
       const server = require('node:http').createServer((_, response) => response.end('reached'));
       server.listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
         Atomics.store(shared, 0, server.address().port);
         Atomics.notify(shared, 0);
         Atomics.wait(shared, 1, 0, 30_000);
       });`,
      { eval: true, workerData: shared },
    );
    toClose.push(() => worker.terminate());
    await until(() => Atomics.load(shared, 0) !== 0);
    const port = Atomics.load(shared, 0);
    const fillers = Array.from({ length: 8 }, () => connect(port, '127.0.0.1').on('error', () => {}));
    toClose.push(async () => fillers.forEach((filler) => void filler.destroy()));
    await until(() => fillers.filter(({ connecting }) => !connecting).length >= 1);
    let lookups = 0;
    const lookup = ((_host: string, _options: object, call: (error: null, addresses: object[]) => void) => {
      lookups++;
      call(null, [
        { address: '127.0.0.1', family: 4 },
        { address: '::1', family: 6 },
      ]);
    }) as unknown as NonNullable<DispatcherOptions['lookup']>;
    const call = get(boundaryOf({ lookup }), `http://platform.test:${port}/`);
    await until(() => lookups === 1);
    setTimeout(() => {
      Atomics.store(shared, 1, 1);
      Atomics.notify(shared, 1);
    }, 400);
    expect((await call).text).toBe('reached');
  });
});

describe('TLS connection', () => {
  it('trusts a renewed private certificate authority, also if the file was incomplete in between', async () => {
    const port = await tlsServer('server.pem');
    const folder = mkdtempSync(join(tmpdir(), 'tagferry-ca-'));
    toClose.push(async () => rmSync(folder, { recursive: true }));
    const caPath = join(folder, 'ca.pem');
    writeFileSync(caPath, pem('self-signed.pem'));
    const sockets = createDispatcher({ connections: 1, caPem: pem('self-signed.pem'), caPath });
    const boundary = boundaryOf({}, { sockets });
    const call = () => get(boundary, `https://localhost:${port}/`);
    await expect(call()).rejects.toMatchObject({ code: 'platform.tls' });
    writeFileSync(caPath, pem('authority.pem').slice(0, 100));
    await sockets.readAuthority!();
    await expect(call()).rejects.toMatchObject({ code: 'platform.tls' });
    writeFileSync(caPath, pem('authority.pem'));
    await sockets.readAuthority!();
    expect((await call()).text).toBe('secure');
  });

  it('trusts a private certificate authority that is renewed on disk without a reload', async () => {
    const port = await tlsServer('server.pem');
    const folder = mkdtempSync(join(tmpdir(), 'tagferry-ca-'));
    toClose.push(async () => rmSync(folder, { recursive: true }));
    const caPath = join(folder, 'ca.pem');
    writeFileSync(caPath, pem('authority.pem'));
    const clock = new ManualClock();
    const boundary = boundaryOf({ caPem: pem('self-signed.pem'), caPath, clock });
    const call = () =>
      get(boundary, `https://localhost:${port}/`).then(
        ({ text }) => text,
        ({ code }) => code,
      );
    expect(await call()).toBe('platform.tls');
    await clock.advance(60_000);
    await expect.poll(call).toBe('secure');
  });

  it('trusts a private certificate authority in PLATFORM_CA', async () => {
    const port = await tlsServer('server.pem');
    const boundary = boundaryOf({ caPem: pem('authority.pem') });
    expect((await get(boundary, `https://localhost:${port}/`)).text).toBe('secure');
  });

  it('cannot be configured if PLATFORM_CA is not a certificate', () => {
    expect(() => createDispatcher({ connections: 1, caPem: 'not a certificate' })).toThrow(/PLATFORM_CA/);
  });

  const faults: [string, string, RegExp, RegExp][] = [
    ['an unknown authority', 'server.pem', /chain lacks|not trusted/, /PLATFORM_CA/],
    ['a self-signed certificate', 'self-signed.pem', /self-signed/, /PLATFORM_CA/],
  ];
  for (const [what, certificate, message, hint] of faults) {
    it(`fails with a description of ${what}`, async () => {
      const port = await tlsServer(certificate);
      const error = await get(boundaryOf(), `https://localhost:${port}/`).catch((thrown) => thrown);
      expect(error).toMatchObject({ code: 'platform.tls', retryable: true });
      expect(error.message).toMatch(message);
      expect(error.hint).toMatch(hint);
    });
  }

  const bad: [string, string, RegExp, RegExp][] = [
    ['has expired', 'expired.pem', /has expired/, /clock/],
    ['is not valid yet', 'future.pem', /not valid yet/, /clock/],
    ['is for another name', 'other-name.pem', /a different host name/, /PLATFORM_URL/],
  ];
  for (const [what, certificate, message, hint] of bad) {
    it(`fails if the certificate ${what}`, async () => {
      const port = await tlsServer(certificate);
      const boundary = boundaryOf({ caPem: pem('authority.pem') });
      const error = await get(boundary, `https://localhost:${port}/`).catch((thrown) => thrown);
      expect(error).toMatchObject({ code: 'platform.tls', retryable: true });
      expect(error.message).toMatch(message);
      expect(error.hint).toMatch(hint);
    });
  }

  it('to a plain HTTP port fails with a hint', async () => {
    const port = await httpServer((_, response) => response.end());
    const error = await get(boundaryOf(), `https://localhost:${port}/`).catch((thrown) => thrown);
    expect(error).toMatchObject({ code: 'platform.tls', hint: 'Check the scheme and port of PLATFORM_URL.' });
  });
});

describe('proxy connection', () => {
  const OTHER_NAME = 'other.example';

  /** `isSilent`: whether the proxy ignores CONNECT for now. `waiting`: connections without a response. */
  async function proxy(verdict: number | (() => boolean) = 200, waiting: Socket[] = []) {
    const tunnels: { target: string; authorization: string | undefined }[] = [];
    const server = createServer();
    server.on('connect', (request: IncomingMessage, socket: Socket, head: Buffer) => {
      tunnels.push({ target: request.url!, authorization: request.headers['proxy-authorization'] });
      if (typeof verdict === 'function' && verdict()) return void waiting.push(socket);
      if (typeof verdict === 'number' && verdict !== 200) return void socket.end(`HTTP/1.1 ${verdict} No\r\n\r\n`);
      const onward = connect(Number(request.url!.split(':')[1]), '127.0.0.1', () => {
        socket.write('HTTP/1.1 200 OK\r\n\r\n');
        onward.write(head);
        onward.pipe(socket).pipe(onward);
      });
      onward.on('error', () => socket.destroy());
      socket.on('error', () => onward.destroy());
    });
    return { tunnels, port: await listening(server) };
  }

  it('uses an authenticated tunnel for HTTPS, and keeps it open', async () => {
    const { tunnels, port } = await proxy();
    const target = await tlsServer('other-name.pem');
    const boundary = boundaryOf({
      caPem: pem('authority.pem'),
      httpsProxy: `http://someone:p%40ss@127.0.0.1:${port}`,
      noProxy: 'elsewhere.example',
    });
    for (let call = 0; call < 3; call++) {
      expect((await get(boundary, `https://${OTHER_NAME}:${target}/`)).text).toBe('secure');
    }
    const authorization = `Basic ${Buffer.from('someone:p@ss').toString('base64')}`;
    expect(tunnels).toEqual([{ target: `${OTHER_NAME}:${target}`, authorization }]);
  });

  it('is bypassed for hosts in NO_PROXY and on the same machine', async () => {
    const { tunnels, port } = await proxy();
    const secure = await tlsServer('server.pem');
    const plain = await httpServer((_, response) => response.end('plain'));
    const httpsProxy = `http://127.0.0.1:${port}`;
    const boundary = boundaryOf({ caPem: pem('authority.pem'), httpsProxy, noProxy: 'localhost' });
    expect((await get(boundary, `https://localhost:${secure}/`)).text).toBe('secure');
    expect((await get(boundary, `http://127.0.0.1:${plain}/`)).text).toBe('plain');
    expect(tunnels).toEqual([]);
  });

  it('reports a proxy that refuses the tunnel or requires a password', async () => {
    for (const verdict of [403, 407]) {
      const { port } = await proxy(verdict);
      const boundary = boundaryOf({ httpsProxy: `http://127.0.0.1:${port}` });
      const error = await get(boundary, 'https://platform.test:1/').catch((thrown) => thrown);
      expect(error).toMatchObject({ code: 'platform.proxy', retryable: true });
      expect(error.message).toContain(String(verdict));
      expect(error.hint).toContain('HTTPS_PROXY');
    }
  });

  it('reports an unreachable proxy instead of the platform', async () => {
    const { port } = await proxy();
    await toClose.pop()!();
    const boundary = boundaryOf({ httpsProxy: `http://127.0.0.1:${port}` });
    const call = get(boundary, 'https://platform.test:1/');
    await expect(call).rejects.toMatchObject({ code: 'platform.proxy', retryable: true });
  });

  it('is reported as the cause if it does not respond to CONNECT, and is used as soon as it responds', async () => {
    const waiting: Socket[] = [];
    let isSilent = true;
    const { port } = await proxy(() => isSilent, waiting);
    const target = await tlsServer('other-name.pem');
    const httpsProxy = `http://127.0.0.1:${port}`;
    const boundary = boundaryOf({ caPem: pem('authority.pem'), connections: 1, httpsProxy, connectTimeoutMs: 500 });
    const call = () => get(boundary, `https://${OTHER_NAME}:${target}/`);
    const error = await call().catch((thrown) => thrown);
    expect(waiting).toHaveLength(1);
    expect(error).toMatchObject({ code: 'platform.proxy', hint: expect.stringContaining('HTTPS_PROXY') });
    isSilent = false;
    expect((await call()).text).toBe('secure');
  });

  it.each([
    ['https://example.com/', false],
    ['https://a.example.com/', false],
    ['https://badexample.com/', true],
    ['https://below.test/', false],
    ['https://a.only.test/', false],
    ['https://only.test/', true],
    ['https://host.test:8443/', false],
    ['https://host.test/', true],
    ['https://[::1]/', false],
    ['http://127.0.0.1:1/', false],
    ['http://platform.test/', true],
  ])('to %s is used, and reported: %s', async (address, isProxied) => {
    const { port } = await proxy(403);
    const httpsProxy = `http://127.0.0.1:${port}`;
    const noProxy = 'example.com, .below.test *.only.test host.test:8443,[::1]:443';
    const lookup = ((_host: string, _options: object, call: (error: Error) => void) =>
      call(Object.assign(new Error('not found'), { code: 'ENOTFOUND' }))) as unknown as DispatcherOptions['lookup'];
    const error = await get(boundaryOf({ httpsProxy, noProxy, lookup: lookup! }), address).catch((thrown) => thrown);
    expect(error.code === 'platform.proxy').toBe(isProxied);
    expect(proxyFor(new URL(address), httpsProxy, noProxy) !== undefined).toBe(isProxied);
    expect(proxyFor(new URL(address), httpsProxy, '*')).toBeUndefined();
  });
});
