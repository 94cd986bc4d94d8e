import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import { HttpPush, type PushLimits } from '../../../src/sources/push/http-push.ts';
import { type IntakeBench, makeIntakeBench, until } from './sink-double.ts';

const BODY = JSON.stringify({ values: [{ tag: 'FT-101', key: 'flow', value: 12.5 }] });
/** Maximum number of pending bodies: half of the connections. */
const BODIES = 512;

let bench: IntakeBench;
let push: HttpPush;
let port = 0;
const sockets: { socket: Socket; received: string; closed: boolean }[] = [];

async function listen(limits: Partial<PushLimits> = {}): Promise<void> {
  push = new HttpPush({
    listen: { host: '127.0.0.1', port: 0 },
    rules: { token: undefined },
    intake: bench.intake,
    clock: bench.clock,
    log: silentLogger(),
    limits,
  });
  const at = await push.start();
  port = 'port' in at ? at.port : 0;
}

async function open(text: string) {
  const line = { socket: connect(port, '127.0.0.1'), received: '', closed: false };
  sockets.push(line);
  line.socket.on('data', (chunk) => {
    line.received += String(chunk);
  });
  line.socket.on('error', () => {});
  line.socket.on('close', () => {
    line.closed = true;
  });
  await once(line.socket, 'connect');
  line.socket.write(text);
  return line;
}

const head = (length: number) =>
  `POST /v1/values HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n`;

function send(body: string, headers: Record<string, string> = { 'Content-Type': 'application/json' }): Promise<number> {
  return new Promise((resolve) => {
    const request = httpRequest(
      { host: '127.0.0.1', port, path: '/v1/values', method: 'POST', headers, agent: false },
      (response) => {
        response.resume();
        resolve(response.statusCode!);
      },
    );
    request.on('error', () => resolve(0));
    request.end(body);
  });
}

beforeEach(() => {
  bench = makeIntakeBench();
});
afterEach(async () => {
  for (const { socket } of sockets.splice(0)) socket.destroy();
  await push.stop();
});

describe('requests with slow bodies', () => {
  it('in every slot do not block other clients, because the slowest requests are aborted', async () => {
    await listen();
    const slow = await Promise.all(Array.from({ length: BODIES }, () => open(`${head(1000)}{`)));
    await until(() => push.connections === BODIES && push.bytesUnderWay > BODIES * 4_096);
    await bench.clock.advance(2_000);
    for (const { socket } of slow) socket.write(' ');
    for (let i = 0; i < 50; i++) expect(await send(BODY)).toBe(204);
    await until(() => slow.some(({ closed }) => closed));
    const ended = slow.filter(({ closed }) => closed);
    expect(ended.every(({ received }) => received.startsWith('HTTP/1.1 408 '))).toBe(true);
    // Each new request replaces one slow request.
    expect(ended.length).toBeLessThanOrEqual(50);
    expect(bench.counted.get('http')).toBe(50);
  }, 300_000);

  it('are eventually aborted and release their memory, even if slots are free', async () => {
    await listen();
    const slow = await open(`${head(100_000)}${' '.repeat(50_000)}`);
    const honest = await open(`${head(100_000)}${' '.repeat(1_000)}`);
    await until(() => push.bytesUnderWay > 50_000);
    for (let second = 0; second < 16; second++) {
      slow.socket.write(' ');
      honest.socket.write(' '.repeat(500));
      const sent = 51_000 + 500 * (second + 1);
      await until(() => push.bytesUnderWay >= sent || slow.closed);
      await bench.clock.advance(1_000);
    }
    await until(() => slow.closed);
    expect(slow.received).toContain(' 408 ');
    expect(honest.closed).toBe(false);
    await until(() => push.bytesUnderWay < 20_000);
  });

  it('do not terminate requests that are waiting for the disk', async () => {
    await listen({ connections: 2 });
    bench.sink.holds = true;
    const waiting = [send(BODY), send(BODY)];
    await until(() => bench.sink.waiting === 2);
    await bench.clock.advance(5_000);
    expect(await send(BODY)).toBe(0);
    bench.sink.commit();
    expect(await Promise.all(waiting)).toEqual([204, 204]);
    const late = send(BODY);
    await until(() => bench.sink.waiting === 1);
    bench.sink.commit();
    expect(await late).toBe(204);
  });
});

describe('request body that is a single huge line', () => {
  it('receives a response regardless of its content, and releases its memory', async () => {
    await listen();
    const size = 8 * 1024 * 1024 - 1;
    const json = { 'Content-Type': 'application/json' };
    const lines = { 'Content-Type': 'application/x-ndjson' };
    expect(await send('['.repeat(size), json)).toBe(400);
    expect(await send('{"a":'.repeat(size / 5), lines)).toBe(422);
    expect(await send('x'.repeat(size), lines)).toBe(422);
    expect(await send(`{"values":[${'1,'.repeat(size / 2 - 10)}1]}`, json)).toBe(413);
    expect(await send(`{"tag":"${'F'.repeat(size - 100)}","key":"flow","value":1}`, lines)).toBe(422);
    expect(await send(`${' '.repeat(size + 2)}`, lines)).toBe(413);
    expect(push.bytesUnderWay).toBe(0);
    expect(await send(BODY)).toBe(204);
  }, 300_000);
});
