import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { headOf, JSON_TYPE, NDJSON_TYPE, PushListener } from './push-listener.ts';
import { until } from './sink-double.ts';

const BODY = JSON.stringify({ values: [{ tag: 'FT-101', key: 'flow', value: 12.5 }] });
const MiB = 1024 * 1024;
/** Maximum number of pending bodies: half of the connections. */
const BODIES = 512;

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

let listener: PushListener;

const statusOf = async (body: string, type: Record<string, string> = JSON_TYPE) =>
  (await listener.send('/v1/values', body, type)).status;

async function open(text: string) {
  const connection = await listener.connect();
  connection.socket.write(text);
  return connection;
}

beforeEach(() => {
  listener = new PushListener();
});
afterEach(() => listener.dispose());

describe('requests with slow bodies', () => {
  it('in every slot do not block other clients, because the slowest requests are aborted', async () => {
    await listener.listen();
    const { push, server, bench } = listener;
    const slow = await Promise.all(Array.from({ length: BODIES }, () => open(`${headOf(1000)}{`)));
    await until(() => server.connections === BODIES && push.bytesUnderWay > BODIES * 4_096);
    await bench.clock.advance(2_000);
    for (const { socket } of slow) socket.write(' ');
    for (let i = 0; i < 50; i++) expect(await statusOf(BODY)).toBe(204);
    await until(() => slow.some(({ closed }) => closed()));
    const ended = slow.filter(({ closed }) => closed());
    expect(ended.every(({ received }) => received().startsWith('HTTP/1.1 408 '))).toBe(true);
    // Each new request replaces one slow request.
    expect(ended.length).toBeLessThanOrEqual(50);
  }, 300_000);

  it('are aborted and release their memory, even if slots are free', async () => {
    await listener.listen();
    const { push, bench } = listener;
    const slow = await open(`${headOf(100_000)}${' '.repeat(50_000)}`);
    const honest = await open(`${headOf(100_000)}${' '.repeat(1_000)}`);
    await until(() => push.bytesUnderWay > 50_000);
    for (let second = 0; second < 16; second++) {
      slow.socket.write(' ');
      honest.socket.write(' '.repeat(500));
      await until(() => push.bytesUnderWay >= 51_000 + 500 * (second + 1) || slow.closed());
      await bench.clock.advance(1_000);
    }
    await until(() => slow.closed());
    expect([slow.received().includes(' 408 '), honest.closed()]).toEqual([true, false]);
    await until(() => push.bytesUnderWay < 20_000);
  });

  it('do not terminate requests that are waiting for the disk', async () => {
    await listener.listen({}, { limits: { connections: 2 } });
    const { sink, clock } = listener.bench;
    sink.holds = true;
    const waiting = [statusOf(BODY), statusOf(BODY)];
    await until(() => sink.waiting === 2);
    await clock.advance(5_000);
    await expect(statusOf(BODY)).rejects.toThrow();
    sink.commit();
    expect(await Promise.all(waiting)).toEqual([204, 204]);
  });

  it('receive 408 if a header or a body arrives too slowly', async () => {
    await listener.listen({}, { limits: { headerMs: 40, requestMs: 5_000 } });
    const slowHead = await open('POST /v1/values HTTP/1.1\r\nHost:');
    const slowBody = await open(`${headOf(50)}{`);
    await until(() => listener.push.bytesUnderWay > 0);
    await listener.bench.clock.advance(5_000);
    await until(() => slowHead.closed() && slowBody.closed());
    expect([slowBody.received(), slowHead.received()]).toEqual([1, 2].map(() => expect.stringContaining('408')));
    expect(listener.push.bytesUnderWay).toBe(0);
  });
});

describe('request body that is expensive to parse', () => {
  const size = 2 * MiB - 11;

  it.each([
    ['nested lists', '['.repeat(size), JSON_TYPE, 400],
    ['nested lists under values', `{"values":[${'['.repeat(MiB - 10)}${']'.repeat(MiB - 10)}]}`, JSON_TYPE, 400],
    ['empty objects', `{"values":[${'{},'.repeat(size / 3 - 3)}{}]}`, JSON_TYPE, 400],
    ['numbers', `{"values":[${'1,'.repeat(size / 2 - 10)}1]}`, JSON_TYPE, 413],
    ['nested objects', '{"a":'.repeat(size / 5), JSON_TYPE, 400],
    ['a line of nested objects', '{"a":'.repeat(size / 5), NDJSON_TYPE, 422],
    ['one long line', 'x'.repeat(8 * MiB - 1), NDJSON_TYPE, 422],
  ])('receives a response and releases its memory: %s', async (_, body, type, status) => {
    await listener.listen();
    expect(await statusOf(body, type)).toBe(status);
    expect([listener.push.bytesUnderWay, await statusOf(BODY)]).toEqual([0, 204]);
  });
});

describe('push request that waits for the disk', () => {
  it('uses memory only for its values', async () => {
    await listener.listen();
    const { sink } = listener.bench;
    sink.holds = true;
    const used = () => {
      collectGarbage();
      return process.memoryUsage().arrayBuffers;
    };
    const body = BODY + ' '.repeat(190_000);
    const waiting = [statusOf(body)];
    await until(() => sink.waiting === 1);
    const before = used();
    waiting.push(...Array.from({ length: 100 }, () => statusOf(body)));
    await until(() => sink.waiting === 101);
    // Sockets of the clients in this process may still hold request bodies.
    await until(() => used() - before < 2 * MiB);
    sink.commit();
    expect(new Set(await Promise.all(waiting))).toEqual(new Set([204]));
  });
});
