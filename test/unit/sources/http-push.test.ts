import { once } from 'node:events';
import { existsSync, mkdtempSync, statSync, writeFileSync } from 'node:fs';
import { Agent, request as httpRequest } from 'node:http';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import { HttpPush, type HttpPushOptions } from '../../../src/sources/push/http-push.ts';
import { type IntakeBench, makeIntakeBench, storeFault, until } from './sink-double.ts';

const AT = '2026-11-21T00:00:00.000Z';
const AT_MS = Date.parse(AT);
const ONE = { tag: 'FT-101', key: 'flow', value: 12.5, timestamp: AT, status: 'good' };
const JSON_TYPE = { 'Content-Type': 'application/json' };

interface Answer {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  text: string;
  body: { error?: string; problems?: { index: number; field: string; problem: string }[]; [member: string]: unknown };
}

let bench: IntakeBench;
let push: HttpPush;
let port = 0;
const opened: { close(): void }[] = [];

/** Makes listening on an address in use fail immediately. */
const AT_ONCE = { listenRetries: 0 };

async function listen(options: Partial<HttpPushOptions> = {}): Promise<void> {
  push = new HttpPush({
    listen: { host: '127.0.0.1', port: 0 },
    rules: { token: undefined },
    intake: bench.intake,
    clock: bench.clock,
    log: silentLogger(),
    ...options,
  });
  const at = await push.start();
  port = 'port' in at ? at.port : 0;
}

function send(
  path: string,
  body: string | Uint8Array | undefined,
  headers: Record<string, string> = JSON_TYPE,
  method = 'POST',
  more: { agent?: Agent; socketPath?: string; host?: string } = {},
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const where = more.socketPath ? { socketPath: more.socketPath } : { host: more.host ?? '127.0.0.1', port };
    const request = httpRequest({ ...where, path, method, headers, agent: more.agent ?? false }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk) => chunks.push(chunk));
      response.on('end', () => {
        const text = Buffer.concat(chunks).toString();
        const isJson = response.headers['content-type']?.startsWith('application/json');
        resolve({
          status: response.statusCode!,
          headers: response.headers,
          text,
          body: isJson ? JSON.parse(text) : {},
        });
      });
    });
    request.on('error', reject);
    request.end(body);
  });
}

const sendValues = (values: unknown, headers: Record<string, string> = JSON_TYPE) =>
  send('/v1/values', JSON.stringify({ values }), headers);

/** Opens a connection for raw bytes. */
async function rawConnection(): Promise<{ socket: Socket; received: () => string; closed: () => boolean }> {
  const socket = connect(port, '127.0.0.1');
  let text = '';
  let isClosed = false;
  socket.on('data', (chunk) => {
    text += chunk;
  });
  socket.on('error', () => {});
  socket.on('close', () => {
    isClosed = true;
  });
  opened.push({ close: () => socket.destroy() });
  await once(socket, 'connect');
  return { socket, received: () => text, closed: () => isClosed };
}

beforeEach(() => {
  bench = makeIntakeBench();
});

afterEach(async () => {
  for (const each of opened.splice(0)) each.close();
  bench.sink.fault ??= storeFault('store.closed');
  bench.sink.commit();
  await push.stop();
});

describe('POST /v1/values', () => {
  beforeEach(() => listen());

  it('responds 204 without a body once every value is stored', async () => {
    const answer = await sendValues([ONE, { tag: 'GW-01', key: 'LOAD', value: -0.25, timestamp: AT_MS + 1 }]);
    expect([answer.status, answer.text]).toEqual([204, '']);
    expect(bench.sink.stored).toEqual([
      { address: '881/process/flow/#12', timeMs: AT_MS, value: 12.5, status: 1, stampedHere: false },
      { address: '900//load/', timeMs: AT_MS + 1, value: -0.25, status: 0, stampedHere: false },
    ]);
    expect(bench.counted.get('http')).toBe(2);
  });

  it('does not respond before the values are on disk', async () => {
    bench.sink.holds = true;
    let answered = false;
    const answer = sendValues([ONE]).then((got) => {
      answered = true;
      return got;
    });
    await until(() => bench.sink.waiting === 1);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect([answered, bench.counted.size]).toEqual([false, 0]);
    bench.sink.commit();
    expect((await answer).status).toBe(204);
  });

  it('accepts an asset that is not in tags.yaml', async () => {
    const answer = await sendValues([
      { asset: 77, unit: 12, group: 'Process', key: 'Level', value: 1, timestamp: AT },
      { asset: 77, unit: { code: 'percent' }, key: 'level', value: 2, timestamp: AT },
      { asset: 77, key: 'level', value: 3, timestamp: AT },
    ]);
    expect(answer.status).toBe(204);
    expect(bench.sink.stored.map((value) => value.address)).toEqual([
      '77/process/level/#12',
      '77//level/percent',
      '77//level/',
    ]);
  });

  it('uses the arrival time for a value without a timestamp', async () => {
    await sendValues([{ tag: 'GW-01', key: 'load', value: 1 }]);
    expect(bench.sink.stored).toEqual([
      { address: '900//load/', timeMs: bench.clock.wallMs(), value: 1, status: 0, stampedHere: true },
    ]);
  });

  it('accepts NDJSON with one value per line under each supported content type', async () => {
    const lines = `${JSON.stringify(ONE)}\r\n\n${JSON.stringify({ ...ONE, value: 13 })}`;
    for (const type of ['application/x-ndjson', 'application/ndjson; charset=UTF-8', 'application/jsonl']) {
      expect((await send('/v1/values', lines, { 'Content-Type': type })).status).toBe(204);
    }
    expect(bench.sink.stored.map((value) => value.value)).toEqual([12.5, 13, 12.5, 13, 12.5, 13]);
  });

  it('rejects a value larger than 64 KiB, not counting whitespace around a value in NDJSON', async () => {
    const large = { ...ONE, tag: 'T'.repeat(65_536) };
    const answer = await sendValues([ONE, large, ONE]);
    expect([answer.status, answer.body.problems!.map(({ index }) => index)]).toEqual([422, [1]]);
    const line = `${' '.repeat(65_536)}${JSON.stringify(ONE)}${' '.repeat(65_536)}\n`;
    expect((await send('/v1/values', line, { 'Content-Type': 'application/x-ndjson' })).status).toBe(204);
    expect(bench.sink.stored).toHaveLength(1);
  });

  it('rejects the entire request with 422, and lists every problem by index and field', async () => {
    const answer = await sendValues([
      ONE,
      { ...ONE, tag: 'FT-110' },
      { ...ONE, key: 'fow' },
      { ...ONE, value: '12.5' },
      { ...ONE, timestamp: 'yesterday' },
      { ...ONE, status: 'Good' },
      { key: 'flow', value: 1 },
      { tag: 'FT-101', key: 'flow', value: 1, timestmap: AT },
      7,
      { ...ONE, asset: 881 },
      { asset: 1.5, key: 'flow', value: 1 },
      { asset: 1, key: 'no blanks', value: 1 },
      { ...ONE, value: null },
      { ...ONE, timestamp: null },
      { ...ONE, timestamp: -1 },
      { ...ONE, timestamp: 1.5 },
      { ...ONE, value: true },
      { asset: 1, key: 'k', unit: 'bar', value: 1 },
    ]);
    expect(answer.status).toBe(422);
    expect(answer.body.error).toContain('17 values are invalid; nothing in the request was stored');
    expect(answer.body.problems!.map(({ index, field }) => `${index} ${field}`)).toEqual([
      '1 tag',
      '2 key',
      '3 value',
      '4 timestamp',
      '5 status',
      '6 tag',
      '7 timestmap',
      '8 ',
      '9 asset',
      '10 asset',
      '11 key',
      '12 value',
      '13 timestamp',
      '14 timestamp',
      '15 timestamp',
      '16 value',
      '17 unit',
    ]);
    expect(answer.body.problems![0]!.problem).toContain('"FT-101"');
    expect(answer.body.problems![1]!.problem).toContain('"flow"');
    expect([bench.sink.appends, bench.catalogue.size]).toEqual([0, 0]);
  });

  it('creates no series for a rejected request', async () => {
    await sendValues([
      { asset: 5, key: 'new', value: 1 },
      { asset: 5, key: 'new', value: 'x' },
    ]);
    expect(bench.catalogue.size).toBe(0);
  });

  it('lists the first hundred problems and counts the rest', async () => {
    const answer = await sendValues(Array.from({ length: 250 }, () => ({ ...ONE, value: 'x' })));
    expect(answer.body.problems).toHaveLength(100);
    expect(answer.body.count).toBe(250);
  });

  it.each([
    ['empty', ''],
    ['incomplete', '{"values":[{"tag":"FT-101"'],
    ['an array', '[]'],
    ['a number', '1'],
    ['without values', '{"value":[]}'],
    ['without a list of values', '{"values":{}}'],
    ['an object with other members', '{"values":[],"valeus":[]}'],
  ])('responds 400 to a JSON body that is %s', async (_what, body) => {
    const answer = await send('/v1/values', body);
    expect([answer.status, typeof answer.body.error]).toEqual([400, 'string']);
    expect(bench.sink.appends).toBe(0);
  });

  it.each([
    [
      'lines with the content type of a single body',
      'application/json',
      '{"tag":"T","key":"k","value":1}\n{"tag":"T","key":"k","value":2}\n',
      'application/x-ndjson',
    ],
    [
      'a single body with the content type of lines',
      'application/x-ndjson',
      '{"values":[{"tag":"T","key":"k","value":1}]}\n',
      'application/json',
    ],
    [
      'a single body on several lines with the content type of lines',
      'application/x-ndjson',
      '{\n  "values": []\n}\n',
      'application/json',
    ],
    ['an incomplete body', 'application/json', '{\n  "values": [\n', '{"values":['],
    ['a line that is not JSON', 'application/x-ndjson', 'T,k,1\n', 'one value per line'],
  ])('returns a hint for %s', async (_, type, text, hint) => {
    const answer = await send('/v1/values', text, { 'Content-Type': type });
    expect([answer.status, answer.body.hint]).toEqual([400, expect.stringContaining(hint)]);
  });

  it('responds 400 to invalid UTF-8, and to an NDJSON line that is not JSON, with its line number', async () => {
    expect((await send('/v1/values', Buffer.from([0x22, 0xff, 0x22]))).status).toBe(400);
    const answer = await send('/v1/values', `${JSON.stringify(ONE)}\n{"tag":`, {
      'Content-Type': 'application/x-ndjson',
    });
    expect([answer.status, answer.body.error]).toEqual([400, 'line 2 is not JSON']);
    expect(bench.sink.appends).toBe(0);
  });

  it('accepts an empty list, and non-ASCII text in UTF-8 with a byte order mark', async () => {
    expect((await sendValues([])).status).toBe(204);
    const marked = Buffer.from(`\ufeff${JSON.stringify({ values: [{ ...ONE, tag: 'Füllstand' }] })}`);
    const answer = await send('/v1/values', marked);
    expect([answer.status, answer.body.problems![0]!.problem]).toEqual([422, 'tag "Füllstand" is not in tags.yaml']);
  });

  it('responds 415 to the default curl -d content type, and specifies the required header', async () => {
    for (const type of ['application/x-www-form-urlencoded', 'text/csv', 'application/json; charset=latin1']) {
      const answer = await send('/v1/values', JSON.stringify({ values: [ONE] }), { 'Content-Type': type });
      expect([type, answer.status]).toEqual([type, 415]);
      expect(JSON.stringify(answer.body)).toMatch(/application\/json|utf-8/);
    }
    expect((await send('/v1/values', '{}', {})).status).toBe(415);
  });

  it('decompresses gzip, both variants of deflate, and zstd', async () => {
    const plain = Buffer.from(JSON.stringify({ values: [ONE] }));
    const bodies: [string, Buffer][] = [
      ['gzip', gzipSync(plain)],
      ['deflate', deflateSync(plain)],
      ['deflate', deflateRawSync(plain)],
      ['zstd', zstdCompressSync(plain)],
    ];
    for (const [encoding, body] of bodies) {
      const answer = await send('/v1/values', body, { ...JSON_TYPE, 'Content-Encoding': encoding });
      expect([encoding, answer.status]).toEqual([encoding, 204]);
    }
    const broken = await send('/v1/values', gzipSync(plain).subarray(0, 30), {
      ...JSON_TYPE,
      'Content-Encoding': 'gzip',
    });
    expect(broken.status).toBe(400);
    const unknown = await send('/v1/values', plain, { ...JSON_TYPE, 'Content-Encoding': 'br' });
    expect([unknown.status, unknown.headers['accept-encoding']]).toEqual([415, 'gzip, deflate, zstd']);
    expect(bench.sink.stored).toHaveLength(4);
  });

  it('responds 413 to a body over 8 MiB, with or without Content-Length and even if compressed', async () => {
    const most = 8 * 1024 * 1024;
    const fits = Buffer.alloc(most, ' ');
    fits.write(JSON.stringify({ values: [ONE] }));
    expect((await send('/v1/values', fits)).status).toBe(204);
    const big = Buffer.concat([fits, Buffer.from(' ')]);
    expect((await send('/v1/values', big)).status).toBe(413);
    expect((await send('/v1/values', big, { ...JSON_TYPE, 'Transfer-Encoding': 'chunked' })).status).toBe(413);
    const bomb = gzipSync(Buffer.alloc(256 * 1024 * 1024));
    expect(bomb.length).toBeLessThan(1024 * 1024);
    const answer = await send('/v1/values', bomb, { ...JSON_TYPE, 'Content-Encoding': 'gzip' });
    expect([answer.status, push.bytesUnderWay]).toEqual([413, 0]);
  });

  it('rejects an excessive Content-Length before the body arrives', async () => {
    const { socket, received } = await rawConnection();
    socket.write(
      'POST /v1/values HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9000000\r\n\r\n',
    );
    await until(() => received().includes('\r\n\r\n{'));
    expect(received()).toMatch(/^HTTP\/1\.1 413 /);
    expect(received()).toMatch(/connection: close/i);
  });

  it('responds to Expect: 100-continue with 100 only if it would accept the body', async () => {
    const { socket, received } = await rawConnection();
    const body = JSON.stringify({ values: [ONE] });
    const head = `POST /v1/values HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Type: application/json\r\n`;
    socket.write(`${head}Content-Length: ${body.length}\r\n\r\n`);
    await until(() => received().includes('100 Continue'));
    socket.write(body);
    await until(() => received().includes('HTTP/1.1 204'));
    const other = await rawConnection();
    other.socket.write(`${head}Content-Length: 9000000\r\n\r\n`);
    await until(() => other.received().includes('413'));
    expect(other.received()).not.toContain('100 Continue');
  });

  it('responds 503 with Retry-After and stores nothing if the buffer is full or the disk fails', async () => {
    bench.sink.fault = storeFault('buffer.full', 12_300);
    const full = await sendValues([ONE]);
    expect([full.status, full.headers['retry-after']]).toEqual([503, '13']);
    expect(full.body.error).toContain('nothing in the request was stored');
    bench.sink.fault = storeFault('store.unwritable');
    const broken = await sendValues([ONE]);
    expect([broken.status, Number(broken.headers['retry-after']) > 0]).toEqual([503, true]);
    bench.sink.fault = undefined;
    expect((await sendValues([ONE])).status).toBe(204);
    expect([bench.sink.stored.length, bench.counted.get('http')]).toEqual([1, 1]);
  });

  it('responds 500 to an internal error', async () => {
    bench.sink.fault = new TypeError('unforeseen') as never;
    const answer = await sendValues([ONE]);
    expect([answer.status, answer.text.includes('unforeseen')]).toEqual([500, false]);
  });

  it('responds 404 to unknown paths, and 405 with an Allow header to unsupported methods', async () => {
    expect((await send('/v1/value', '{}')).status).toBe(404);
    const answer = await send('/v1/values', undefined, {}, 'GET');
    expect([answer.status, answer.headers.allow]).toEqual([405, 'POST']);
  });

  it('rejects requests from web pages if no token is configured', async () => {
    const answer = await sendValues([ONE], { ...JSON_TYPE, Origin: 'http://evil.example' });
    expect([answer.status, bench.sink.appends]).toEqual([403, 0]);
  });

  it('stores the values of two hundred concurrent requests in one commit', async () => {
    bench.sink.holds = true;
    const agent = new Agent({ keepAlive: true, maxSockets: 200 });
    opened.push({ close: () => agent.destroy() });
    const body = JSON.stringify({ values: [ONE] });
    const answers = Array.from({ length: 200 }, () => send('/v1/values', body, JSON_TYPE, 'POST', { agent }));
    await until(() => bench.sink.waiting === 200);
    expect(bench.sink.stored).toHaveLength(0);
    bench.sink.commit();
    expect(new Set((await Promise.all(answers)).map((answer) => answer.status))).toEqual(new Set([204]));
    expect([bench.sink.commits, bench.sink.stored.length, push.bytesUnderWay]).toEqual([1, 200, 0]);
  });

  it('responds to pipelined requests in order, even if it rejects a later request immediately', async () => {
    bench.sink.holds = true;
    const { socket, received } = await rawConnection();
    const body = JSON.stringify({ values: [ONE] });
    const post = (path: string) =>
      `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
    socket.write(post('/v1/values') + post('/nowhere') + post('/v1/values'));
    await until(() => bench.sink.waiting >= 1);
    expect(received()).toBe('');
    const committing = setInterval(() => bench.sink.commit(), 2);
    await until(() => (received().match(/HTTP\/1\.1 \d+/g) ?? []).length === 3);
    clearInterval(committing);
    expect(received().match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 204', 'HTTP/1.1 404', 'HTTP/1.1 204']);
  });

  it('stores no values from an incomplete body', async () => {
    const { socket } = await rawConnection();
    socket.write(
      'POST /v1/values HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"values":[',
    );
    await until(() => push.bytesUnderWay > 0);
    socket.destroy();
    await until(() => push.bytesUnderWay === 0);
    expect(bench.sink.appends).toBe(0);
  });
});

describe('ingest listener', () => {
  it('terminates requests whose header or body arrives too slowly', async () => {
    const events: unknown[] = [];
    const log = pino({ base: null }, { write: (line: string) => void events.push(JSON.parse(line).event) });
    await listen({ limits: { headerMs: 40, requestMs: 5_000 }, log });
    const slowHead = await rawConnection();
    slowHead.socket.write('POST /v1/values HTTP/1.1\r\nHost:');
    const slowBody = await rawConnection();
    slowBody.socket.write(
      'POST /v1/values HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{',
    );
    await until(() => push.bytesUnderWay > 0);
    await bench.clock.advance(5_000);
    await until(() => slowHead.closed() && slowBody.closed());
    expect(slowBody.received()).toContain('408');
    expect(slowHead.received()).toContain('408');
    expect(push.bytesUnderWay).toBe(0);
    // No other events.
    expect(new Set(events)).toEqual(new Set(['ingest.listening', 'listener.connection_ended']));
  });

  it('returns 503 only while too many bytes are waiting for the disk', async () => {
    await listen({ limits: { bytesUnderWay: 22_400 } });
    bench.sink.holds = true;
    const waiting = [1, 2, 3, 4].map(() => sendValues([ONE]));
    await until(() => bench.sink.waiting === 4);
    const refused = await sendValues([ONE]);
    expect([refused.status, refused.headers['retry-after']]).toEqual([503, '1']);
    bench.sink.commit();
    expect((await Promise.all(waiting)).every((answer) => answer.status === 204)).toBe(true);
    bench.sink.holds = false;
    expect((await sendValues([ONE])).status).toBe(204);
  });

  it('closes the longest-idle connection when a new one exceeds the limit', async () => {
    await listen({ limits: { connections: 2 } });
    const first = await rawConnection();
    await bench.clock.advance(1);
    const second = await rawConnection();
    const third = await rawConnection();
    await until(() => first.closed());
    expect([second.closed(), third.closed(), push.connections]).toEqual([false, false, 2]);
  });
});

describe('ingest host name', () => {
  it('must be loopback or listed in INGEST_HOSTS if no token is configured', async () => {
    await listen();
    const body = JSON.stringify({ values: [ONE] });
    const status = async (host: string) => (await send('/v1/values', body, { ...JSON_TYPE, Host: host })).status;
    expect(await status('evil.example')).toBe(421);
    expect(await status('LocalHost.:1')).toBe(204);
    push.setRules({ token: undefined, hosts: ['plc.example'] });
    expect([await status('plc.example:8470'), await status('evil.example')]).toEqual([204, 421]);
    push.setRules({ token: 'a-token' });
    expect(await status('evil.example')).toBe(401);
    expect(bench.sink.stored).toHaveLength(2);
  });
});

describe('INGEST_TOKEN', () => {
  const body = JSON.stringify({ values: [ONE] });
  const line = 'GW-01 load=1';
  const basic = (pair: string) => ({ Authorization: `Basic ${Buffer.from(pair).toString('base64')}` });

  it('is required, and accepted in any form that clients support', async () => {
    await listen({ rules: { token: 's3cret' } });
    const missing = await send('/v1/values', body);
    expect([missing.status, missing.headers['www-authenticate']]).toEqual([401, 'Bearer realm="tagferry"']);
    for (const value of ['Bearer wrong', 'Bearer s3cret2', 'Bearer', 's3cret', 'Digest s3cret', 'Bearer s3cre']) {
      expect([value, (await send('/v1/values', body, { ...JSON_TYPE, Authorization: value })).status]).toEqual([
        value,
        401,
      ]);
    }
    expect((await send('/v1/values', body, { ...JSON_TYPE, Authorization: 'Bearer s3cret' })).status).toBe(204);
    expect((await send('/api/v2/write', line, { Authorization: 'Token s3cret' })).status).toBe(204);
    expect((await send('/write', line, basic('telegraf:s3cret'))).status).toBe(204);
    expect((await send('/write', line, basic('telegraf:wrong'))).status).toBe(401);
    expect((await send('/write?u=x&p=s3cret', line, {})).status).toBe(204);
    expect((await send('/v1/values?p=s3cret', body)).status).toBe(401);
    expect(bench.sink.stored).toHaveLength(4);
  });

  it('allows requests from web pages that send it', async () => {
    await listen({ rules: { token: 's3cret' } });
    const headers = { ...JSON_TYPE, Authorization: 'Bearer s3cret', Origin: 'http://panel.plant' };
    expect((await sendValues([ONE], headers)).status).toBe(204);
  });
});

describe('line protocol over HTTP', () => {
  beforeEach(() => listen());

  it('accepts Telegraf requests for InfluxDB 1', async () => {
    const created = await send('/query', 'q=CREATE+DATABASE+%22telegraf%22', {
      'Content-Type': 'application/x-www-form-urlencoded',
    });
    expect([created.status, created.text.trim()]).toEqual([200, '{"results":[{"statement_id":0}]}']);
    const lines =
      'FT-101,host=gw flow=12.5,temperature=21i 1795219200123456789\nGW-01,host=gw load=0.5 1795219200000000000\n';
    const headers = {
      'Content-Type': 'text/plain; charset=utf-8',
      'Content-Encoding': 'gzip',
      'User-Agent': 'Telegraf/1.30',
    };
    const answer = await send('/write?consistency=any&db=telegraf&precision=ns', gzipSync(lines), headers);
    expect([answer.status, answer.headers['x-influxdb-version']]).toEqual([204, '1.8.10']);
    expect(bench.sink.stored.map(({ address, timeMs, value }) => [address, timeMs, value])).toEqual([
      ['881/process/flow/#12', 1795219200123, 12.5],
      ['881//temperature/degree_celsius', 1795219200123, 21],
      ['900//load/', 1795219200000, 0.5],
    ]);
    expect(bench.counted.get('influx')).toBe(3);
  });

  it('supports the precisions of both versions, and uses the arrival time for lines without a timestamp', async () => {
    const times = {
      s: '1795219200',
      ms: '1795219200000',
      us: '1795219200000000',
      u: '1795219200000000',
      n: '1795219200000000000',
      ns: '1795219200000000000',
      m: '29920320',
      h: '498672',
      '%C2%B5': '1795219200000000',
    };
    for (const [precision, time] of Object.entries(times)) {
      expect([precision, (await send(`/write?precision=${precision}`, `GW-01 load=1 ${time}`, {})).status]).toEqual([
        precision,
        204,
      ]);
    }
    expect(new Set(bench.sink.stored.map((value) => value.timeMs))).toEqual(new Set([AT_MS]));
    expect((await send('/api/v2/write?precision=fortnight', 'GW-01 load=1', {})).status).toBe(400);
    bench.sink.stored.length = 0;
    await send('/api/v2/write?org=o&bucket=b', 'GW-01 load=1', {});
    expect(bench.sink.stored[0]).toMatchObject({ timeMs: bench.clock.wallMs(), stampedHere: true });
  });

  it('identifies problems by value index instead of line, and stores nothing', async () => {
    const lines =
      'FT-101 flow=1,temperature=2\nGW-01 load="high"\nGW-01 load=99999999999999999i\nFT-102 flow=1\nGW-01 load=1 9999999999999999999';
    const answer = await send('/api/v2/write', lines, {});
    expect(answer.status).toBe(422);
    expect(answer.body.problems!.map(({ index, field }) => `${index} ${field}`)).toEqual([
      '2 value',
      '3 value',
      '4 tag',
    ]);
    expect(answer.body).toMatchObject({ code: 'unprocessable entity' });
    expect(String(answer.body.message)).toContain('value 2, value: the field "load" of "GW-01" is a string');
    expect(bench.sink.appends).toBe(0);
  });

  it('reports an invalid line in the error format of each version', async () => {
    const one = await send('/write', 'GW-01 load=1\nGW-01', {});
    expect([one.status, one.body.error, one.headers['x-influxdb-error']]).toEqual([
      400,
      'unable to parse: line 2: fields are missing',
      'line 2: fields are missing',
    ]);
    const two = await send('/api/v2/write', 'GW-01 load=', {});
    expect([two.status, two.body.code, two.body.message]).toEqual([400, 'invalid', 'line 1: a field has no value']);
    expect(bench.sink.appends).toBe(0);
  });

  it('responds to ping and health requests as InfluxDB clients expect', async () => {
    expect((await send('/ping', undefined, {}, 'GET')).status).toBe(204);
    expect((await send('/ping', undefined, {}, 'HEAD')).status).toBe(204);
    expect((await send('/ping?verbose=true', undefined, {}, 'GET')).body).toEqual({ version: '1.8.10' });
    expect((await send('/health', undefined, {}, 'GET')).body).toMatchObject({ status: 'pass' });
    expect((await send('/query?q=SELECT+1', undefined, {}, 'GET')).status).toBe(400);
    expect((await send('/write', undefined, {}, 'GET')).headers.allow).toBe('POST');
  });
});

describe('ingest listener', () => {
  it('completes pending requests on shutdown, rejects new requests, and closes keep-alive connections', async () => {
    await listen();
    bench.sink.holds = true;
    const idle = await rawConnection();
    idle.socket.write('GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await until(() => idle.received().includes('204'));
    const agent = new Agent({ keepAlive: true });
    const body = JSON.stringify({ values: [ONE] });
    const waiting = send('/v1/values', body, JSON_TYPE, 'POST', { agent });
    await until(() => bench.sink.waiting === 1);
    let stopped = false;
    const stopping = push.stop().then(() => {
      stopped = true;
    });
    await until(() => idle.closed());
    await expect(sendValues([ONE])).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    expect(stopped).toBe(false);
    bench.sink.commit();
    const answer = await waiting;
    expect([answer.status, answer.headers.connection]).toEqual([204, 'close']);
    await stopping;
    await push.stop();
    expect(bench.sink.stored).toHaveLength(1);
  });

  it('aborts requests that exceed the shutdown time limit', async () => {
    await listen({ limits: { stopMs: 5_000 } });
    const slow = await rawConnection();
    slow.socket.write(
      'POST /v1/values HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{',
    );
    await until(() => push.bytesUnderWay > 0);
    const stopping = push.stop();
    await bench.clock.advance(5_000);
    await stopping;
    await until(() => slow.closed());
  });

  it('opens a socket, replaces a stale one, and fails if the socket is in use', async () => {
    const path = join(mkdtempSync(join(tmpdir(), 'tagferry-')), 'in.sock');
    const crashed = createServer();
    crashed.listen(path);
    await once(crashed, 'listening');
    await expect(listen({ listen: { path }, limits: AT_ONCE })).rejects.toMatchObject({
      code: 'ingest.address_in_use',
    });
    // As after kill -9: the file without a listener.
    const { renameSync } = await import('node:fs');
    renameSync(path, `${path}.kept`);
    crashed.close();
    await once(crashed, 'close');
    renameSync(`${path}.kept`, path);
    await listen({ listen: { path } });
    expect(statSync(path).mode & 0o777).toBe(0o660);
    const answer = await send('/v1/values', JSON.stringify({ values: [ONE] }), JSON_TYPE, 'POST', { socketPath: path });
    expect(answer.status).toBe(204);
    await push.stop();
    expect(existsSync(path)).toBe(false);
    writeFileSync(path, 'another file');
    await expect(listen({ listen: { path }, limits: AT_ONCE })).rejects.toMatchObject({
      code: 'ingest.address_in_use',
    });
    expect(existsSync(path)).toBe(true);
  });

  it('listens on IPv6, and fails with a hint if the port is in use', async () => {
    await listen({ listen: { host: '::1', port: 0 } });
    const six = await send('/v1/values', JSON.stringify({ values: [ONE] }), JSON_TYPE, 'POST', { host: '::1' });
    expect(six.status).toBe(204);
    const taken = new HttpPush({
      listen: { host: '::1', port },
      rules: { token: undefined },
      intake: bench.intake,
      clock: bench.clock,
      log: silentLogger(),
      limits: AT_ONCE,
    });
    await expect(taken.start()).rejects.toMatchObject({
      code: 'ingest.address_in_use',
      hint: expect.stringContaining('INGEST_LISTEN'),
    });
  });
});
