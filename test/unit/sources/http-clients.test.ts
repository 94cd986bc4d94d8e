import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { PushListener } from './push-listener.ts';
import { until } from './sink-double.ts';

let listener: PushListener;

beforeEach(() => {
  listener = new PushListener();
});
afterEach(() => listener.dispose());

const HOST = 'Host: localhost\r\n';
const LINE = 'FT-101 flow=12.5 1795219200000000000';
const GZIPPED = gzipSync(LINE);

/** Head of a line protocol request. `more`: header lines with their line endings. */
const head = (version: string, more: string) => `POST /write HTTP/${version}\r\n${more}\r\n`;
const sized = (length: number, more = '') => head('1.1', `${HOST}${more}Content-Length: ${length}\r\n`);
const request = (text: string, more = '') => sized(Buffer.byteLength(text), more) + text;
const chunks = (...texts: (string | Buffer)[]) => [
  ...texts.flatMap((text) => [`${Buffer.byteLength(text).toString(16)}\r\n`, text, '\r\n']),
  '0\r\n\r\n',
];

/** Sends the parts one after the other, and returns what was received once it contains the expected number of responses. */
async function exchange(parts: readonly (string | Buffer)[], responses = 1): Promise<string> {
  await listener.listen();
  const { socket, received, closed } = await listener.connect();
  for (const part of parts) {
    await new Promise<void>((resolve) => {
      socket.write(part, () => resolve());
    });
  }
  await until(() => closed() || finalHeads(received()).length >= responses);
  return received();
}

/** Status lines of final responses. */
const finalHeads = (text: string) => text.match(/^HTTP\/1\.1 [2-5]\d\d/gm) ?? [];

describe('HTTP client', () => {
  it.each([
    ['that uses HTTP/1.0 without a host', [head('1.0', `Content-Length: ${LINE.length}\r\n`), LINE]],
    [
      'that sends chunks',
      [head('1.1', `${HOST}Transfer-Encoding: chunked\r\n`), ...chunks(LINE.slice(0, 9), LINE.slice(9))],
    ],
    [
      'that sends chunks with extensions and trailers',
      [
        head('1.1', `${HOST}Transfer-Encoding: chunked\r\nTrailer: X\r\n`),
        `${LINE.length.toString(16).toUpperCase()};a=b\r\n${LINE}\r\n0\r\nX: 1\r\n\r\n`,
      ],
    ],
    ['that sends single bytes', [...request(LINE)]],
    ['that compresses with gzip', [sized(GZIPPED.length, 'Content-Encoding: gzip\r\n'), GZIPPED]],
    [
      'that compresses chunks with gzip',
      [
        head('1.1', `${HOST}Content-Encoding: GZIP\r\nTransfer-Encoding: chunked\r\n`),
        ...chunks(GZIPPED.subarray(0, 5), GZIPPED.subarray(5)),
      ],
    ],
    [
      'that compresses in several parts',
      [
        sized(gzipSync(LINE.slice(0, 20)).length + gzipSync(LINE.slice(20)).length, 'Content-Encoding: x-gzip\r\n'),
        gzipSync(LINE.slice(0, 20)),
        gzipSync(LINE.slice(20)),
      ],
    ],
    ['that ends lines with CRLF', [request(`${LINE}\r\n`)]],
    ['that sends an empty line before its request', ['\r\n', request(LINE)]],
    [
      'that addresses its request to a proxy',
      [request(LINE).replace('/write', 'http://localhost:8086/write?db=plant')],
    ],
    [
      'that encodes its query',
      [request(LINE).replace('/write', '/api/v2/write?org=a%20b&bucket=a+b%2Fc&precision=n%73')],
    ],
    [
      'that writes header names in lower case',
      [request(LINE).replace('Content-Length', 'content-length').replace('Host', 'host')],
    ],
  ])('%s receives 204', async (_what, parts) => {
    expect(await exchange(parts)).toMatch(/^HTTP\/1\.1 204 /);
    expect(listener.addresses).toEqual(['881/process/flow/#12 12.5']);
  });

  it('can escape spaces, commas and equals signs in line protocol', async () => {
    const text =
      'FT-101,line\\ name=press\\ hall\\,\\ south flow=1 1795219200000000000\r\nGW-01,a\\=b=c\\=d load=2\r\n';
    expect(await exchange([request(text)])).toMatch(/^HTTP\/1\.1 204 /);
    expect(listener.addresses).toEqual(['881/process/flow/#12 1', '900//load/ 2']);
  });

  it.each(['', 'Connection: keep-alive\r\n'])(
    'that uses HTTP/1.0 learns that its connection is closed after the response (%j)',
    async (more) => {
      await listener.listen();
      const { socket, received, closed } = await listener.connect();
      socket.write(head('1.0', `${more}Content-Length: ${LINE.length}\r\n`) + LINE);
      await until(closed);
      expect(received()).toMatch(/^HTTP\/1\.1 204 .*Connection: close\r\n/s);
    },
  );

  it('that keeps its connection learns how long it stays open', async () => {
    const received = await exchange([request(LINE), '\r\n', request(LINE, 'Connection: keep-alive\r\n')], 2);
    expect(received).toMatch(/Connection: keep-alive\r\n/i);
    const seconds = [...received.matchAll(/^Keep-Alive: timeout=(\d+)/gim)].map(([, one]) => Number(one));
    expect(seconds.length).toBe(2);
    // Collectors post once a minute or more often.
    expect(seconds.every((one) => one > 60)).toBe(true);
    expect(listener.stored.length).toBe(2);
  });

  it('keeps its connection after a rejected request', async () => {
    const received = await exchange([request('no line'), request('FT-101 nothing=1'), request(LINE)], 3);
    expect(finalHeads(received)).toEqual(['HTTP/1.1 400', 'HTTP/1.1 400', 'HTTP/1.1 204']);
    expect(received).not.toMatch(/Connection: close/i);
  });

  it('can send the next request before it receives the response', async () => {
    const received = await exchange([request(LINE) + request('GW-01 load=1') + request('GW-01 load=2')], 3);
    expect(finalHeads(received)).toEqual(['HTTP/1.1 204', 'HTTP/1.1 204', 'HTTP/1.1 204']);
    expect(listener.stored).toEqual([12.5, 1, 2]);
  });

  it('learns that its connection is closed if the listener stops during a request', async () => {
    await listener.listen();
    listener.bench.sink.holds = true;
    const { socket, received, closed } = await listener.connect();
    socket.write(request(LINE));
    await until(() => listener.bench.sink.waiting === 1);
    const stopped = listener.server.stop();
    listener.bench.sink.commit();
    await stopped;
    await until(closed);
    expect(received()).toMatch(/^HTTP\/1\.1 204 .*Connection: close\r\n/s);
  });
});

describe('HTTP client that sends Expect: 100-continue', () => {
  const EXPECT = 'Expect: 100-continue\r\n';
  const CONTINUE = 'HTTP/1.1 100 Continue\r\n\r\n';

  it.each(['/write', '/v1/values', '/query'])('to %s receives one 100 Continue', async (path) => {
    await listener.listen();
    const json = '{"values":[{"tag":"FT-101","key":"flow","value":1}]}';
    const body = { '/write': LINE, '/v1/values': json, '/query': 'q=SHOW+DATABASES' }[path]!;
    const type = path === '/v1/values' ? 'Content-Type: application/json\r\n' : '';
    const { socket, received } = await listener.connect();
    socket.write(sized(body.length, type + EXPECT).replace('/write', path));
    await until(() => received() !== '');
    expect(received()).toBe(CONTINUE);
    socket.write(body);
    await until(() => finalHeads(received()).length === 1);
    expect(received().slice(CONTINUE.length)).toMatch(/^HTTP\/1\.1 20[04] /);
  });

  it('and the body without waiting receives one response', async () => {
    const received = await exchange([request(LINE, EXPECT)]);
    expect(received.replace(CONTINUE, '')).toMatch(/^HTTP\/1\.1 204 /);
    expect(listener.stored).toEqual([12.5]);
  });

  it.each([
    ['over HTTP/1.0', head('1.0', `${EXPECT}Content-Length: ${LINE.length}\r\n`) + LINE, 'HTTP/1.1 204'],
    ['without a body', sized(0, EXPECT), 'HTTP/1.1 204'],
    ['with a body that is too large', sized(100_000_000, EXPECT), 'HTTP/1.1 413'],
    ['to an unknown path', sized(9, EXPECT).replace('/write', '/other'), 'HTTP/1.1 404'],
  ])('%s receives no 100 Continue', async (_what, text, status) => {
    const received = await exchange([text]);
    expect(received.slice(0, status.length)).toBe(status);
    expect(received).not.toContain('100 Continue');
  });

  it('receives no 100 Continue for the next request without the header', async () => {
    const received = await exchange([request(LINE, EXPECT), request(LINE)], 2);
    expect(finalHeads(received).length).toBe(2);
    expect(received.split(CONTINUE).length).toBeLessThanOrEqual(2);
  });

  it('receives 417 for another expectation', async () => {
    expect(await exchange([request(LINE, 'Expect: 200-ok\r\n')])).toMatch(/^HTTP\/1\.1 417 /);
  });
});
