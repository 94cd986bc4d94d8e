import { createConnection, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SELF_TEST_HEADER, sendToListener, testWebhook } from '../../../src/webhook/self-test.ts';
import { sign } from '../../../src/webhook/signature.ts';
import { anEvent, Listening, SECRET, until } from './parts/listening.ts';

let at: Listening;
let sockets: Socket[];

beforeEach(() => {
  at = new Listening();
  sockets = [];
});
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await at.stop();
});

/** Opens a connection and collects the response. */
function open(): { socket: Socket; text: () => string; closed: Promise<void> } {
  const socket = createConnection({ port: at.port, host: '127.0.0.1' });
  sockets.push(socket);
  let text = '';
  socket.on('data', (chunk) => {
    text += chunk.toString('latin1');
  });
  socket.on('error', () => {});
  return { socket, text: () => text, closed: new Promise((resolve) => socket.once('close', () => resolve())) };
}

const head = (more: string) =>
  `POST /webhook HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-Sha256: sha256=${'0'.repeat(64)}\r\n${more}\r\n\r\n`;

describe('public webhook listener', () => {
  it('limits memory for forged bodies with a declared length or chunked encoding', async () => {
    await at.start({ limits: { bytesUnderWay: 200_000 } });
    const chunk = `${(60_000).toString(16)}\r\n${'x'.repeat(60_000)}\r\n`;
    const promising = Array.from({ length: 4 }, () => open());
    const chunked = Array.from({ length: 4 }, () => open());
    // All heads arrive before the bodies: a limit that only counts announced sizes would accept them.
    for (const { socket } of promising) socket.write(head('Content-Length: 100000'));
    for (const { socket } of chunked) socket.write(head('Transfer-Encoding: chunked'));
    await until(() => sockets.every((socket) => !socket.connecting && socket.writableLength === 0));
    for (const { socket } of promising) socket.write('x'.repeat(60_000));
    for (const { socket } of chunked) socket.write(chunk);
    await until(() => [...promising, ...chunked].some(({ text }) => text().startsWith('HTTP/1.1 503')));
    expect(at.rejected).toContain('rate');
    for (const { socket } of [...promising, ...chunked]) socket.destroy();
    await until(async () => (await at.post(anEvent())).status === 204);
    expect(at.inbox.list()).toHaveLength(1);
  });

  it('closes the longest-idle connection above the connection limit', async () => {
    await at.start({ limits: { connections: 3 } });
    const crowd: ReturnType<typeof open>[] = [];
    for (let i = 0; i < 3; i++) {
      crowd.push(open());
      await until(() => crowd.every(({ socket }) => !socket.connecting));
    }
    expect((await at.post(anEvent())).status).toBe(204);
    await crowd[0]!.closed;
    expect(crowd.slice(1).map(({ socket }) => socket.destroyed)).toEqual([false, false]);
  });

  it('closes connections that never complete the TLS handshake', async () => {
    const certificates = join(import.meta.dirname, '../../fixtures/certificates');
    const [key, cert] = [join(certificates, 'server.key'), join(certificates, 'self-signed.pem')];
    await at.start({
      tls: { certFile: cert, keyFile: key, settings: 'WEBHOOK_TLS' },
      limits: { headerMs: 200, stopMs: 100 },
    });
    const silent = open();
    await silent.closed;
    expect(silent.text()).toBe('');
    const plain = open();
    plain.socket.write('POST /webhook HTTP/1.1\r\nHost: x\r\n\r\n');
    await plain.closed;
    expect(plain.text()).not.toContain('HTTP/1.1 2');
    const last = open();
    await until(() => !last.socket.connecting);
    await at.close();
    await last.closed;
  });

  it.each([
    ['no signature header', undefined],
    ['an empty header', ''],
    ['only the algorithm', 'sha256='],
    ['a digest without an algorithm', (body: string) => sign(Buffer.from(body), SECRET).slice(7)],
    ['the digest under another algorithm', (body: string) => `sha1=${sign(Buffer.from(body), SECRET).slice(7)}`],
    ['a longer digest', (body: string) => `${sign(Buffer.from(body), SECRET)}00`],
    ['a shorter digest', (body: string) => sign(Buffer.from(body), SECRET).slice(0, -2)],
    ['two digests, the correct one first', (body: string) => `${sign(Buffer.from(body), SECRET)}, sha256=00`],
    ['the signature of an empty body', () => sign(Buffer.alloc(0), SECRET)],
    ['the signature with an empty secret', (body: string) => sign(Buffer.from(body), '')],
    ['non-ASCII digits', () => `sha256=${'٠'.repeat(64)}`],
  ] as [string, string | undefined | ((body: string) => string)][])('rejects a body with %s', async (_, signature) => {
    at.secrets = [SECRET, ''];
    await at.start();
    const body = anEvent();
    const given = typeof signature === 'function' ? signature(body) : signature;
    const header = given === undefined ? '' : `X-Hub-Signature-Sha256: ${given}\r\n`;
    const { socket, text, closed } = open();
    const more = `Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n`;
    socket.write(`POST /webhook HTTP/1.1\r\nHost: x\r\n${header}${more}\r\n${body}`);
    await closed;
    expect(text()).toMatch(/^HTTP\/1\.1 401 /);
    expect(at.inbox.list()).toEqual([]);
  });

  it.each([
    '/webhook/',
    '//webhook',
    '/webhook/../webhook',
    '/Webhook',
    '/%77ebhook',
    '/webhook;x',
    '/webhook%00',
    '/x/../webhook',
  ])('responds 404 to the path %s', async (path) => {
    await at.start();
    const body = anEvent();
    const { socket, text, closed } = open();
    const more = `X-Hub-Signature-Sha256: ${sign(Buffer.from(body), SECRET)}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n`;
    socket.write(`POST ${path} HTTP/1.1\r\nHost: x\r\n${more}Connection: close\r\n\r\n${body}`);
    await closed;
    expect(text()).toMatch(/^HTTP\/1\.1 404 /);
    expect(at.inbox.list()).toEqual([]);
  });

  it('stores a replayed delivery once, and rejects a delivery with an added member', async () => {
    await at.start();
    const body = anEvent();
    const headers = { 'X-Hub-Signature-Sha256': sign(Buffer.from(body), SECRET) };
    for (let i = 0; i < 3; i++) expect((await at.post(body, headers)).status).toBe(204);
    expect((await at.post(body.replace('{', '{"x":1,'), headers)).status).toBe(401);
    expect(at.inbox.list()).toHaveLength(1);
    expect(at.received).toEqual(['threshold_reached']);
  });
});

describe('listener self-test', () => {
  it('is counted separately without a warning, unless its marker is invalid', async () => {
    await at.start({}, { isSelfTest: (mark) => mark === 'only-known-here' });
    const address = at.server!.socketAddress!;
    const target = { name: 'listener' as const, address: '', send: sendToListener(address, '/webhook', false) };
    const lines = await testWebhook([target], SECRET, 'only-known-here');
    expect(lines.map(({ check, ok }) => [check, ok])).toEqual([
      ['unsigned', true],
      ['signed', true],
    ]);
    expect(at.rejected).toEqual(['self_test']);
    expect(at.logged.text).not.toContain('webhook.rejected');
    const stranger = { [SELF_TEST_HEADER]: 'a-guess', 'content-type': 'application/json' };
    expect((await at.post(anEvent(), stranger)).status).toBe(401);
    expect(at.rejected).toEqual(['self_test', 'signature_missing']);
    expect(at.logged.text).toContain('webhook.rejected');
    // The mark does not replace the signature.
    const sly = { ...stranger, [SELF_TEST_HEADER]: 'only-known-here' };
    expect((await at.post(anEvent(), sly)).status).toBe(401);
    expect(at.inbox.list({ eventType: 'tagferry_self_test' })).toHaveLength(1);
    expect(at.inbox.list()).toEqual([]);
  });
});
