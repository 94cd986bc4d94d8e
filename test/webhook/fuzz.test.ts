import type { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ManualClock } from '../doubles/manual-clock.ts';
import { anEvent, Listening, SECRET } from './parts/listening.ts';
import { Strangers } from './parts/strangers.ts';

/** TAGFERRY_FUZZ: rounds; the soak runs more. */
const ROUNDS = Number(process.env.TAGFERRY_FUZZ ?? 150);
const SEED = Number(process.env.TAGFERRY_SEED ?? 7);

let at: Listening;
let strangers: Strangers;
const chance = new ManualClock(0, SEED);
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

const statuses = (text: string) => [...text.matchAll(/HTTP\/1\.1 (\d{3})/g)].map((match) => match[1]);

beforeEach(async () => {
  at = new Listening();
  strangers = new Strangers(
    () => at.port,
    () => chance.random(),
    SECRET,
  );
  await at.start({ limits: { headerMs: 1_000, requestMs: 2_000, requestsPerSecond: 1e6, burst: 1e6 } });
});
afterEach(async () => {
  strangers.leave();
  await at.stop();
});

describe('whatever strangers send', () => {
  it(`leaves the listener answering, and nothing unsigned in the inbox (${ROUNDS} rounds, seed ${SEED})`, async () => {
    for (let round = 0; round < ROUNDS; round++) {
      strangers.play();
      if (round % 25 === 24) {
        expect((await at.post(anEvent())).status, `after round ${round}`).toBe(204);
        strangers.leave();
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
    const body = strangers.open();
    const bodyAnswer = answerOf(body);
    body.write(
      `POST /webhook HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-Sha256: sha256=00\r\nContent-Length: 100\r\n\r\n1`,
    );
    const head = strangers.open();
    const headAnswer = answerOf(head);
    head.write('POST /webhook HTTP/1.1\r\nHost: x\r\nX-');
    expect(statuses(await headAnswer)).toEqual(['408']);
    expect(statuses(await bodyAnswer)).toEqual(['408']);
    expect(at.inbox.list()).toEqual([]);
  });

  it('headers over the bound are answered 431', async () => {
    const socket = strangers.open();
    const answer = answerOf(socket);
    socket.write(`POST /webhook HTTP/1.1\r\nHost: x\r\nX-A: ${'b'.repeat(20_000)}\r\n\r\n`);
    expect(statuses(await answer)).toEqual(['431']);
  });

  it('a sender that closes its half after the body still gets its 204', async () => {
    const socket = strangers.open();
    const answer = answerOf(socket);
    socket.end(strangers.request(anEvent()));
    expect(statuses(await answer)).toEqual(['204']);
    expect(at.inbox.list()).toHaveLength(1);
  });

  it('pipelined requests are answered each, in order', async () => {
    const socket = strangers.open();
    const answer = answerOf(socket);
    const refused = 'GET /webhook HTTP/1.1\r\nHost: x\r\n\r\n';
    socket.write(
      strangers.request(anEvent()) +
        refused +
        strangers.request(anEvent()) +
        strangers.request(anEvent(), 'Connection: close\r\n'),
    );
    expect(statuses(await answer)).toEqual(['204', '405', '204', '204']);
    expect(at.inbox.list()).toHaveLength(3);
  });

  it('two signatures in one request are no signature', async () => {
    const socket = strangers.open();
    const answer = answerOf(socket);
    socket.write(
      strangers.request(anEvent(), `X-Hub-Signature-Sha256: sha256=${'0'.repeat(64)}\r\nConnection: close\r\n`),
    );
    expect(statuses(await answer)).toEqual(['401']);
  });
});
