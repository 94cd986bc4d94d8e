import { request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import type { InboundServer } from '../../../src/base/inbound/inbound-server.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { OPS_LISTENER, OpsServer } from '../../../src/ops/ops-server.ts';
import { HttpPush, PUSH_LISTENER } from '../../../src/sources/push/http-push.ts';
import { sign } from '../../../src/webhook/signature.ts';
import { inboundServer, portOf } from '../../unit/doubles/inbound-server.ts';
import { HEALTHY, noPage } from '../../unit/doubles/no-page.ts';
import { type IntakeBench, makeIntakeBench } from '../../unit/sources/sink-double.ts';
import { anEvent, Listening, SECRET } from '../../unit/webhook/parts/listening.ts';

/**
 * Invariant 10: hostile clients never block a listener, neither their own nor another one. All tests use real
 * connections.
 */
const MiB = 1024 * 1024;
/** The platform's response time limit (platform 6.1). */
const SENDERS_PATIENCE_MS = 10_000;

let webhook: Listening;
let ops: OpsServer;
let servers: [ops: InboundServer, ingest: InboundServer];
let bench: IntakeBench;
let push: HttpPush;
let ports: { webhook: number; ops: number; ingest: number };
let crowd: Socket[];
let timer: ReturnType<typeof setInterval> | undefined;

beforeEach(async () => {
  crowd = [];
  webhook = await new Listening().start();
  const health = () => HEALTHY;
  const metrics = async () => ({ contentType: 'text/plain', text: 'x 1\n'.repeat(50_000) });
  servers = [inboundServer(OPS_LISTENER), inboundServer(PUSH_LISTENER, { limits: { stopMs: 100, connections: 256 } })];
  await Promise.all(servers.map((server) => server.start()));
  ops = new OpsServer({ health, readiness: health, status: () => ({}), metrics, ...noPage }, servers[0], {
    opsToken: undefined,
    opsHosts: undefined,
  });
  bench = makeIntakeBench();
  push = new HttpPush({
    server: servers[1],
    rules: { token: undefined },
    intake: bench.intake,
    clock: systemClock,
    log: silentLogger(),
  });
  ops.start();
  push.start();
  ports = { webhook: webhook.port, ops: portOf(servers[0]), ingest: portOf(servers[1]) };
});

afterEach(async () => {
  clearInterval(timer);
  for (const socket of crowd) socket.destroy();
  await Promise.all([webhook.stop(), ...servers.map((server) => server.stop())]);
});

interface Stranger {
  port: number;
  /** Bytes that each connection sends first. */
  text: string;
  count: number;
  /** Bytes that each connection sends repeatedly. */
  trickle?: string;
  reads?: boolean;
  halfCloses?: boolean;
  /** Number of loopback source addresses. */
  addresses?: number;
}

/** Opens the connections and waits until each has sent its first bytes or was closed. */
async function gather({ port, text, count, trickle, reads = true, halfCloses = false, addresses = 1 }: Stranger) {
  const ready = Array.from({ length: count }, (_, i) => {
    const socket = connect({ port, host: '127.0.0.1', localAddress: `127.0.0.${1 + (i % addresses)}` });
    crowd.push(socket);
    socket.on('error', () => {});
    if (reads) socket.resume();
    return new Promise<void>((resolve) => {
      socket.once('close', () => resolve());
      socket.once('connect', () => {
        if (halfCloses) socket.end(text, () => resolve());
        else if (text === '') resolve();
        else socket.write(text, () => resolve());
        // A client that does not read responses eventually fills its own buffer, and stays connected.
        if (!reads) setImmediate(resolve);
      });
    });
  });
  await Promise.all(ready);
  if (trickle === undefined) return;
  timer ??= setInterval(() => {
    for (const socket of crowd) if (socket.writable) socket.write(trickle);
  }, 100);
}

/** Sends one request on a new connection. Returns 0 if there is no response within the sender's time limit. */
function ask(
  port: number,
  path: string,
  body?: string,
  headers: Record<string, string> = {},
  localAddress = '127.0.0.1',
): Promise<number> {
  return new Promise((resolve) => {
    const outgoing = request(
      {
        host: '127.0.0.1',
        port,
        path,
        method: body === undefined ? 'GET' : 'POST',
        headers,
        agent: false,
        localAddress,
      },
      (response) => {
        response.resume();
        response.once('end', () => resolve(response.statusCode!)).once('error', () => resolve(0));
      },
    );
    outgoing.setTimeout(SENDERS_PATIENCE_MS, () => outgoing.destroy());
    outgoing.once('error', () => resolve(0)).end(body);
  });
}

function deliver(): Promise<number> {
  const body = anEvent();
  return ask(ports.webhook, '/webhook', body, { 'X-Hub-Signature-Sha256': sign(Buffer.from(body), SECRET) });
}

const pushOne = () =>
  ask(ports.ingest, '/v1/values', '{"values":[{"tag":"FT-101","key":"flow","value":1}]}', {
    'Content-Type': 'application/json',
  });

/** Twenty requests of each kind while the hostile clients are connected: sequentially, and ten at once. */
async function answers(one: () => Promise<number>): Promise<number[]> {
  const all: number[] = [];
  for (let i = 0; i < 10; i++) all.push(await one());
  return [...new Set([...all, ...(await Promise.all(Array.from({ length: 10 }, one)))])];
}

const forged = (length: number) =>
  `POST /webhook HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-Sha256: sha256=${'0'.repeat(64)}\r\nContent-Length: ${length}\r\n\r\n`;
const pushed = (length: number) =>
  `POST /v1/values HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n`;

describe('signed deliveries during attacks', () => {
  it.each([
    ['33 clients withhold the last byte of a 1 MiB body', { count: 33, text: forged(MiB) + 'x'.repeat(MiB - 1) }],
    [
      '33 clients with different addresses withhold the last byte',
      { count: 33, text: forged(MiB) + 'x'.repeat(MiB - 1), addresses: 33 },
    ],
    ['64 connections are idle', { count: 64, text: '' }],
    ['256 bodies arrive byte by byte', { count: 256, text: forged(MiB), trickle: 'x' }],
    ['256 bodies arrive fast and never end', { count: 256, text: forged(MiB), trickle: 'x'.repeat(3_000) }],
    ['1,000 connections are idle', { count: 1_000, text: '', addresses: 50 }],
    ['600 headers arrive byte by byte', { count: 600, text: 'POST /webhook HTTP/1.1\r\nX-A: ', trickle: 'x' }],
    [
      '300 chunked bodies never end',
      {
        count: 300,
        text: `${forged(0).replace('Content-Length: 0', 'Transfer-Encoding: chunked')}8\r\nxxxxxxxx\r\n`,
        trickle: '1\r\nx\r\n',
      },
    ],
    ['300 connections stay open after a response', { count: 300, text: 'GET /x HTTP/1.1\r\nHost: x\r\n\r\n' }],
    ['300 clients half-close within the headers', { count: 300, text: 'POST /webhook HTT', halfCloses: true }],
    ['300 clients half-close within the body', { count: 300, text: `${forged(99)}x`, halfCloses: true }],
    [
      '100 clients pipeline 100 requests and read no response',
      {
        count: 100,
        text: 'GET /webhook HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(100),
        reads: false,
      },
    ],
    [
      '100 clients smuggle requests with two body lengths',
      {
        count: 100,
        text: `POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${forged(3)}abc`,
      },
    ],
  ] as [string, Omit<Stranger, 'port'>][])('are accepted while %s', async (_, strangers) => {
    await gather({ ...strangers, port: ports.webhook });
    expect(await answers(deliver)).toEqual([204]);
    expect(webhook.inbox.list({ limit: 100 })).toHaveLength(20);
    // Other clients can also connect.
    expect(await ask(ports.ops, '/healthz')).toBe(200);
    expect(await pushOne()).toBe(204);
  });
});

describe('health and metrics during attacks', () => {
  it.each([
    ['64 connections are idle', { count: 64, text: '' }],
    ['1,000 connections are idle', { count: 1_000, text: '', addresses: 50 }],
    ['200 headers arrive byte by byte', { count: 200, text: 'GET /healthz HTTP/1.1\r\nX-A: ', trickle: 'x' }],
    [
      '100 bodies never end',
      { count: 100, text: `GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n` },
    ],
    [
      '100 clients request metrics and do not read them',
      {
        count: 100,
        text: 'GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(20),
        reads: false,
      },
    ],
  ] as [string, Omit<Stranger, 'port'>][])('respond while %s', async (_, strangers) => {
    await gather({ ...strangers, port: ports.ops });
    expect(await answers(() => ask(ports.ops, '/healthz'))).toEqual([200]);
    expect(await answers(() => ask(ports.ops, '/metrics'))).toEqual([200]);
  });
});

describe('small pushes during attacks', () => {
  it.each([
    ['20 bodies of 2 MiB lack their last byte', { count: 20, text: pushed(2 * MiB) + ' '.repeat(2 * MiB - 1) }],
    ['300 bodies of 60 kB lack their last byte', { count: 300, text: pushed(60_000) + ' '.repeat(59_999) }],
    ['1,000 connections are idle', { count: 1_000, text: '' }],
  ] as [string, Omit<Stranger, 'port'>][])('are accepted while %s', async (_, strangers) => {
    await gather({ ...strangers, port: ports.ingest });
    expect(await answers(pushOne)).toEqual([204]);
    expect(push.bytesUnderWay).toBeLessThan(50 * MiB);
  });
});
