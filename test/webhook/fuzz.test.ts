import { createConnection, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { sign } from '../../src/webhook/signature.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { anEvent, Listening, SECRET } from './parts/listening.ts';

/** TAGFERRY_FUZZ: rounds; the soak runs more. */
const ROUNDS = Number(process.env.TAGFERRY_FUZZ ?? 150);
const SEED = Number(process.env.TAGFERRY_SEED ?? 7);

let at: Listening;
let sockets: Socket[];
const chance = new ManualClock(0, SEED);
const random = (below: number) => Math.floor(chance.random() * below);
const randomBytes = (most: number) => Uint8Array.from({ length: random(most) }, () => random(256));

function open(): Socket {
  const socket = createConnection({ port: at.port, host: '127.0.0.1', allowHalfOpen: true });
  socket.on('error', () => {});
  sockets.push(socket);
  return socket;
}

/** Everything that a socket answers until it ends. */
function answerOf(socket: Socket): Promise<string> {
  return new Promise((resolve) => {
    let text = '';
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1');
    });
    socket.on('close', () => resolve(text));
    socket.on('end', () => {
      socket.end();
      resolve(text);
    });
  });
}

function request(body: string, more = ''): string {
  const signature = sign(new TextEncoder().encode(body), SECRET);
  return `POST /webhook HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-Sha256: ${signature}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n${more}\r\n${body}`;
}

const statuses = (text: string) => [...text.matchAll(/HTTP\/1\.1 (\d{3})/g)].map((match) => match[1]);

beforeEach(async () => {
  sockets = [];
  at = new Listening();
  await at.start({ limits: { headerMs: 1_000, requestMs: 2_000, requestsPerSecond: 1e6, burst: 1e6 } });
});
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await at.stop();
});

describe('whatever strangers send', () => {
  it(`leaves the listener answering, and nothing unsigned in the inbox (${ROUNDS} rounds, seed ${SEED})`, async () => {
    const tricks: (() => unknown)[] = [
      () => open().write(randomBytes(3_000)),
      () => open().end(randomBytes(300)),
      () => open().write(`POST /webhook HTTP/1.1\r\n${'X-A: b\r\n'.repeat(random(5_000))}`),
      () => open().write(`POST /webhook HTTP/1.1\r\nX-A: ${'b'.repeat(random(200_000))}`),
      () => open().write(`POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Length: ${random(2 ** 31)}\r\n\r\n`),
      () => open().write('POST /webhook HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n'),
      () => open().write('POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n'),
      () =>
        open().write('POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n'),
      () => open().write(`GET ${'/'.repeat(random(10_000))} HTTP/1.1\r\nHost: x\r\n\r\n`),
      () => open().write('POST //\\[::%zz/webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n'),
      () => open().write('CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n'),
      () => open().write('POST /webhook HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n'),
      () => open().destroy(),
      () => {
        const socket = open();
        const whole = request(anEvent());
        socket.write(whole.slice(0, random(whole.length)), () => socket.destroy());
      },
      () => {
        const broken = Buffer.from(request(anEvent()));
        for (let i = 0; i < 3; i++) broken[random(broken.length)] = random(256);
        return open().end(broken);
      },
    ];
    for (let round = 0; round < ROUNDS; round++) {
      tricks[random(tricks.length)]!();
      if (round % 25 === 24) {
        expect((await at.post(anEvent())).status, `after round ${round}`).toBe(204);
        for (const socket of sockets.splice(0)) socket.destroy();
      }
    }
    const good = anEvent();
    expect((await at.post(good)).status).toBe(204);
    const kept = at.inbox.list({ limit: 1_000 });
    expect(kept[0]!.payload).toBe(good);
    // Only a signed body gets in; one that chance left whole is a valid event.
    expect(kept.filter((event) => event.unrecognised)).toEqual([]);
    expect(at.logged.text).not.toContain(SECRET);
  });

  it('a body that drips is cut off with 408, a head that drips as well', async () => {
    const body = open();
    const bodyAnswer = answerOf(body);
    body.write(
      `POST /webhook HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-Sha256: sha256=00\r\nContent-Length: 100\r\n\r\n1`,
    );
    const head = open();
    const headAnswer = answerOf(head);
    head.write('POST /webhook HTTP/1.1\r\nHost: x\r\nX-');
    expect(statuses(await headAnswer)).toEqual(['408']);
    expect(statuses(await bodyAnswer)).toEqual(['408']);
    expect(at.inbox.list()).toEqual([]);
  });

  it('headers over the bound are answered 431', async () => {
    const socket = open();
    const answer = answerOf(socket);
    socket.write(`POST /webhook HTTP/1.1\r\nHost: x\r\nX-A: ${'b'.repeat(20_000)}\r\n\r\n`);
    expect(statuses(await answer)).toEqual(['431']);
  });

  it('a sender that closes its half after the body still gets its 204', async () => {
    const socket = open();
    const answer = answerOf(socket);
    socket.end(request(anEvent()));
    expect(statuses(await answer)).toEqual(['204']);
    expect(at.inbox.list()).toHaveLength(1);
  });

  it('pipelined requests are answered each, in order', async () => {
    const socket = open();
    const answer = answerOf(socket);
    const refused = 'GET /webhook HTTP/1.1\r\nHost: x\r\n\r\n';
    socket.write(request(anEvent()) + refused + request(anEvent()) + request(anEvent(), 'Connection: close\r\n'));
    expect(statuses(await answer)).toEqual(['204', '405', '204', '204']);
    expect(at.inbox.list()).toHaveLength(3);
  });

  it('two signatures in one request are no signature', async () => {
    const socket = open();
    const answer = answerOf(socket);
    socket.write(request(anEvent(), `X-Hub-Signature-Sha256: sha256=${'0'.repeat(64)}\r\nConnection: close\r\n`));
    expect(statuses(await answer)).toEqual(['401']);
  });
});
