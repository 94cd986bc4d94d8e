import { createHmac } from 'node:crypto';
import { copyFileSync, existsSync, renameSync, writeFileSync } from 'node:fs';
import { Agent, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { createConnection, createServer } from 'node:net';
import { join } from 'node:path';
import { connect as tlsConnect } from 'node:tls';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { StoreError } from '../../../src/base/errors.ts';
import { pathOf, WEBHOOK_LISTENER } from '../../../src/webhook/listener.ts';
import { sign } from '../../../src/webhook/signature.ts';
import { inboundServer } from '../doubles/inbound-server.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { runnable, shown } from './parts/inbox-events.ts';
import { anEvent, Listening, SECRET, until } from './parts/listening.ts';

let at: Listening;

beforeEach(() => {
  at = new Listening();
});
afterEach(() => at.stop());

const signed = (body: string) => ({ 'X-Hub-Signature-Sha256': sign(new TextEncoder().encode(body), SECRET) });

describe('webhook listener', () => {
  it('responds 204 once the event is stored in the inbox', async () => {
    await at.start();
    const body = anEvent();
    const answer = await at.post(body);
    expect(answer.status).toBe(204);
    expect(await answer.text()).toBe('');
    expect(shown(at.inbox)).toMatchObject([{ payload: body, state: 'received', unrecognised: false }]);
    expect(at.received).toEqual(['threshold_reached']);
    expect(at.logged.text).toContain('"eventType":"threshold_reached","object":"asset 881"');
  });

  it('stores a duplicate with a different member order only once', async () => {
    await at.start();
    const event = JSON.parse(anEvent());
    const repeat = JSON.stringify(
      { content: event.content, occurred_at: event.occurred_at, event_type: event.event_type },
      null,
      2,
    );
    expect((await at.post(JSON.stringify(event))).status).toBe(204);
    expect((await at.post(repeat)).status).toBe(204);
    expect(at.inbox.list()).toHaveLength(1);
    expect(at.received).toHaveLength(1);
  });

  it('stores signed bodies of unknown event types as unrecognised', async () => {
    await at.start();
    const bodies = ['', 'no json', '{"event_type":"brand_new"}', '[1,2]', '{"event_type":"threshold_reached"}'];
    for (const body of bodies) expect((await at.post(body)).status, body).toBe(204);
    const kept = shown(at.inbox);
    expect(kept.map((event) => event.payload).sort()).toEqual([...bodies].sort());
    expect(kept.every((event) => event.unrecognised)).toBe(true);
    expect(runnable(at.inbox, 10)).toEqual([]);
    expect(at.received).toEqual(bodies.map(() => 'unrecognised'));
  });

  it('responds 401 to a missing or wrong signature and stores nothing', async () => {
    await at.start();
    const body = anEvent();
    const wrong = [
      {},
      { 'X-Hub-Signature-Sha256': '' },
      signed(`${body} `),
      { 'X-Hub-Signature-Sha256': sign(new TextEncoder().encode(body), 'other') },
    ];
    for (const headers of wrong) expect((await at.post(body, headers as Record<string, string>)).status).toBe(401);
    const sha1 = `sha1=${createHmac('sha1', SECRET).update(body).digest('hex')}`;
    expect((await at.post(body, { 'X-Hub-Signature': sha1 })).status).toBe(401);
    expect(at.inbox.list()).toEqual([]);
    expect(new Set(at.rejected)).toEqual(new Set(['signature_missing', 'signature_wrong']));
  });

  it('accepts SHA-1 only if configured, with one warning', async () => {
    await at.start({ acceptSha1: true });
    for (let i = 0; i < 3; i++) {
      const body = anEvent();
      const sha1 = `sha1=${createHmac('sha1', SECRET).update(body).digest('hex')}`;
      expect((await at.post(body, { 'X-Hub-Signature': sha1 })).status).toBe(204);
    }
    expect(at.logged.text.match(/webhook\.sha1_accepted/g)).toHaveLength(1);
  });

  it('accepts both secrets during a rotation, and responds 503 without a secret', async () => {
    at.secrets = [];
    await at.start();
    const post = (secret: string) => {
      const body = anEvent();
      return at.post(body, { 'X-Hub-Signature-Sha256': sign(new TextEncoder().encode(body), secret) });
    };
    const early = await post(SECRET);
    expect(early.status).toBe(503);
    expect(early.headers.get('retry-after')).toBe('10');
    at.secrets = ['new', SECRET];
    expect((await post(SECRET)).status).toBe(204);
    expect((await post('new')).status).toBe(204);
    at.secrets = ['new'];
    expect((await post(SECRET)).status).toBe(401);
  });

  it('responds 404 to other paths and 405 to other methods, and ignores query strings', async () => {
    await at.start();
    const body = anEvent();
    const send = (path: string, method = 'POST') =>
      fetch(at.url(path), { method, headers: signed(body), ...(method === 'GET' ? {} : { body }) });
    expect((await send('/')).status).toBe(404);
    expect((await send('/webhook/')).status).toBe(404);
    expect((await send('/webhook?x=1')).status).toBe(204);
    for (const method of ['GET', 'PUT', 'DELETE', 'PATCH']) {
      const answer = await send('/webhook', method);
      expect(answer.status).toBe(405);
      expect(answer.headers.get('allow')).toBe('POST');
    }
  });

  it('responds 413 to bodies over 1 MiB with a declared length or chunked encoding', async () => {
    await at.start();
    const mebibyte = new Uint8Array(1024 * 1024).fill(0x20);
    expect((await at.post(mebibyte)).status).toBe(204);
    const tooMuch = new Uint8Array(1024 * 1024 + 1).fill(0x20);
    expect((await at.post(tooMuch)).status).toBe(413);
    expect((await at.post(new Uint8Array(8 * 1024 * 1024))).status).toBe(413);
    const unbounded = await rawStatus(
      { method: 'POST', headers: { 'transfer-encoding': 'chunked', ...signed('x') } },
      async (write) => {
        for (let i = 0; i < 5; i++) write(new Uint8Array(300_000));
      },
    );
    expect(unbounded).toBe(413);
    expect(at.inbox.list()).toHaveLength(1);
  });

  it('responds 413 to a declared length of one gigabyte without reading the body', async () => {
    await at.start();
    const headers = { 'content-length': String(2 ** 30), ...signed('x') };
    expect(await rawStatus({ method: 'POST', headers }, async () => {})).toBe(413);
    expect(await rawStatus({ method: 'POST', headers: { ...headers, expect: '100-continue' } }, async () => {})).toBe(
      413,
    );
  });

  it('responds 503 while the inbox is read-only', async () => {
    await at.start();
    at.before = () => {
      throw new StoreError('full', { code: 'inbox.disk_full', retryable: true });
    };
    const body = anEvent();
    const refused = await at.post(body);
    expect(refused.status).toBe(503);
    expect(refused.headers.get('retry-after')).not.toBeNull();
    at.before = () => {};
    expect(at.inbox.list()).toEqual([]);
    expect((await at.post(body)).status).toBe(204);
    expect(at.rejected).toEqual(['commit']);
  });

  it('responds 503 if a commit is taking too long, and recognises the event when it is resent', async () => {
    const hang = Promise.withResolvers<void>();
    await at.start({ limits: { commitMs: 20 } });
    at.before = () => hang.promise;
    const body = anEvent();
    const answer = await at.post(body);
    expect([answer.status, answer.headers.get('content-type')]).toEqual([503, 'application/json']);
    expect(at.logged.text).toContain('"why":"inbox.slow"');
    at.before = () => {};
    hang.resolve();
    await until(() => at.received.length === 1);
    expect(at.logged.text.match(/"event":"webhook.received"/g)).toHaveLength(1);
    expect((await at.post(body)).status).toBe(204);
    expect(at.inbox.list()).toHaveLength(1);
  });

  it('accepts a body of the maximum size with Expect: 100-continue', async () => {
    const body = anEvent();
    await at.start({ limits: { bodyBytes: Buffer.byteLength(body) } });
    const status = new Promise((resolve, reject) => {
      const headers = { ...signed(body), 'content-length': String(Buffer.byteLength(body)), expect: '100-continue' };
      const request = httpRequest(at.url(), { method: 'POST', headers });
      request.on('continue', () => request.end(body)).on('error', reject);
      request.on('response', (response) => resolve(response.resume().statusCode)).flushHeaders();
    });
    expect(await status).toBe(204);
    expect((await at.post(`${body} `)).status).toBe(413);
    expect(at.inbox.list()).toHaveLength(1);
  });

  it('responds 429 above the rate limit', async () => {
    const clock = new ManualClock();
    await at.start({ limits: { burst: 3, requestsPerSecond: 1 } }, { clock });
    const statuses = async () => {
      const all = [];
      for (let i = 0; i < 4; i++) all.push((await at.post(anEvent())).status);
      return all;
    };
    expect(await statuses()).toEqual([204, 204, 204, 429]);
    await clock.advance(2_000);
    expect(await statuses()).toEqual([204, 204, 429, 429]);
  });

  it('accepts deliveries during a flood of unsigned requests', async () => {
    await at.start({ limits: { burst: 3, requestsPerSecond: 1 } }, { clock: new ManualClock() });
    const flood = [];
    for (let i = 0; i < 10; i++) flood.push((await fetch(at.url(), { method: 'POST', body: '{}' })).status);
    expect(flood).toEqual([401, 401, 401, 429, 429, 429, 429, 429, 429, 429]);
    expect((await at.post(anEvent())).status).toBe(204);
  });

  it('accepts deliveries during a flood of forged signatures', async () => {
    await at.start({ limits: { burst: 3, requestsPerSecond: 1 } }, { clock: new ManualClock() });
    const headers = { 'X-Hub-Signature-Sha256': sign(new TextEncoder().encode('{}'), 'guessed') };
    const forge = () => fetch(at.url(), { method: 'POST', body: '{}', headers });
    const flood = await Promise.all(Array.from({ length: 50 }, forge));
    expect(new Set(flood.map((answer) => answer.status))).toEqual(new Set([401, 429]));
    expect(
      await Promise.all([anEvent(), anEvent(), anEvent()].map(async (event) => (await at.post(event)).status)),
    ).toEqual([204, 204, 204]);
  });
});

/** Returns the status of a request that `fetch` cannot send. */
function rawStatus(
  options: { method: string; headers: Record<string, string> },
  send: (write: (chunk: Uint8Array) => void) => Promise<void>,
): Promise<number> {
  return new Promise((resolve, reject) => {
    const request = httpRequest({ host: '127.0.0.1', port: at.port, path: '/webhook', ...options });
    request.on('response', (response) => {
      resolve(response.statusCode!);
      response.resume();
      request.destroy();
    });
    request.on('error', reject);
    request.flushHeaders();
    void send((chunk) => request.write(chunk)).then(() => {
      if (!options.headers['content-length']) request.end();
    });
  });
}

describe('webhook listener connections', () => {
  it('stay open after accepted and rejected deliveries', async () => {
    await at.start();
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const sockets = new Set<unknown>();
    for (const secret of [SECRET, 'wrong', SECRET, SECRET]) {
      const body = anEvent();
      await new Promise<void>((resolve, reject) => {
        const headers = { 'x-hub-signature-sha256': sign(new TextEncoder().encode(body), secret) };
        const request = httpRequest(
          { host: '127.0.0.1', port: at.port, path: '/webhook', method: 'POST', agent, headers },
          (response) => {
            sockets.add(request.socket);
            response.resume().on('end', resolve);
          },
        );
        request.on('error', reject).end(body);
      });
    }
    expect(sockets.size).toBe(1);
    agent.destroy();
  });

  it('complete requests in progress when the listener is stopped, and respond to new ones with 503', async () => {
    await at.start();
    const hold = Promise.withResolvers<void>();
    at.before = () => hold.promise;
    const answer = at.post(anEvent());
    await until(() => at.batches.length === 1);
    const stopped = at.listener?.stop();
    expect((await at.post(anEvent())).status).toBe(503);
    hold.resolve();
    expect((await answer).status).toBe(204);
    await stopped;
    expect(at.inbox.list()).toHaveLength(1);
  });

  it('are closed at shutdown if they are unresponsive', async () => {
    await at.start({ limits: { stopMs: 50 } });
    const socket = createConnection(at.port, '127.0.0.1');
    socket.on('error', () => {});
    const closed = new Promise((resolve) => socket.on('close', resolve));
    socket.write(
      'POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nX-Hub-Signature-Sha256: sha256=00\r\n\r\n1',
    );
    await new Promise((resolve) => socket.once('connect', resolve));
    await at.close();
    await closed;
  });

  it('work on a Unix socket left by a killed process, but not on one in use', async () => {
    const path = join(at.folder, 'hook.sock');
    const dead = createServer();
    await new Promise<void>((resolve) => dead.listen(`${path}.new`, resolve));
    renameSync(`${path}.new`, path);
    await new Promise((resolve) => dead.close(resolve));
    expect(existsSync(path)).toBe(true);
    await at.start({ address: { path } });
    const body = anEvent();
    const status = await new Promise((resolve) => {
      const request = httpRequest({ socketPath: path, path: '/webhook', method: 'POST', headers: signed(body) });
      request.on('response', (response) => resolve(response.resume().statusCode)).end(body);
    });
    expect(status).toBe(204);
    const second = inboundServer(WEBHOOK_LISTENER, { address: { path }, limits: { listenRetries: 0 } });
    await expect(second.start()).rejects.toMatchObject({ code: 'webhook.listen' });
    await at.close();
    expect(existsSync(path)).toBe(false);
  });

  it('work with IPv6', async () => {
    await at.start({ address: { host: '::1', port: 0 } });
    const body = anEvent();
    const answer = await fetch(`http://[::1]:${at.port}/webhook`, { method: 'POST', headers: signed(body), body });
    expect(answer.status).toBe(204);
  });

  it('report an address in use', async () => {
    await at.start();
    const address = { host: '127.0.0.1', port: at.port };
    await expect(
      inboundServer(WEBHOOK_LISTENER, { address, limits: { listenRetries: 0 } }).start(),
    ).rejects.toMatchObject({
      code: 'webhook.listen',
      hint: expect.stringContaining('WEBHOOK_LISTEN'),
    });
  });

  it('never log secrets, signatures or bodies, and log floods as summaries', async () => {
    await at.start({ acceptSha1: true });
    const body = anEvent({ marker: 'do-not-log-this-body' });
    for (let i = 0; i < 30; i++)
      await at.post(body, { 'X-Hub-Signature-Sha256': sign(new TextEncoder().encode(body), 'x') });
    at.before = () => {
      throw new Error('boom');
    };
    await at.post(body);
    expect(at.logged.text).toContain('signature_wrong');
    // The warnings for 1, 2, 4, 8 and 16 repetitions, and the fault.
    expect(at.logged.text.match(/signature_wrong/g)).toHaveLength(5);
    for (const forbidden of [
      SECRET,
      'do-not-log-this-body',
      'sha256=',
      sign(new TextEncoder().encode(body), SECRET).slice(7),
    ]) {
      expect(at.logged.text).not.toContain(forbidden);
    }
  });

  it.each([
    [undefined, '/webhook'],
    ['', '/webhook'],
    ['https://gateway.example.com/hooks/tagferry?x=1', '/hooks/tagferry'],
    ['https://gateway.example.com', '/'],
  ])('with WEBHOOK_URL %s use the path %s', (url, path) => {
    expect(pathOf(url)).toBe(path);
  });
});

describe('webhook listener with TLS', () => {
  function certificate(name: 'self-signed' | 'other-name'): void {
    const fixtures = join(import.meta.dirname, '../../fixtures/certificates');
    copyFileSync(join(fixtures, `${name}.pem`), join(at.folder, 'cert.pem'));
    copyFileSync(join(fixtures, 'server.key'), join(at.folder, 'key.pem'));
  }

  function commonName(): Promise<string> {
    return new Promise((resolve, reject) => {
      const socket = tlsConnect({ port: at.port, host: '127.0.0.1', rejectUnauthorized: false }, () => {
        resolve(String(socket.getPeerCertificate().subject.CN));
        socket.destroy();
      });
      socket.on('error', reject);
    });
  }

  it('applies a renewed certificate without a restart, and keeps the previous certificate while the file is invalid', async () => {
    const clock = new ManualClock();
    certificate('self-signed');
    const tls = { certFile: join(at.folder, 'cert.pem'), keyFile: join(at.folder, 'key.pem'), settings: 'WEBHOOK_TLS' };
    await at.start({ tls }, { clock });
    expect(await commonName()).toBe('localhost');
    writeFileSync(tls.certFile, 'half of a certificate');
    await until(async () => {
      await clock.advance(10_000);
      return at.logged.text.includes('listener.certificate_refused');
    });
    expect(await commonName()).toBe('localhost');
    certificate('other-name');
    await until(async () => {
      await clock.advance(10_000);
      return at.logged.text.includes('listener.certificate_reloaded');
    });
    expect(await commonName()).toBe('other.example');
    const body = anEvent();
    const status = await new Promise((resolve, reject) => {
      const options = { method: 'POST', headers: signed(body), rejectUnauthorized: false };
      const outgoing = httpsRequest(at.url('/webhook', 'https'), options, (answer) =>
        resolve(answer.resume().statusCode),
      );
      outgoing.on('error', reject).end(body);
    });
    expect(status).toBe(204);
  });

  it('does not start if certificate files are missing', async () => {
    const tls = {
      certFile: join(at.folder, 'none.pem'),
      keyFile: join(at.folder, 'none.key'),
      settings: 'WEBHOOK_TLS',
    };
    await expect(at.start({ tls })).rejects.toMatchObject({ code: 'listener.certificate' });
  });
});
