import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { connect, type Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import { HttpPush, type HttpPushOptions, type PushRules } from '../../../src/sources/push/http-push.ts';
import { type IntakeBench, makeIntakeBench, storeFault, tagOf, until } from './sink-double.ts';

const NDJSON = 'application/x-ndjson';
let bench: IntakeBench;
let push: HttpPush;
let port = 0;
const sockets: Socket[] = [];

async function listen(rules: Partial<PushRules> = {}, options: Partial<HttpPushOptions> = {}): Promise<void> {
  push = new HttpPush({
    listen: { host: '127.0.0.1', port: 0 },
    rules: { token: undefined, ...rules },
    intake: bench.intake,
    clock: bench.clock,
    log: silentLogger(),
    ...options,
  });
  const at = await push.start();
  port = 'port' in at ? at.port : 0;
}

interface Answer {
  status: number;
  body: { accepted?: number; refused?: number; error?: string; problems?: { index: number; problem: string }[] };
}

function send(path: string, body: string | Buffer, headers: Record<string, string> = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const options = { host: '127.0.0.1', port, path, method: 'POST', headers, agent: false };
    const request = httpRequest(options, (response) => {
      let text = '';
      response.on('data', (chunk) => {
        text += chunk;
      });
      response.on('end', () => resolve({ status: response.statusCode!, body: text === '' ? {} : JSON.parse(text) }));
    });
    request.on('error', reject);
    request.end(body);
  });
}

/** Opens a stream for single lines. */
async function openStream(
  more = '',
): Promise<{ write(text: string): void; end(): void; text(): string; socket: Socket }> {
  const socket = connect(port, '127.0.0.1');
  sockets.push(socket);
  let text = '';
  socket.on('data', (chunk) => {
    text += chunk;
  });
  socket.on('error', () => {});
  await once(socket, 'connect');
  socket.write(
    `POST /v1/values?partial=true HTTP/1.1\r\nHost: localhost\r\nContent-Type: ${NDJSON}\r\nTransfer-Encoding: chunked\r\n${more}\r\n`,
  );
  const write = (chunk: string) => socket.write(`${Buffer.byteLength(chunk).toString(16)}\r\n${chunk}\r\n`);
  return { write, end: () => socket.write('0\r\n\r\n'), text: () => text, socket };
}

const line = (value: number, tag = 'FT-101') => `{"tag":"${tag}","key":"flow","value":${value}}\n`;
const stored = () => bench.sink.stored.map(({ value }) => value);

beforeEach(() => {
  bench = makeIntakeBench();
});
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  bench.sink.commit();
  await push.stop();
});

describe('partial line protocol request', () => {
  const LINES = 'FT-101 flow=1 1795219200000\nfoo bar=2\nFT-101 flow="x",temperature=3\nno fields\nFT-101 flow=4';

  it('stores valid values and reports the others', async () => {
    await listen();
    const answer = await send('/api/v2/write?precision=ms&partial=true', LINES);
    expect([answer.status, answer.body.accepted, answer.body.refused]).toEqual([200, 3, 3]);
    expect(answer.body.problems!.map(({ index }) => index)).toEqual([1, 2, 4]);
    expect(stored()).toEqual([1, 3, 4]);
    expect(bench.sink.stored[0]!.timeMs).toBe(1795219200000);
  });

  it('is enabled by the setting unless the request overrides it', async () => {
    await listen();
    expect((await send('/write?precision=ms', LINES)).status).toBe(400);
    push.setRules({ token: undefined, lines: { partial: true } });
    expect((await send('/write?precision=ms&partial=false', LINES)).status).toBe(400);
    expect(bench.sink.stored).toEqual([]);
    const answer = await send('/write?precision=ms', LINES);
    expect([answer.status, answer.body.accepted]).toEqual([200, 3]);
    expect(answer.body.error).toBe('partial write: 3 values dropped');
    // Collectors accept only 204 as success.
    expect((await send('/write?precision=ms', 'FT-101 flow=1')).status).toBe(204);
    expect((await send('/write?partial=yes', 'FT-101 flow=1')).status).toBe(400);
  });

  it('returns 422 if no value is valid, and returns the total count if all values are valid', async () => {
    await listen();
    const wrong = await send('/api/v2/write?partial=true', 'a b=1\nc d=2');
    expect([wrong.status, wrong.body.accepted, wrong.body.refused]).toEqual([422, 0, 2]);
    const right = await send('/api/v2/write?partial=true', 'FT-101 flow=1,temperature=2');
    expect([right.status, right.body]).toEqual([200, { accepted: 2, refused: 0, problems: [] }]);
  });

  it('discards all values of a line that ends with invalid text', async () => {
    await listen();
    const text = 'FT-101 flow=1,temperature=2 17x\nFT-101 flow=3\nFT-101 flow=4 99999999999999999999\nFT-101 flow=5';
    const answer = await send('/api/v2/write?partial=true&precision=s', text);
    expect([answer.body.accepted, answer.body.refused, stored()]).toEqual([2, 4, [3, 5]]);
  });
});

describe('line protocol tag', () => {
  it('is read from the Influx tag named in INGEST_TAG_FROM', async () => {
    await listen({ lines: { tagFrom: 'device' } });
    const path = '/api/v2/write?precision=ms';
    expect((await send(path, 'modbus,device=FT-101,host=gw flow=1\nmodbus,host=gw,device=GW-01 load=2')).status).toBe(
      204,
    );
    expect((await send(path, 'modbus,de\\vice=x,device=FT-101 flow=3e0')).status).toBe(204);
    expect(bench.sink.stored.map(({ address, value }) => `${address} ${value}`)).toEqual([
      '881/process/flow/#12 1',
      '900//load/ 2',
      '881/process/flow/#12 3',
    ]);
    const without = await send(path, 'FT-101,host=gw flow=1');
    expect([without.status, without.body.problems![0]!.problem]).toEqual([422, expect.stringContaining('"device"')]);
    push.setRules({ token: undefined });
    expect((await send(path, 'FT-101,device=GW-01 flow=4')).status).toBe(204);
    expect(bench.sink.stored.at(-1)!.address).toBe('881/process/flow/#12');
  });
});

describe('line protocol series that differ only in an Influx tag', () => {
  const CPUS = ['cpu0', 'cpu1', 'cpu-total'];
  const keys = ['usage', ...CPUS.map((cpu) => `usage_${cpu}`), 'usage__var_log'];
  const lines = (timeMs: number) =>
    ['cpu,cpu=cpu0 usage=1', 'cpu,cpu=cpu1 usage=2', 'cpu,cpu=cpu-total usage=1.5']
      .map((text) => `${text} ${timeMs}\n`)
      .join('');
  const path = '/api/v2/write?precision=ms';
  const addresses = () => bench.sink.stored.map(({ address, value }) => `${address} ${value}`);

  beforeEach(() => {
    bench = makeIntakeBench(
      new Map([
        [
          'cpu',
          tagOf(
            'cpu',
            7,
            keys.map((key) => ({ key })),
          ),
        ],
      ]),
    );
  });

  it.each([['in one request'], ['in each further request']])('are reported for each line: %s', async (when) => {
    await listen();
    if (when === 'in each further request') await send(path, lines(1_795_219_100_000));
    const answer = await send(path, lines(1_795_219_200_000));
    expect([answer.status, bench.sink.stored]).toEqual([422, []]);
    expect(answer.body.problems!.map(({ index }) => index)).toEqual([1, 2]);
    expect(answer.body.problems![0]!.problem).toContain('"cpu"');
    expect(answer.body.problems![0]!.problem).toContain('INGEST_KEY_FROM');
  });

  it('are reported if they have no timestamp, regardless of how the lines are written', async () => {
    await listen();
    expect((await send(path, 'cpu,cpu=cpu0 usage=1\ncpu,cpu=cpu1 usage=2')).status).toBe(422);
    expect((await send(path, 'cpu,cpu=cpu\\,0 usage=1e0 5\ncpu,cpu=cpu\\,1 usage=2 5')).status).toBe(422);
    expect((await send(path, 'cpu,a=1,b=2 usage=1e0 1795219200000\ncpu,b=2,a=1 usage=2 1795219200000')).status).toBe(
      204,
    );
  });

  it('are reported in a partial request, which stores only the first series', async () => {
    await listen();
    const answer = await send(`${path}&partial=true`, lines(1_795_219_200_000));
    expect([answer.status, answer.body.accepted, answer.body.refused]).toEqual([200, 1, 2]);
    expect(addresses()).toEqual(['7//usage/ 1']);
  });

  it('are accepted if their timestamps differ', async () => {
    await listen();
    const text = 'cpu,state=ok usage=1 1795219200000\ncpu,state=alarm usage=2 1795219200001';
    expect((await send(path, text)).status).toBe(204);
    expect(stored()).toEqual([1, 2]);
  });

  it('are stored under separate keys with INGEST_KEY_FROM', async () => {
    await listen({ lines: { keyFrom: '{field}_{cpu}' } });
    const expected = ['7//usage_cpu0/ 1', '7//usage_cpu1/ 2', '7//usage_cpu-total/ 1.5'];
    for (const text of [lines(1_795_219_200_000), lines(1_795_219_200_001).replace('usage=1.5', 'usage=15e-1')]) {
      bench.sink.stored.length = 0;
      expect((await send(path, text)).status).toBe(204);
      expect(addresses()).toEqual(expected);
    }
    expect((await send(path, 'cpu usage=3')).status).toBe(204);
    push.setRules({ token: undefined, lines: { keyFrom: '{field}_{path}' } });
    expect((await send(path, 'cpu,path=/var/log usage=4\ncpu usage=5')).status).toBe(204);
    expect(addresses().slice(-3)).toEqual(['7//usage/ 3', '7//usage__var_log/ 4', '7//usage/ 5']);
  });
});

describe('NDJSON stream', () => {
  it('is committed as lines arrive, and finally returns the number of values', async () => {
    await listen();
    const stream = await openStream();
    stream.write(line(1));
    await until(() => bench.sink.stored.length === 1);
    stream.write(line(2).slice(0, 10));
    stream.write(line(2).slice(10) + line(3, 'nobody') + line(4));
    await until(() => bench.sink.stored.length === 3);
    stream.write('no json\n\n');
    stream.write(line(5).trim());
    stream.end();
    await until(() => stream.text().includes('"accepted"'));
    expect(stream.text()).toMatch(/^HTTP\/1\.1 200 /);
    const body = JSON.parse(stream.text().split('\r\n\r\n')[1]!);
    expect([body.accepted, body.refused]).toEqual([4, 2]);
    expect(body.problems.map(({ index }: { index: number }) => index)).toEqual([2, 4]);
    expect(stored()).toEqual([1, 2, 4, 5]);
  });

  it('may be idle for longer than other requests, and does not lose committed values if its connection breaks', async () => {
    await listen();
    const stream = await openStream();
    stream.write(line(1));
    await until(() => bench.sink.stored.length === 1);
    for (let minute = 0; minute < 10; minute++) await bench.clock.advance(60_000);
    stream.write(line(2) + line(3).slice(0, 20));
    await until(() => bench.sink.stored.length === 2);
    stream.socket.destroy();
    await until(() => push.connections === 0);
    expect(stored()).toEqual([1, 2]);
    expect(push.bytesUnderWay).toBe(0);
  });

  it('is committed in batches of lines, and rejects lines longer than 1 MiB', async () => {
    await listen();
    const many = Array.from({ length: 30_000 }, (_, i) => line(i)).join('');
    const huge = `{"tag":"${'x'.repeat(1024 * 1024)}","key":"flow","value":1}\n`;
    const answer = await send('/v1/values?partial=true', many + huge + line(-1), { 'Content-Type': NDJSON });
    expect([answer.status, answer.body.accepted, answer.body.refused]).toEqual([200, 30_001, 1]);
    expect(stored().at(-1)).toBe(-1);
    expect(bench.sink.appends).toBeLessThan(300);
  });

  it('can exceed 8 MiB only if it is partial, whether or not it is compressed', async () => {
    await listen();
    const body = Buffer.from(line(1).repeat(220_000));
    expect(body.length).toBeGreaterThan(8 * 1024 * 1024);
    expect((await send('/v1/values', body, { 'Content-Type': NDJSON })).status).toBe(413);
    const headers = { 'Content-Type': NDJSON, 'Content-Encoding': 'gzip' };
    const answer = await send('/v1/values?partial=true', gzipSync(body), headers);
    expect([answer.status, answer.body.accepted]).toEqual([200, 220_000]);
    expect((await send('/v1/values?partial=true', body.subarray(0, 9e6), headers)).status).toBe(400);
  });

  it('ends with 503 and the number of stored values if the store rejects values', async () => {
    await listen();
    const stream = await openStream();
    stream.write(line(1));
    await until(() => bench.sink.stored.length === 1);
    bench.sink.fault = storeFault('buffer.full', 2_000);
    stream.write(line(2));
    await until(() => !bench.sink.fault || bench.sink.appends === 2);
    stream.write(line(3));
    await until(() => stream.text().includes('accepted'));
    expect(stream.text()).toMatch(/^HTTP\/1\.1 503 /);
    expect(stream.text()).toMatch(/retry-after: 2/i);
    expect(stream.text()).toContain('"accepted":1');
    bench.sink.fault = undefined;
  });

  it('returns the number of stored values when the agent stops', async () => {
    await listen();
    const stream = await openStream();
    stream.write(line(1));
    await until(() => bench.sink.stored.length === 1);
    const stopped = push.stop();
    await until(() => stream.text().includes('"accepted":1'));
    expect(stream.text()).toMatch(/^HTTP\/1\.1 200 [\s\S]*connection: close/i);
    stream.socket.end();
    await stopped;
  });

  it('has a separate connection limit, above which the longest-idle stream is closed', async () => {
    await listen({}, { limits: { connections: 16 } });
    const [first, second] = [await openStream(), await openStream()];
    for (const stream of [first, second]) stream.write(line(1));
    await until(() => bench.sink.stored.length === 2);
    expect((await send('/v1/values?partial=true', line(2), { 'Content-Type': NDJSON })).status).toBe(503);
    await bench.clock.advance(50_000);
    second.write(line(3));
    await until(() => bench.sink.stored.length === 3);
    await bench.clock.advance(20_000);
    expect((await send('/v1/values?partial=true', line(4), { 'Content-Type': NDJSON })).status).toBe(200);
    await until(() => first.socket.destroyed);
    expect(second.socket.destroyed).toBe(false);
  });
});

describe('pushed timestamp', () => {
  const at = (timestamp: unknown) =>
    send('/v1/values', JSON.stringify({ values: [{ tag: 'FT-101', key: 'flow', value: 1, timestamp }] }), {
      'Content-Type': 'application/json',
    });

  it('is rejected if it is in seconds instead of milliseconds, unless a unit is specified', async () => {
    await listen();
    for (const seconds of [1_795_219_200, 0, 99_999_999_999]) {
      const answer = await at(seconds);
      expect([answer.status, answer.body.problems![0]!.problem]).toEqual([422, expect.stringContaining('seconds')]);
    }
    const ndjson = `${line(1).trim().slice(0, -1)},"timestamp":1795219200}\n`;
    expect((await send('/v1/values', ndjson, { 'Content-Type': NDJSON })).status).toBe(422);
    expect((await at(100_000_000_000)).status).toBe(204);
    expect((await at('1970-01-02T00:00:00Z')).status).toBe(204);
    expect((await send('/write', 'FT-101 flow=1 1795219200')).status).toBe(422);
    expect((await send('/write?precision=s', 'FT-101 flow=1 1795219200')).status).toBe(204);
    expect((await send('/write?precision=ms', 'FT-101 flow=1 1795219200')).status).toBe(204);
    expect(bench.sink.stored.slice(2).map(({ timeMs }) => timeMs)).toEqual([1_795_219_200_000, 1_795_219_200]);
  });

  it('is accepted while the gateway clock is not set, even if it appears to be in seconds', async () => {
    bench.clock.jumpWall(5_000 - bench.clock.wallMs());
    await listen();
    expect((await at(1_000)).status).toBe(204);
  });

  it('is accepted and counted if it is more than a day ahead', async () => {
    await listen();
    const nowMs = bench.clock.wallMs();
    for (const aheadMs of [0, 86_400_000, 86_400_001, 400 * 86_400_000])
      expect((await at(nowMs + aheadMs)).status).toBe(204);
    const ns = `${nowMs + 90_000_000}000000`;
    expect((await send('/write', `FT-101 flow=1,temperature=2 ${ns}`)).status).toBe(204);
    expect([...bench.ahead]).toEqual([
      ['http', 2],
      ['influx', 2],
    ]);
    expect(bench.sink.stored).toHaveLength(6);
  });
});
