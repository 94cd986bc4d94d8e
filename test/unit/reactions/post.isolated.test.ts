import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { POST } from '../../../src/reactions/actions/post.ts';
import { factsOf } from './parts/facts.ts';

let server: Server;

afterEach(() => {
  server.closeAllConnections();
  server.close();
});

interface Received {
  request: IncomingMessage;
  body: string;
}

/** A receiver in the plant that records requests. */
async function listen(answer: RequestListener): Promise<{ url: string; received: Received[] }> {
  const received: Received[] = [];
  server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => {
      body += chunk;
    });
    request.on('end', () => {
      received.push({ request, body });
      answer(request, response);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/alarm?k=1`, received };
}

function post(
  url: string,
  more: { body?: unknown; headers?: Record<string, string>; timeoutMs?: number; signal?: AbortSignal } = {},
) {
  const { signal, ...rest } = more;
  return POST.perform(
    { kind: 'post', url, timeoutMs: 10_000, ...rest },
    {
      reaction: 'r',
      event: factsOf('threshold_reached', undefined, 12),
      position: [0, 0] as const,
      reasonAgainstWrite: () => undefined,
      signal: signal ?? new AbortController().signal,
    },
    {} as never,
  );
}

describe('post action', () => {
  it('sends the unchanged event JSON, with the event number in a header', async () => {
    const { url, received } = await listen((_, response) => response.writeHead(204).end());
    expect(await post(url)).toEqual({ outcome: 'done', detail: 'status 204' });
    expect(received[0]?.body).toBe(factsOf('threshold_reached').payload);
    expect(received[0]?.request.headers).toMatchObject({
      'content-type': 'application/json',
      'x-tagferry-event': '12',
    });
    expect(received[0]?.request.headers.authorization).toBeUndefined();
    expect(received[0]?.request.url).toBe('/alarm?k=1');
  });

  it('sends a configured body and headers with templates resolved', async () => {
    const { url, received } = await listen((_, response) => response.end('ok'));
    await post(url, { body: { tag: '{{content.instrumentation.tag}}', value: '{{content.data.value}}' } });
    await post(url, {
      body: 'alarm {{content.threshold.name}}',
      headers: { 'Content-Type': 'text/x-alarm', 'X-Key': 'k' },
    });
    expect(JSON.parse(received[0]!.body)).toEqual({ tag: 'FT-101', value: 25.4 });
    expect(received[1]!.body).toBe('alarm Inlet high');
    expect(received[1]!.request.headers).toMatchObject({ 'content-type': 'text/x-alarm', 'x-key': 'k' });
  });

  it('fails on any status other than 2xx, and does not follow redirects', async () => {
    for (const status of [301, 302, 400, 500, 503]) {
      const { url, received } = await listen((_, response) =>
        response.writeHead(status, { location: '/elsewhere' }).end(),
      );
      expect(await post(url)).toEqual({ outcome: 'failed', detail: `status ${status}` });
      expect(received).toHaveLength(1);
      server.close();
    }
  });

  it('ignores the proxy configured for the platform', async () => {
    const { url, received } = await listen((_, response) => response.end());
    const before = { ...process.env };
    process.env.HTTP_PROXY = process.env.http_proxy = 'http://127.0.0.1:1';
    process.env.NODE_USE_ENV_PROXY = '1';
    try {
      expect((await post(url)).outcome).toBe('done');
    } finally {
      process.env = before;
    }
    expect(received).toHaveLength(1);
  });

  it('fails if the receiver does not respond, sends a truncated response, or refuses the connection', async () => {
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

  it('is interrupted at shutdown, and stops reading an endless response', async () => {
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
    expect(await post(endless.url)).toEqual({ outcome: 'done', detail: 'status 200' });
  });
});
