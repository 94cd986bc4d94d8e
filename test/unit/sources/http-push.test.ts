import { once } from 'node:events';
import { existsSync, mkdtempSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { Agent } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { headOf, JSON_TYPE, NDJSON_TYPE, PushListener } from './push-listener.ts';
import { PLANT, storeFault, until } from './sink-double.ts';

const MiB = 1024 * 1024;
const AT = '2026-11-21T00:00:00.000Z';
const AT_MS = Date.parse(AT);
const ONE = { tag: 'FT-101', key: 'flow', value: 12.5, timestamp: AT, status: 'good' };
const FORMATS = [
  ['JSON', (values: unknown[], query = '') => listener.values(values, JSON_TYPE, query)],
  ['NDJSON', (values: unknown[], query = '') => listener.send(`/v1/values${query}`, linesOf(values), NDJSON_TYPE)],
] as const;

let listener: PushListener;

const linesOf = (values: readonly unknown[]) => values.map((value) => `${JSON.stringify(value)}\n`).join('');

beforeEach(() => {
  listener = new PushListener();
});
afterEach(() => listener.dispose());

describe('POST /v1/values', () => {
  beforeEach(() => listener.listen());

  it('responds 204 without a body once every value is on disk', async () => {
    const { sink, counted } = listener.bench;
    sink.holds = true;
    let status = 0;
    const response = listener.values([ONE, { tag: 'GW-01', key: 'LOAD', value: -0.25, timestamp: AT_MS + 1 }]);
    void response.then((received) => {
      status = received.status;
    });
    await until(() => sink.waiting === 1);
    await listener.send('/ping', undefined, {}, { method: 'GET' });
    expect([status, counted.size]).toEqual([0, 0]);
    sink.commit();
    expect([(await response).status, (await response).text]).toEqual([204, '']);
    expect(sink.stored).toEqual([
      { address: '881/process/flow/#12', timeMs: AT_MS, value: 12.5, status: 1, stampedHere: false },
      { address: '900//load/', timeMs: AT_MS + 1, value: -0.25, status: 0, stampedHere: false },
    ]);
    expect(counted.get('http')).toBe(2);
  });

  it('accepts an asset that is not in tags.yaml', async () => {
    await listener.values([
      { asset: 77, unit: 12, group: 'Process', key: 'Level', value: 1, timestamp: AT },
      { asset: 77, unit: { code: 'percent' }, key: 'level', value: 2, timestamp: AT },
      { asset: 77, key: 'level', value: 3, timestamp: AT },
    ]);
    expect(listener.addresses).toEqual(['77/process/level/#12 1', '77//level/percent 2', '77//level/ 3']);
  });

  it('uses the arrival time for a value without a timestamp', async () => {
    await listener.values([{ tag: 'GW-01', key: 'load', value: 1 }]);
    const timeMs = listener.bench.clock.wallMs();
    expect(listener.bench.sink.stored).toMatchObject([{ timeMs, stampedHere: true }]);
  });

  it('accepts NDJSON under each supported content type, with empty lines, CRLF and a missing final line feed', async () => {
    const lines = `${JSON.stringify(ONE)}\r\n\n${JSON.stringify({ ...ONE, value: 13 })}`;
    for (const type of ['application/x-ndjson', 'application/ndjson; charset=UTF-8', 'application/jsonl']) {
      const headers = { 'Content-Type': type, 'Transfer-Encoding': 'chunked' };
      expect((await listener.send('/v1/values', lines, headers)).status).toBe(204);
    }
    expect(listener.stored).toEqual([12.5, 13, 12.5, 13, 12.5, 13]);
  });

  it.each(FORMATS)('rejects a %s request with 422, and lists every problem by index and field', async (_, send) => {
    const wrong: [unknown, string][] = [
      [{ ...ONE, tag: 'FT-110' }, 'tag'],
      [{ ...ONE, key: 'fow' }, 'key'],
      [{ ...ONE, value: '12.5' }, 'value'],
      [{ ...ONE, timestamp: 'yesterday' }, 'timestamp'],
      [{ ...ONE, status: 'Good' }, 'status'],
      [{ key: 'flow', value: 1 }, 'tag'],
      [{ tag: 'FT-101', key: 'flow', value: 1, timestmap: AT }, 'timestmap'],
      [7, ''],
      [{ ...ONE, asset: 881 }, 'asset'],
      [{ asset: 1.5, key: 'flow', value: 1 }, 'asset'],
      [{ asset: 1, key: 'no blanks', value: 1 }, 'key'],
      [{ ...ONE, value: null }, 'value'],
      [{ ...ONE, timestamp: null }, 'timestamp'],
      [{ ...ONE, timestamp: -1 }, 'timestamp'],
      [{ ...ONE, timestamp: 1.5 }, 'timestamp'],
      [{ ...ONE, value: true }, 'value'],
      [{ asset: 1, key: 'k', unit: 'bar', value: 1 }, 'unit'],
    ];
    const { status, body } = await send([ONE, ...wrong.map(([value]) => value)]);
    expect([status, body.error]).toEqual([422, expect.stringContaining('17 values are invalid; nothing in')]);
    expect(body.problems!.map(({ index, field }) => [index, field])).toEqual(
      wrong.map(([, field], at) => [at + 1, field]),
    );
    expect(body.problems![0]!.problem).toContain('did you mean "FT-101"?');
    expect([listener.bench.sink.appends, listener.bench.catalogue.size]).toEqual([0, 0]);
  });

  it.each(FORMATS)('stores the valid values of a %s request with partial=true', async (_, send) => {
    const values = [ONE, { ...ONE, tag: 'nobody' }, 7, { ...ONE, value: 13 }];
    const part = await send(values, '?partial=true');
    expect([part.status, part.body]).toMatchObject([
      200,
      { accepted: 2, refused: 2, problems: [{ index: 1 }, { index: 2 }] },
    ]);
    const all = await send([ONE], '?partial=true');
    expect([all.status, all.body]).toEqual([200, { accepted: 1, refused: 0, problems: [] }]);
    const none = await send([7], '?partial=true');
    expect([none.status, none.body]).toMatchObject([422, { accepted: 0, refused: 1, problems: [{ index: 0 }] }]);
    expect((await send(values, '?partial=false')).status).toBe(422);
    expect((await send([ONE], '?partial=yes')).status).toBe(400);
    expect(listener.stored).toEqual([12.5, 13, 12.5]);
  });

  it('rejects an NDJSON line that is not JSON with its number, and with partial=true only this line', async () => {
    const text = `${linesOf([ONE])}\n{"tag":\n${linesOf([ONE])}`;
    const { status, body } = await listener.send('/v1/values', text, NDJSON_TYPE);
    expect([status, body.error, listener.stored]).toEqual([400, 'line 3 is not JSON', []]);
    const part = await listener.send('/v1/values?partial=true', text, NDJSON_TYPE);
    expect(part.body).toMatchObject({
      accepted: 2,
      refused: 1,
      problems: [{ index: 1, problem: 'line 3 is not JSON' }],
    });
  });

  it('rejects an NDJSON line larger than 64 KiB, not counting surrounding whitespace', async () => {
    const values = linesOf([ONE, { ...ONE, tag: 'T'.repeat(65_536) }, ONE]);
    const { status, body } = await listener.send('/v1/values', values, NDJSON_TYPE);
    expect([status, body.problems!.map(({ index }) => index)]).toEqual([422, [1]]);
    const padded = `${' '.repeat(65_536)}${JSON.stringify(ONE)}${' '.repeat(65_536)}\n`;
    expect((await listener.send('/v1/values', padded, NDJSON_TYPE)).status).toBe(204);
  });

  it('lists the first hundred problems and counts the rest', async () => {
    const { body } = await listener.values(Array.from({ length: 250 }, () => ({ ...ONE, value: 'x' })));
    expect([body.problems!.length, body.count]).toEqual([100, 250]);
  });

  it.each([
    ['an empty body', JSON_TYPE, '', '{"values":['],
    ['an incomplete body', JSON_TYPE, '{"values":[{"tag":"FT-101"', '{"values":['],
    ['a list', JSON_TYPE, '[]', '{"values":['],
    ['a body without a list of values', JSON_TYPE, '{"values":{}}', '{"values":['],
    ['a body with other members', JSON_TYPE, '{"values":[],"valeus":[]}', '{"values":['],
    ['NDJSON sent as JSON', JSON_TYPE, '{"tag":"T","key":"k","value":1}\n{}\n', 'application/x-ndjson'],
    ['JSON sent as NDJSON', NDJSON_TYPE, '{"values":[{"tag":"T"}]}\n', 'application/json'],
    ['JSON on several lines sent as NDJSON', NDJSON_TYPE, '{\n  "values": []\n}\n', 'application/json'],
    ['a line that is not JSON', NDJSON_TYPE, 'T,k,1\n', 'one value per line'],
  ])('responds 400 with a hint to %s', async (_, type, text, hint) => {
    const { status, body } = await listener.send('/v1/values', text, type);
    expect([status, body.hint]).toEqual([400, expect.stringContaining(hint)]);
  });

  it('responds 400 to text that is not UTF-8, and accepts a byte order mark', async () => {
    expect((await listener.send('/v1/values', Buffer.from([0x22, 0xff, 0x22]), JSON_TYPE)).status).toBe(400);
    const marked = Buffer.from(`\ufeff${JSON.stringify({ values: [{ ...ONE, tag: 'Füllstand' }] })}`);
    const { body } = await listener.send('/v1/values', marked, JSON_TYPE);
    expect(body.problems![0]!.problem).toBe('tag "Füllstand" is not in tags.yaml');
    expect((await listener.values([])).status).toBe(204);
  });

  it('responds 415 to other content types, and specifies the required header', async () => {
    for (const type of ['application/x-www-form-urlencoded', 'text/csv', 'application/json; charset=latin1']) {
      const { status, text } = await listener.values([ONE], { 'Content-Type': type });
      expect([type, status, text]).toEqual([type, 415, expect.stringMatching(/application\/json|utf-8/)]);
    }
    expect((await listener.send('/v1/values', '{}')).status).toBe(415);
  });

  it('rejects implausible timestamps with a problem and a hint, unless the gateway clock is not set', async () => {
    const { clock, times } = listener.bench;
    times.earliestMs = Date.UTC(2000, 0, 1);
    const at = (timestamp: unknown) => listener.values([{ ...ONE, timestamp }]);
    const nowMs = clock.wallMs();
    for (const [timestamp, problem] of [
      [8, "1970-01-01T00:00:00.008Z is before 2000-01-01: check the sender's clock"],
      ['1999-12-31T23:59:59Z', 'is before 2000-01-01'],
      [nowMs + 86_400_001, 'is more than a day ahead'],
      [Math.floor(nowMs / 1_000), 'the number appears to be in s, use milliseconds'],
      [nowMs * 1_000, 'the number appears to be in us, use milliseconds'],
    ] as const) {
      const { status, body } = await at(timestamp);
      expect([timestamp, status, body.problems![0]!.problem]).toEqual([
        timestamp,
        422,
        expect.stringContaining(problem),
      ]);
    }
    for (const timestamp of ['2000-01-01T00:00:00Z', nowMs + 86_400_000])
      expect((await at(timestamp)).status).toBe(204);
    clock.jumpWall(5_000 - nowMs);
    expect((await at(1_000)).status).toBe(204);
  });

  it('limits new series to MAX_SERIES', async () => {
    listener.bench.intake.reload(PLANT, false, 1);
    const values = [1, 2].map((asset) => ({ asset, key: 'k', value: asset }));
    expect((await listener.values(values)).body.problems).toMatchObject([
      { index: 1, problem: expect.stringContaining('MAX_SERIES') },
    ]);
    const part = await listener.values(values.toReversed(), JSON_TYPE, '?partial=true');
    expect([part.body.accepted, part.body.refused]).toEqual([1, 1]);
  });
});

describe('request body', () => {
  beforeEach(() => listener.listen());

  it('is decompressed from gzip, both variants of deflate, and zstd', async () => {
    const plain = Buffer.from(JSON.stringify({ values: [ONE] }));
    const send = (body: Buffer, encoding: string) =>
      listener.send('/v1/values', body, { ...JSON_TYPE, 'Content-Encoding': encoding });
    expect((await send(gzipSync(plain), 'gzip')).status).toBe(204);
    expect((await send(deflateSync(plain), 'deflate')).status).toBe(204);
    expect((await send(deflateRawSync(plain), 'deflate')).status).toBe(204);
    expect((await send(zstdCompressSync(plain), 'zstd')).status).toBe(204);
    expect((await send(gzipSync(plain).subarray(0, 30), 'gzip')).status).toBe(400);
    const unknown = await send(plain, 'br');
    expect([unknown.status, unknown.headers['accept-encoding']]).toEqual([415, 'gzip, deflate, zstd']);
    expect(listener.stored).toHaveLength(4);
  });

  it.each([
    ['2 MiB of JSON', '/v1/values', JSON_TYPE, JSON.stringify({ values: [ONE] }), 2 * MiB],
    ['8 MiB of NDJSON', '/v1/values', NDJSON_TYPE, linesOf([ONE]), 8 * MiB],
    ['8 MiB of line protocol', '/write', {}, 'FT-101 flow=1\n', 8 * MiB],
  ])('is limited to %s, with or without Content-Length and even if compressed', async (_, path, type, text, bytes) => {
    const largest = Buffer.alloc(bytes, ' ');
    largest.write(text);
    expect((await listener.send(path, largest, type)).status).toBe(204);
    const larger = Buffer.concat([largest, Buffer.from(' ')]);
    expect((await listener.send(path, larger, type)).status).toBe(413);
    expect((await listener.send(path, larger, { ...type, 'Transfer-Encoding': 'chunked' })).status).toBe(413);
    const bomb = gzipSync(Buffer.alloc(64 * MiB));
    const { status } = await listener.send(path, bomb, { ...type, 'Content-Encoding': 'gzip' });
    expect([status, listener.push.bytesUnderWay]).toEqual([413, 0]);
  });

  it('is rejected before it arrives if its Content-Length is too large', async () => {
    for (const expects of ['', 'Expect: 100-continue\r\n']) {
      const { socket, received } = await listener.connect();
      socket.write(headOf(9_000_000, expects));
      await until(() => received().includes('\r\n\r\n{'));
      expect(received()).toMatch(/^HTTP\/1\.1 413 [\s\S]*connection: close/i);
    }
  });

  it('is requested with 100 Continue if the client expects it', async () => {
    const { socket, received } = await listener.connect();
    const body = JSON.stringify({ values: [ONE] });
    socket.write(headOf(body.length, 'Expect: 100-continue\r\n'));
    await until(() => received().includes('100 Continue'));
    socket.write(body);
    await until(() => received().includes('HTTP/1.1 204'));
  });

  it('stores nothing and releases its memory if it is incomplete', async () => {
    const { socket } = await listener.connect();
    socket.write(`${headOf(500)}{"values":[`);
    await until(() => listener.push.bytesUnderWay > 0);
    socket.destroy();
    await until(() => listener.push.bytesUnderWay === 0);
    expect(listener.bench.sink.appends).toBe(0);
  });
});

describe('ingest response', () => {
  it('is 503 with Retry-After if the buffer is full or the disk fails, and nothing is stored', async () => {
    await listener.listen();
    const { sink, counted } = listener.bench;
    sink.fault = storeFault('buffer.full');
    for (const send of [() => listener.values([ONE]), () => listener.lines('FT-101 flow=1\nx y=1')]) {
      const { status, headers, body } = await send();
      expect([status, Number(headers['retry-after']) > 0]).toEqual([503, true]);
      expect(body.error).toContain('nothing in the request was stored');
    }
    sink.fault = storeFault('store.unwritable');
    expect(Number((await listener.values([ONE])).headers['retry-after'])).toBeGreaterThan(0);
    sink.fault = undefined;
    expect((await listener.values([ONE])).status).toBe(204);
    expect([sink.stored.length, counted.get('http')]).toEqual([1, 1]);
  });

  it('is 503 only while too many bytes wait for the disk', async () => {
    await listener.listen({}, { bytesUnderWay: 40_000 });
    const { sink } = listener.bench;
    sink.holds = true;
    const waiting = Array.from({ length: 7 }, () => listener.lines('FT-101 flow=1'));
    await until(() => sink.waiting === 7);
    const refused = await listener.values([ONE]);
    expect([refused.status, refused.headers['retry-after']]).toEqual([503, '1']);
    sink.commit();
    expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual(waiting.map(() => 204));
    sink.holds = false;
    expect((await listener.values([ONE])).status).toBe(204);
  });

  it('is 500 for an internal error, without its message', async () => {
    await listener.listen();
    listener.bench.sink.fault = new TypeError('unforeseen') as never;
    const { status, text } = await listener.values([ONE]);
    expect([status, text.includes('unforeseen')]).toEqual([500, false]);
  });

  it('is 404 for unknown paths, and 405 with an Allow header for unsupported methods', async () => {
    await listener.listen();
    expect((await listener.send('/v1/value', '{}')).status).toBe(404);
    const { status, headers } = await listener.send('/v1/values', undefined, {}, { method: 'GET' });
    expect([status, headers.allow]).toEqual([405, 'POST']);
  });
});

describe('ingest log', () => {
  it('contains one event per kind of rejection', async () => {
    const lines: { event: string; [field: string]: unknown }[] = [];
    const log = pino({ base: null }, { write: (line: string) => void lines.push(JSON.parse(line)) });
    await listener.listen({}, { log });
    await listener.lines('FT-101 flow=1\nx y=2');
    await listener.values([7]);
    listener.bench.sink.fault = storeFault('buffer.full');
    await listener.values([ONE]);
    listener.bench.sink.fault = undefined;
    await listener.values([ONE]);
    const shown = lines.map(({ event, status, accepted, refused }) => [event, status ?? accepted, refused]);
    expect(shown).toEqual([
      ['ingest.listening', undefined, undefined],
      ['ingest.taken_in_part', 1, 1],
      ['ingest.refused', 422, undefined],
      ['ingest.store_refused', 503, undefined],
      ['ingest.store_refused_over', undefined, undefined],
    ]);
  });
});

describe('ingest access', () => {
  it('requires a loopback host name or one in INGEST_HOSTS if no token is configured', async () => {
    await listener.listen();
    const statusOf = async (Host: string) => (await listener.values([ONE], { ...JSON_TYPE, Host })).status;
    expect([await statusOf('evil.example'), await statusOf('LocalHost.:1')]).toEqual([421, 204]);
    listener.push.setRules({ token: undefined, hosts: ['plc.example'] });
    expect([await statusOf('plc.example:8470'), await statusOf('evil.example')]).toEqual([204, 421]);
    listener.push.setRules({ token: 'a-token' });
    expect(await statusOf('evil.example')).toBe(401);
    expect(listener.stored).toHaveLength(2);
  });

  it('is denied to web pages if no token is configured', async () => {
    await listener.listen();
    const headers = { ...JSON_TYPE, Origin: 'http://panel.plant' };
    expect((await listener.values([ONE], headers)).status).toBe(403);
    listener.push.setRules({ token: 's3cret' });
    expect((await listener.values([ONE], { ...headers, Authorization: 'Bearer s3cret' })).status).toBe(204);
  });

  it('requires INGEST_TOKEN in any form that clients support', async () => {
    await listener.listen({ token: 's3cret' });
    const basic = (pair: string) => `Basic ${Buffer.from(pair).toString('base64')}`;
    const statusOf = async (path: string, Authorization?: string) => {
      const body = path.startsWith('/v1') ? JSON.stringify({ values: [ONE] }) : 'GW-01 load=1';
      const headers = { ...JSON_TYPE, ...(Authorization === undefined ? {} : { Authorization }) };
      return (await listener.send(path, body, headers)).status;
    };
    const wrong = ['Bearer wrong', 'Bearer s3cret2', 'Bearer', 's3cret', 'Digest s3cret', basic('x:wrong'), undefined];
    for (const header of wrong) expect([header, await statusOf('/v1/values', header)]).toEqual([header, 401]);
    expect(await statusOf('/v1/values', 'Bearer s3cret')).toBe(204);
    expect(await statusOf('/api/v2/write', 'Token s3cret')).toBe(204);
    expect(await statusOf('/write', basic('telegraf:s3cret'))).toBe(204);
    expect(await statusOf('/write?u=x&p=s3cret')).toBe(204);
    expect(await statusOf('/v1/values?p=s3cret')).toBe(401);
    const { headers } = await listener.values([ONE]);
    expect(headers['www-authenticate']).toBe('Bearer realm="tagferry"');
  });
});

describe('ingest listener', () => {
  it('completes pending requests after a stop, responds to new ones with 503, and accepts values after a restart', async () => {
    await listener.listen();
    const { sink } = listener.bench;
    sink.holds = true;
    const idle = await listener.connect();
    idle.socket.write('GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await until(() => idle.received().includes('204'));
    const agent = new Agent({ keepAlive: true });
    const waiting = listener.send('/v1/values', JSON.stringify({ values: [ONE] }), JSON_TYPE, { agent });
    await until(() => sink.waiting === 1);
    const stopping = listener.push.stop();
    expect((await listener.values([ONE])).status).toBe(503);
    sink.commit();
    expect((await waiting).status).toBe(204);
    await stopping;
    sink.holds = false;
    listener.push.start();
    expect((await listener.values([ONE])).status).toBe(204);
    expect(idle.closed()).toBe(false);
    await listener.stop();
    await until(() => idle.closed());
    await expect(listener.values([ONE])).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });

  it('opens a socket, replaces a stale one, and fails if the socket is in use', async () => {
    const path = join(mkdtempSync(join(tmpdir(), 'tagferry-')), 'in.sock');
    const listen = (listenRetries = 0) => listener.listen({}, { address: { path }, limits: { listenRetries } });
    const crashed = createServer();
    crashed.listen(path);
    await once(crashed, 'listening');
    await expect(listen()).rejects.toMatchObject({ code: 'ingest.address_in_use' });
    // As after kill -9: the file without a listener.
    renameSync(path, `${path}.kept`);
    crashed.close();
    await once(crashed, 'close');
    renameSync(`${path}.kept`, path);
    await listen();
    expect(statSync(path).mode & 0o777).toBe(0o660);
    const body = JSON.stringify({ values: [ONE] });
    expect((await listener.send('/v1/values', body, JSON_TYPE, { socketPath: path })).status).toBe(204);
    await listener.stop();
    expect(existsSync(path)).toBe(false);
    writeFileSync(path, 'another file');
    await expect(listen()).rejects.toMatchObject({ code: 'ingest.address_in_use' });
    expect(existsSync(path)).toBe(true);
  });
});
