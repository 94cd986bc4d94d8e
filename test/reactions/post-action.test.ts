import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { postEvent } from '../../src/reactions/post-action.ts';
import { factsOf } from './parts/facts.ts';

let server: Server;

afterEach(() => {
  server.closeAllConnections();
  server.close();
});

interface Taken {
  request: IncomingMessage;
  body: string;
}

/** A server on the plant's side that keeps what it got. */
async function listen(answer: RequestListener): Promise<{ url: string; taken: Taken[] }> {
  const taken: Taken[] = [];
  server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => {
      body += chunk;
    });
    request.on('end', () => {
      taken.push({ request, body });
      answer(request, response);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/alarm?k=1`, taken };
}

function post(
  url: string,
  more: { body?: unknown; headers?: Record<string, string>; timeoutMs?: number; signal?: AbortSignal } = {},
) {
  const { signal, ...rest } = more;
  return postEvent(
    { kind: 'post', url, timeoutMs: 10_000, ...rest },
    {
      reaction: 'r',
      event: factsOf('threshold_reached', undefined, 12),
      signal: signal ?? new AbortController().signal,
    },
  );
}

describe('a post', () => {
  it('sends the JSON of the event as received, marked with its number', async () => {
    const { url, taken } = await listen((_, response) => response.writeHead(204).end());
    expect(await post(url)).toEqual({ outcome: 'done', detail: 'answered 204' });
    expect(taken[0]?.body).toBe(factsOf('threshold_reached').payload);
    expect(taken[0]?.request.headers).toMatchObject({ 'content-type': 'application/json', 'x-tagferry-event': '12' });
    expect(taken[0]?.request.headers.authorization).toBeUndefined();
    expect(taken[0]?.request.url).toBe('/alarm?k=1');
  });

  it('sends a body of its own with members filled in, and headers of its own', async () => {
    const { url, taken } = await listen((_, response) => response.end('ok'));
    await post(url, { body: { tag: '{{content.instrumentation.tag}}', value: '{{content.data.value}}' } });
    await post(url, {
      body: 'alarm {{content.threshold.name}}',
      headers: { 'Content-Type': 'text/x-alarm', 'X-Key': 'k' },
    });
    expect(JSON.parse(taken[0]!.body)).toEqual({ tag: 'FT-101', value: 25.4 });
    expect(taken[1]!.body).toBe('alarm Inlet high');
    expect(taken[1]!.request.headers).toMatchObject({ 'content-type': 'text/x-alarm', 'x-key': 'k' });
  });

  it('fails on anything but 2xx, and follows no redirect', async () => {
    for (const status of [301, 302, 400, 500, 503]) {
      const { url, taken } = await listen((_, response) =>
        response.writeHead(status, { location: '/elsewhere' }).end(),
      );
      expect(await post(url)).toEqual({ outcome: 'failed', detail: `answered ${status}` });
      expect(taken).toHaveLength(1);
      server.close();
    }
  });

  it('goes straight there although a proxy is configured for the platform', async () => {
    const { url, taken } = await listen((_, response) => response.end());
    const before = { ...process.env };
    process.env.HTTP_PROXY = process.env.http_proxy = 'http://127.0.0.1:1';
    process.env.NODE_USE_ENV_PROXY = '1';
    try {
      expect((await post(url)).outcome).toBe('done');
    } finally {
      process.env = before;
    }
    expect(taken).toHaveLength(1);
  });

  it('fails where nobody answers in time, answers only half, or listens', async () => {
    const silent = await listen(() => {});
    expect(await post(silent.url, { timeoutMs: 200 })).toEqual({
      outcome: 'failed',
      detail: 'no response within 200 ms',
      timedOut: true,
    });
    server.closeAllConnections();
    server.close();
    const half = await listen((_, response) => {
      response.writeHead(200, { 'content-length': '100' });
      response.write('half');
      response.socket!.end();
    });
    expect((await post(half.url)).outcome).toBe('failed');
    server.close();
    expect(await post(half.url)).toEqual({ outcome: 'failed', detail: 'ECONNREFUSED' });
  });

  it('is interrupted by a stop, and reads no endless answer', async () => {
    const stop = new AbortController();
    const silent = await listen(() => stop.abort());
    expect(await post(silent.url, { signal: stop.signal })).toEqual({ outcome: 'interrupted' });
    server.closeAllConnections();
    server.close();
    const endless = await listen((_, response) => {
      const more = () => {
        while (!response.destroyed && response.write(Buffer.alloc(65_536))) {}
      };
      response.on('drain', more);
      more();
    });
    expect(await post(endless.url)).toEqual({ outcome: 'done', detail: 'answered 200' });
  });
});
