import type { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ManualClock } from '../doubles/manual-clock.ts';
import { shown } from './parts/inbox-events.ts';
import { anEvent, Listening, SECRET } from './parts/listening.ts';
import { Strangers } from './parts/strangers.ts';

/** Number of rounds. Increase TAGFERRY_FUZZ for a longer search. */
const ROUNDS = Number(process.env.TAGFERRY_FUZZ ?? 150);
const SEED = Number(process.env.TAGFERRY_SEED ?? 7);

let at: Listening;
let strangers: Strangers;
let mayArrive: Set<string>;
let forged: Promise<string>[];
const chance = new ManualClock(0, SEED);
/** Returns all responses on a socket until it ends. */
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

/** Returns all payloads in the inbox, newest first. */
function everythingIn(inbox: Listening['inbox']): string[] {
  const found: string[] = [];
  for (let beforeId: number | undefined; ; ) {
    const page = shown(inbox, { limit: 1_000, ...(beforeId === undefined ? {} : { beforeId }) });
    if (page.length === 0) return found;
    found.push(...page.map(({ payload }) => payload));
    beforeId = page.at(-1)!.id;
  }
}

beforeEach(async () => {
  at = new Listening();
  mayArrive = new Set();
  forged = [];
  strangers = new Strangers(
    () => at.port,
    () => chance.random(),
    SECRET,
    { mayArrive: (body) => mayArrive.add(body), forged: (answer) => forged.push(answer) },
  );
  await at.start({ limits: { headerMs: 1_000, requestMs: 2_000, requestsPerSecond: 1e6, burst: 1e6 } });
});
afterEach(async () => {
  strangers.leave();
  await at.stop();
});

describe('webhook listener with random requests', () => {
  it(`continues to respond, and stores no unsigned events (${ROUNDS} rounds, seed ${SEED})`, async () => {
    const good: string[] = [];
    let forgeries = 0;
    const deliver = async (when: string) => {
      good.push(anEvent());
      expect((await at.post(good.at(-1)!)).status, when).toBe(204);
    };
    for (let round = 0; round < ROUNDS; round++) {
      strangers.play();
      if (round % 25 === 24) {
        await deliver(`after round ${round}`);
        const answers = await Promise.all(forged.splice(0));
        expect(answers.filter((answer) => !answer.startsWith('HTTP/1.1 401 '))).toEqual([]);
        forgeries += answers.length;
        strangers.leave();
      }
    }
    await deliver('in the end');
    expect(forgeries).toBeGreaterThan(ROUNDS / 10);
    const kept = everythingIn(at.inbox);
    expect(kept[0]).toBe(good.at(-1));
    // Only completely signed bodies are stored.
    const wanted = new Set(good);
    expect(kept.filter((payload) => wanted.has(payload)).sort()).toEqual(good.toSorted());
    expect(kept.filter((payload) => !wanted.has(payload) && !mayArrive.has(payload))).toEqual([]);
    expect(at.logged.text).not.toContain(SECRET);
  });

  it('responds 408 to a slow body and to a slow header', async () => {
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

  it('responds 431 to oversized headers', async () => {
    const socket = strangers.open();
    const answer = answerOf(socket);
    socket.write(`POST /webhook HTTP/1.1\r\nHost: x\r\nX-A: ${'b'.repeat(20_000)}\r\n\r\n`);
    expect(statuses(await answer)).toEqual(['431']);
  });

  it('responds 204 to a sender that half-closes the connection after the body', async () => {
    const socket = strangers.open();
    const answer = answerOf(socket);
    socket.end(strangers.request(anEvent()));
    expect(statuses(await answer)).toEqual(['204']);
    expect(at.inbox.list()).toHaveLength(1);
  });

  it('responds to pipelined requests in order', async () => {
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

  it('rejects two signatures in one request', async () => {
    const socket = strangers.open();
    const answer = answerOf(socket);
    socket.write(
      strangers.request(anEvent(), `X-Hub-Signature-Sha256: sha256=${'0'.repeat(64)}\r\nConnection: close\r\n`),
    );
    expect(statuses(await answer)).toEqual(['401']);
  });
});
