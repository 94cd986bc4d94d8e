import { execFile, execFileSync, spawnSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { existsSync, renameSync, writeFileSync } from 'node:fs';
import { Agent, request as httpRequest } from 'node:http';
import { createConnection } from 'node:net';
import { join } from 'node:path';
import { connect as tlsConnect } from 'node:tls';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { StoreError } from '../../src/base/errors.ts';
import { GroupCommit } from '../../src/webhook/group-commit.ts';
import { pathOf, WebhookListener } from '../../src/webhook/listener.ts';
import { readEvent } from '../../src/webhook/received-event.ts';
import { sign } from '../../src/webhook/signature.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { runnable, shown } from './parts/inbox-events.ts';
import { anEvent, Listening, SECRET, until } from './parts/listening.ts';

let at: Listening;

beforeEach(() => {
  at = new Listening();
});
afterEach(() => at.stop());

const signed = (body: string) => ({ 'X-Hub-Signature-Sha256': sign(new TextEncoder().encode(body), SECRET) });

describe('the listener answers', () => {
  it('204 without a body once the event is in the inbox', async () => {
    await at.start();
    const body = anEvent();
    const answer = await at.post(body);
    expect(answer.status).toBe(204);
    expect(await answer.text()).toBe('');
    expect(shown(at.inbox)).toMatchObject([{ payload: body, state: 'received', unrecognised: false }]);
    expect(at.received).toEqual(['threshold_reached']);
  });

  it('204 to a repeat, which is kept and counted once, whatever the order of its members', async () => {
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

  it('204 to a signed body that is no known event, and keeps it as it came, marked', async () => {
    await at.start();
    const bodies = ['', 'no json', '{"event_type":"brand_new"}', '[1,2]', '{"event_type":"threshold_reached"}'];
    for (const body of bodies) expect((await at.post(body)).status, body).toBe(204);
    const kept = shown(at.inbox);
    expect(kept.map((event) => event.payload).sort()).toEqual([...bodies].sort());
    expect(kept.every((event) => event.unrecognised)).toBe(true);
    expect(runnable(at.inbox, 10)).toEqual([]);
    expect(at.received).toEqual(bodies.map(() => 'unrecognised'));
  });

  it('401 to a missing or wrong signature, and keeps nothing', async () => {
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

  it('204 to SHA-1 alone where it is accepted, and warns once', async () => {
    await at.start({ acceptSha1: true });
    for (let i = 0; i < 3; i++) {
      const body = anEvent();
      const sha1 = `sha1=${createHmac('sha1', SECRET).update(body).digest('hex')}`;
      expect((await at.post(body, { 'X-Hub-Signature': sha1 })).status).toBe(204);
    }
    expect(at.logged.text.match(/webhook\.sha1_accepted/g)).toHaveLength(1);
  });

  it('204 to both secrets during a rotation, 503 before any is known', async () => {
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

  it('404 to other paths and 405 with Allow to other methods, and lets a query stand', async () => {
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

  it('413 over 1 MiB: by the promised length at once, by the bytes where none is promised; and takes 1 MiB', async () => {
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

  it('413 to a promise of a gigabyte without waiting for it, and to Expect: 100-continue without asking for it', async () => {
    await at.start();
    const headers = { 'content-length': String(2 ** 30), ...signed('x') };
    expect(await rawStatus({ method: 'POST', headers }, async () => {})).toBe(413);
    expect(await rawStatus({ method: 'POST', headers: { ...headers, expect: '100-continue' } }, async () => {})).toBe(
      413,
    );
  });

  it('503 while the inbox cannot be written, keeps nothing, and 204 when it can again', async () => {
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

  it('503 when the disk hangs longer than a sender waits; the event that is written later is known when it comes again', async () => {
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

  it('204 to a body of exactly the most bytes, and to one that waits to be asked for', async () => {
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

  it('429 over the rate, by the clock', async () => {
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

  it('a flood of what bears no signature takes no delivery’s place', async () => {
    await at.start({ limits: { burst: 3, requestsPerSecond: 1 } }, { clock: new ManualClock() });
    const flood = [];
    for (let i = 0; i < 10; i++) flood.push((await fetch(at.url(), { method: 'POST', body: '{}' })).status);
    expect(flood).toEqual([401, 401, 401, 429, 429, 429, 429, 429, 429, 429]);
    expect((await at.post(anEvent())).status).toBe(204);
  });

  it('a flood of forged signatures takes no delivery’s place either', async () => {
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

/** Status of a request that `fetch` would not send. */
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

describe('the listener', () => {
  it('puts all that arrive during one commit into the next', async () => {
    const sizes: number[] = [];
    const first = Promise.withResolvers<void>();
    const commit = new GroupCommit(async (events) => {
      sizes.push(events.length);
      if (sizes.length === 1) await first.promise;
      return events.map(() => 'new' as const);
    }, 100);
    const one = () => commit.insert(readEvent(new TextEncoder().encode(anEvent()), 0));
    const all = [one()];
    await until(() => sizes.length === 1);
    all.push(...Array.from({ length: 100 }, one));
    await expect(one()).rejects.toMatchObject({ code: 'inbox.busy' });
    first.resolve();
    await Promise.all(all);
    await commit.drained();
    expect(sizes).toEqual([1, 100]);
  });

  it('acknowledges concurrent deliveries each for itself', async () => {
    await at.start();
    const answers = await Promise.all(Array.from({ length: 60 }, () => at.post(anEvent())));
    expect(answers.every((answer) => answer.status === 204)).toBe(true);
    expect(at.inbox.list({ limit: 100 })).toHaveLength(60);
    expect(at.batches.length).toBeLessThanOrEqual(60);
  });

  it('keeps a connection alive over deliveries and refusals alike', async () => {
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

  it('finishes what is under way when it stops, and takes nothing after', async () => {
    await at.start();
    const hold = Promise.withResolvers<void>();
    at.before = () => hold.promise;
    const answer = at.post(anEvent());
    await until(() => at.batches.length === 1);
    const url = at.url();
    const stopped = at.listener?.stop();
    await expect(fetch(url, { method: 'POST' })).rejects.toThrow();
    hold.resolve();
    expect((await answer).status).toBe(204);
    await stopped;
    expect(at.inbox.list()).toHaveLength(1);
    await at.listener?.stop();
  });

  it('ends connections that hang when it stops', async () => {
    await at.start({ limits: { stopMs: 50 } });
    const socket = createConnection(at.port, '127.0.0.1');
    socket.on('error', () => {});
    const closed = new Promise((resolve) => socket.on('close', resolve));
    socket.write(
      'POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nX-Hub-Signature-Sha256: sha256=00\r\n\r\n1',
    );
    await new Promise((resolve) => socket.once('connect', resolve));
    await at.listener?.stop();
    await closed;
  });

  it('works on a Unix socket that a killed process left behind, and leaves one in use alone', async () => {
    const path = join(at.folder, 'hook.sock');
    const script = `require('node:net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`;
    spawnSync(process.execPath, ['-e', script]);
    expect(existsSync(path)).toBe(true);
    await at.start({ listen: { path } });
    const body = anEvent();
    const status = await new Promise((resolve) => {
      const request = httpRequest({ socketPath: path, path: '/webhook', method: 'POST', headers: signed(body) });
      request.on('response', (response) => resolve(response.resume().statusCode)).end(body);
    });
    expect(status).toBe(204);
    const second = new WebhookListener(
      { listen: { path }, path: '/webhook', acceptSha1: false, limits: { listenRetries: 0 } },
      { insertMany: async () => [], secrets: () => [], clock: systemClock, log: at.logged.log },
    );
    await expect(second.start()).rejects.toMatchObject({ code: 'webhook.listen' });
    await at.listener?.stop();
    expect(existsSync(path)).toBe(false);
  });

  it('works on IPv6', async () => {
    await at.start({ listen: { host: '::1', port: 0 } });
    const body = anEvent();
    const answer = await fetch(`http://[::1]:${at.port}/webhook`, { method: 'POST', headers: signed(body), body });
    expect(answer.status).toBe(204);
  });

  it('says which address is taken', async () => {
    await at.start();
    const options = {
      listen: { host: '127.0.0.1', port: at.port },
      path: '/webhook',
      acceptSha1: false,
      limits: { listenRetries: 0 },
    };
    const parts = { insertMany: async () => [], secrets: () => [], clock: systemClock, log: at.logged.log };
    await expect(new WebhookListener(options, parts).start()).rejects.toMatchObject({
      code: 'webhook.listen',
      hint: expect.stringContaining('WEBHOOK_LISTEN'),
    });
  });

  it('logs neither secrets nor signatures nor bodies, and sums up what floods it', async () => {
    await at.start({ acceptSha1: true });
    const body = anEvent({ marker: 'do-not-log-this-body' });
    for (let i = 0; i < 30; i++)
      await at.post(body, { 'X-Hub-Signature-Sha256': sign(new TextEncoder().encode(body), 'x') });
    at.before = () => {
      throw new Error('boom');
    };
    await at.post(body);
    expect(at.logged.text).toContain('signature_wrong');
    // 1, 2, 4, 8, 16, and the fault.
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
  ])('for WEBHOOK_URL %s listens on the path %s', (url, path) => {
    expect(pathOf(url)).toBe(path);
  });
});

describe('https of its own', () => {
  function certificate(name: string): void {
    const subject = [
      '-subj',
      `/CN=${name}`,
      '-days',
      '2',
      '-nodes',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:prime256v1',
    ];
    const files = ['-keyout', join(at.folder, 'key.new'), '-out', join(at.folder, 'cert.new')];
    execFileSync('openssl', ['req', '-x509', ...subject, ...files], { stdio: 'ignore' });
    renameSync(join(at.folder, 'cert.new'), join(at.folder, 'cert.pem'));
    renameSync(join(at.folder, 'key.new'), join(at.folder, 'key.pem'));
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

  it('takes deliveries, uses a renewed certificate without a restart, and keeps the old while a renewal is broken', async () => {
    const clock = new ManualClock();
    certificate('first');
    const tls = { certFile: join(at.folder, 'cert.pem'), keyFile: join(at.folder, 'key.pem'), settings: 'WEBHOOK_TLS' };
    await at.start({ tls }, { clock });
    expect(await commonName()).toBe('first');
    writeFileSync(tls.certFile, 'half of a certificate');
    await until(async () => {
      await clock.advance(10_000);
      return at.logged.text.includes('listener.certificate_refused');
    });
    expect(await commonName()).toBe('first');
    certificate('second');
    await until(async () => {
      await clock.advance(10_000);
      return at.logged.text.includes('listener.certificate_reloaded');
    });
    expect(await commonName()).toBe('second');
    const body = anEvent();
    const { stdout } = await promisify(execFile)('curl', [
      ...['-sk', '-o', '/dev/null', '-w', '%{http_code}', '--data-binary', body],
      ...['-H', `X-Hub-Signature-Sha256: ${sign(new TextEncoder().encode(body), SECRET)}`, at.url('/webhook', 'https')],
    ]);
    expect(stdout).toBe('204');
  });

  it('is refused at start with files that do not work, naming them', async () => {
    const tls = {
      certFile: join(at.folder, 'none.pem'),
      keyFile: join(at.folder, 'none.key'),
      settings: 'WEBHOOK_TLS',
    };
    await expect(at.start({ tls })).rejects.toMatchObject({ code: 'listener.certificate' });
  });
});
