/** Every answer of the listener, whole: status, headers and body, what is counted, and each line of the log with all its members. */
import { createHmac } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { StoreError } from '../../src/base/errors.ts';
import { identityOf } from '../../src/webhook/identity.ts';
import { digestOf } from '../../src/webhook/inbox-event.ts';
import type { ListenerOptions, ListenerParts } from '../../src/webhook/listener.ts';
import { SELF_TEST_HEADER } from '../../src/webhook/self-test.ts';
import { sign } from '../../src/webhook/signature.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { shown } from './parts/inbox-events.ts';
import { anEvent, Listening, SECRET, until } from './parts/listening.ts';
import { type RawAnswer, RawConnection, requestText } from './parts/raw-requests.ts';

const DAY = 86_400_000;
const SHA256 = 'X-Hub-Signature-Sha256';
const SHA1 = 'X-Hub-Signature';
const INFO = 30;
const DEBUG = 20;
const WARN = 40;

let at: Listening;
let clock: ManualClock;
let inserted: number;
let connections: RawConnection[];

beforeEach(() => {
  at = new Listening();
  clock = new ManualClock();
  inserted = 0;
  connections = [];
});
afterEach(async () => {
  for (const { socket } of connections) socket.destroy();
  await at.stop();
});

const start = (options: Partial<ListenerOptions> = {}, parts: Partial<ListenerParts> = {}) =>
  at.start(options, { clock, inserted: () => inserted++, ...parts });

function open(text: string): RawConnection {
  const connection = new RawConnection(at.port).write(text);
  connections.push(connection);
  return connection;
}

const signature = (body: string, secret = SECRET) => sign(Buffer.from(body), secret);
const sha1 = (body: string) => `sha1=${createHmac('sha1', SECRET).update(body).digest('hex')}`;

interface Sent {
  line?: string;
  headers?: Record<string, string | number | undefined>;
  body?: string;
}

/** A delivery as the platform sends it, but for what is told. */
function textOf({ line = 'POST /webhook', headers = {}, body = anEvent() }: Sent): string {
  return requestText(line, { 'Content-Length': Buffer.byteLength(body), [SHA256]: signature(body), ...headers }, body);
}

async function send(sent: Sent = {}): Promise<RawAnswer> {
  const answers = await open(textOf(sent)).answers();
  expect(answers).toHaveLength(1);
  return answers[0]!;
}

const TAKEN: RawAnswer = { status: '204 No Content', headers: { connection: 'close' }, body: '' };
const refused = (status: string, reason: string, headers: Record<string, string> = {}): RawAnswer => {
  const body = `{"error":"${reason}"}\n`;
  const length = { 'content-length': String(body.length) };
  return { status, headers: { 'content-type': 'application/json', connection: 'close', ...length, ...headers }, body };
};
const NO_PATH = refused('404 Not Found', 'path');
const NO_METHOD = refused('405 Method Not Allowed', 'method', { allow: 'POST' });
const NO_SECRET = refused('503 Service Unavailable', 'no_secret', { 'retry-after': '10' });
const TOO_LARGE = refused('413 Payload Too Large', 'too_large');
const UNSIGNED = refused('401 Unauthorized', 'signature_missing');
const FORGED = refused('401 Unauthorized', 'signature_wrong');
const TOO_OFTEN = refused('429 Too Many Requests', 'rate', { 'retry-after': '1' });
const NOT_WRITTEN = refused('503 Service Unavailable', 'commit', { 'retry-after': '10' });

/** Lines of the log, without what the machine adds. */
const lines = () =>
  at.logged.text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const { time: _, pid: __, hostname: ___, ...rest } = JSON.parse(line) as Record<string, unknown>;
      return rest;
    });
const refusal = (reason: string, more: object = {}) => ({
  level: WARN,
  event: 'webhook.rejected',
  reason,
  count: 1,
  msg: 'a request to the webhook listener was refused',
  ...more,
});
const received = (body: string, more: object = {}) => ({
  level: INFO,
  event: 'webhook.received',
  digest: digestOf(identityOf(Buffer.from(body))),
  eventType: 'threshold_reached',
  occurredAt: '2026-11-21T00:00:00.000Z',
  via: 'push',
  msg: 'an event is in the inbox',
  ...more,
});

describe('a delivery', () => {
  it('is answered 204, counted and told once, and its repeat is told to who looks closely', async () => {
    await start();
    const body = anEvent();
    expect([await send({ body }), await send({ body })]).toEqual([TAKEN, TAKEN]);
    expect(lines()).toEqual([
      received(body),
      received(body, { level: DEBUG, event: 'webhook.repeated', msg: 'an event came again' }),
    ]);
    expect({ received: at.received, rejected: at.rejected, inserted }).toEqual({
      received: ['threshold_reached'],
      rejected: [],
      inserted: 1,
    });
    expect(shown(at.inbox)).toMatchObject([{ payload: body, receivedAtMs: clock.wallMs() }]);
    expect(at.inbox.toRelay(9, 0)[0]!.signatures).toEqual({ sha256: undefined, sha1: undefined });
    for (let i = 0; i < 3; i++) await send();
    // Nothing is waited for any more but what the server looks at by itself.
    expect(clock.waiting).toBeLessThanOrEqual(1);
  });

  it.each([
    ['{"event_type":"brand_new"}', 'brand_new'],
    ['', ''],
  ])('of nothing that we know (%s) is taken, and told so', async (body, eventType) => {
    await start();
    expect(await send({ body })).toEqual(TAKEN);
    const { occurredAt: _, ...line } = received(body, { eventType, unrecognised: true });
    expect(lines()).toEqual([line]);
    expect([at.received, inserted]).toEqual([['unrecognised'], 1]);
  });

  it('keeps its signatures where they are to go on with it', async () => {
    await start({ keepsSignatures: true, acceptSha1: true });
    const [one, two] = [anEvent(), anEvent()];
    await send({ body: one });
    await send({ body: two, headers: { [SHA1]: 'sha1=00' } });
    expect(at.inbox.toRelay(9, 0).map(({ signatures }) => signatures)).toEqual([
      { sha256: signature(one), sha1: undefined },
      { sha256: signature(two), sha1: 'sha1=00' },
    ]);
  });

  it('by SHA-1 alone is taken where that is accepted, and warned of once a day', async () => {
    await start({ acceptSha1: true });
    const bySha1 = async () => {
      const body = anEvent();
      at.logged.text = '';
      expect(await send({ body, headers: { [SHA256]: undefined, [SHA1]: sha1(body) } })).toEqual(TAKEN);
      return lines().filter(({ event }) => event !== 'webhook.received');
    };
    const warned = {
      level: WARN,
      event: 'webhook.sha1_accepted',
      msg: 'a delivery came with the deprecated SHA-1 signature alone; it is accepted by WEBHOOK_ACCEPT_SHA1',
    };
    expect([await bySha1(), await bySha1()]).toEqual([[warned], []]);
    await clock.advance(DAY - 1);
    expect(await bySha1()).toEqual([]);
    await clock.advance(1);
    expect([await bySha1(), await bySha1()]).toEqual([[warned], []]);
  });

  it.each([
    ['/webhook', TAKEN],
    ['/webhook?', TAKEN],
    ['/webhook?a=/b?c', TAKEN],
    ['http://gateway.example/webhook', TAKEN],
    ['http://gateway.example/webhook?x=1', TAKEN],
    ['https://gateway.example:8443/webhook', TAKEN],
    ['/', NO_PATH],
    ['/webhook/', NO_PATH],
    ['/other?/webhook', NO_PATH],
    ['http://gateway.example/other', NO_PATH],
    ['http://gateway.example', NO_PATH],
    ['http://:/webhook', NO_PATH],
    ['*', NO_PATH],
  ])('may be sent to %s, in whatever form', async (target, answer) => {
    await start();
    expect(await send({ line: `POST ${target}` })).toEqual(answer);
    expect(at.rejected).toEqual(answer === TAKEN ? [] : ['path']);
  });

  it('that waits to be asked for its body is asked, unless its head says enough', async () => {
    await start();
    const headers = { Expect: '100-continue' };
    const body = anEvent();
    const [head] = textOf({ headers, body }).split('{');
    const asked = open(head!);
    await until(() => asked.text.endsWith('\r\n\r\n'));
    expect(asked.text).toBe('HTTP/1.1 100 Continue\r\n\r\n');
    asked.write(body);
    expect((await asked.answers())[1]).toEqual(TAKEN);
    const unasked = open(textOf({ headers: { ...headers, [SHA256]: undefined }, body: anEvent() }).split('{')[0]!);
    await until(() => unasked.text.includes('}'));
    await clock.advance(2_000);
    expect(await unasked.answers()).toEqual([UNSIGNED]);
  });
});

describe('what is refused', () => {
  it('is answered by the first of its faults', async () => {
    at.secrets = [];
    await start({ limits: { burst: 1, requestsPerSecond: 1, bodyBytes: 200 } });
    const large = 'x'.repeat(201);
    const faults: Sent = { line: 'PUT /other', headers: { [SHA256]: undefined }, body: large };
    const answers: RawAnswer[] = [];
    const ask = async (sent: Sent) => answers.push(await send(sent));
    await ask(faults);
    await ask(faults);
    await clock.advance(1_000);
    await ask({ ...faults, line: 'PUT /webhook' });
    await clock.advance(1_000);
    await ask({ ...faults, line: 'POST /webhook' });
    at.secrets = [SECRET];
    await clock.advance(1_000);
    await ask({ ...faults, line: 'POST /webhook' });
    await clock.advance(1_000);
    await ask({ headers: { [SHA256]: undefined }, body: 'x'.repeat(200) });
    await clock.advance(1_000);
    await ask({ headers: { [SHA256]: signature('other') }, body: 'x'.repeat(200) });
    await ask({ body: 'x'.repeat(200) });
    await ask({ body: 'y'.repeat(200) });
    expect(answers).toEqual([NO_PATH, TOO_OFTEN, NO_METHOD, NO_SECRET, TOO_LARGE, UNSIGNED, FORGED, TAKEN, TOO_OFTEN]);
    const reasons = [
      'path',
      'rate',
      'method',
      'no_secret',
      'too_large',
      'signature_missing',
      'signature_wrong',
      'rate',
    ];
    expect(at.rejected).toEqual(reasons);
    // The second `rate` doubles it.
    expect(lines().filter(({ event }) => event === 'webhook.rejected')).toEqual(
      reasons.map((reason, i) => refusal(reason, i === 7 ? { count: 2 } : {})),
    );
    expect(at.inbox.list()).toHaveLength(1);
  });

  it.each(['GET', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])('is every method but POST: %s', async (method) => {
    await start();
    expect(await send({ line: `${method} /webhook` })).toEqual(NO_METHOD);
  });

  it.each([
    ['as promised', (body: string) => ({ 'Content-Length': body.length }), (body: string) => body],
    [
      'in chunks',
      () => ({ 'Content-Length': undefined, 'Transfer-Encoding': 'chunked' }),
      (body: string) => `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`,
    ],
  ])('is a body of a byte more than the bound, %s', async (_, headersOf, written) => {
    await start({ limits: { bodyBytes: 64 } });
    const ask = (body: string) =>
      send({ headers: { ...headersOf(body), [SHA256]: signature(body) }, body: written(body) });
    expect([await ask('x'.repeat(64)), await ask('x'.repeat(65))]).toEqual([TAKEN, TOO_LARGE]);
    expect(at.rejected).toEqual(['too_large']);
  });

  it('over the rate comes back a token at a time, for strangers and deliveries each', async () => {
    await start({ limits: { burst: 2, requestsPerSecond: 1 } });
    const asks: Record<string, () => Promise<RawAnswer>> = {
      unsigned: () => send({ headers: { [SHA256]: undefined } }),
      forged: () => send({ headers: { [SHA256]: signature('other') } }),
      signed: () => send(),
    };
    const all = async (...kinds: string[]) => {
      const answers: string[] = [];
      for (const kind of kinds) answers.push((await asks[kind]!()).status.slice(0, 3));
      return answers.join(' ');
    };
    expect(await all('unsigned', 'forged', 'forged', 'unsigned')).toBe('401 401 429 429');
    expect(await all('signed', 'signed', 'signed')).toBe('204 204 429');
    await clock.advance(999);
    expect(await all('signed', 'forged', 'unsigned')).toBe('429 429 429');
    await clock.advance(1);
    expect(await all('signed', 'forged', 'signed', 'unsigned')).toBe('204 401 429 429');
    await clock.advance(60_000);
    expect(await all('signed', 'signed', 'signed', 'unsigned', 'unsigned', 'unsigned')).toBe('204 204 429 401 401 429');
    expect(new Set(at.rejected)).toEqual(new Set(['signature_missing', 'signature_wrong', 'rate']));
  });

  it('with a signature that nobody accepts is one without', async () => {
    await start();
    const body = anEvent();
    expect(await send({ body, headers: { [SHA256]: undefined, [SHA1]: sha1(body) } })).toEqual(UNSIGNED);
  });

  it.each([
    ['the code of its error', new StoreError('full', { code: 'inbox.disk_full' }), 'inbox.disk_full'],
    ['its words where it has no code', new Error('no\n disk'), 'no disk'],
  ])('because it cannot be written says %s', async (_, error, why) => {
    await start();
    at.before = () => {
      throw error;
    };
    expect(await send()).toEqual(NOT_WRITTEN);
    expect(lines()).toEqual([refusal('commit', { why })]);
    expect([at.rejected, at.received, inserted]).toEqual([['commit'], [], 0]);
    expect(clock.waiting).toBeLessThanOrEqual(1);
  });

  it('because the disk takes too long is answered at the bound, and counted as come when it is there', async () => {
    await start({ limits: { commitMs: 8_000 } });
    const disk = Promise.withResolvers<void>();
    at.before = () => disk.promise;
    const body = anEvent();
    const connection = open(textOf({ body }));
    await until(() => at.batches.length === 1);
    await clock.advance(7_999);
    expect(connection.text).toBe('');
    await clock.advance(1);
    expect(await connection.answers()).toEqual([NOT_WRITTEN]);
    expect([lines(), at.received]).toEqual([[refusal('commit', { why: 'inbox.slow' })], []]);
    disk.resolve();
    await until(() => inserted === 1);
    expect(lines().slice(1)).toEqual([received(body)]);
    expect(at.received).toEqual(['threshold_reached']);
  });

  it('because too many wait for the disk says so at once', async () => {
    await start({ limits: { waiting: 1 } });
    const disk = Promise.withResolvers<void>();
    at.before = () => disk.promise;
    const first = open(textOf({}));
    await until(() => at.batches.length === 1);
    const before = clock.waiting;
    const second = open(textOf({}));
    // It has begun to wait for the disk.
    await until(() => clock.waiting > before);
    expect(await send()).toEqual(NOT_WRITTEN);
    expect(lines()).toEqual([refusal('commit', { why: 'inbox.busy' })]);
    disk.resolve();
    expect([await first.answers(), await second.answers()]).toEqual([[TAKEN], [TAKEN]]);
  });

  it('by our own self-test is counted apart and told in whispers; nobody else is', async () => {
    await start({}, { isSelfTest: (mark) => mark === 'ours' });
    const marked = (mark: string | undefined) => send({ headers: { [SHA256]: undefined, [SELF_TEST_HEADER]: mark } });
    expect([await marked('ours'), await marked('a guess'), await marked(''), await marked(undefined)]).toEqual(
      Array(4).fill(UNSIGNED),
    );
    expect(at.rejected).toEqual(['self_test', ...Array(3).fill('signature_missing')]);
    expect(lines()).toEqual([
      { level: DEBUG, event: 'webhook.self_test', msg: 'a request of our own self-test was refused' },
      refusal('signature_missing'),
      refusal('signature_missing', { count: 2 }),
    ]);
  });

  it('is no self-test where nobody tells one', async () => {
    await start();
    await send({ headers: { [SHA256]: undefined, [SELF_TEST_HEADER]: 'ours' } });
    expect(at.rejected).toEqual(['signature_missing']);
  });
});
