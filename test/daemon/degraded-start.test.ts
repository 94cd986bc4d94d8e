import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { request as requestByTls } from 'node:https';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { StoreError } from '../../src/base/errors.ts';
import { DegradedStart } from '../../src/daemon/degraded-start.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { telling } from '../doubles/open-flow.ts';

let folder: string;
let clock: ManualClock;
let room: DegradedStart;
let logged: { event: string; attempts?: number }[];
let told: string[];
let isAlive: () => boolean;
/** When the stores were asked to open. */
let triedMs: number[];
/** What opening fails with, as long as it does. */
let failure: Error | undefined;

const path = (name: string) => join(folder, `${name}.sock`);
const unavailable = (message = 'the disk is full') =>
  new StoreError(message, { code: 'store.unavailable', hint: 'Free space.' });

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-waiting-'));
  clock = new ManualClock();
  logged = [];
  told = [];
  triedMs = [];
  failure = unavailable();
  isAlive = () => false;
  room = make();
});
afterEach(async () => {
  await room.stop();
  rmSync(folder, { recursive: true });
});

function make(tls?: { cert: string; key: string }): DegradedStart {
  return new DegradedStart({
    settings: {
      ingestListen: { path: path('ingest') },
      webhookListen: { path: path('webhook') },
      webhookTlsCert: tls?.cert,
      webhookTlsKey: tls?.key,
      opsListen: { path: path('ops') },
    },
    clock,
    log: telling((fields) => void logged.push(fields)),
    session: () => ({ state: 'idle' }),
    controlPath: path('control'),
    service: {
      ready: async (status) => void told.push(`ready ${status}`),
      reloading: async () => void told.push('reloading'),
      status: async (status) => void told.push(`status ${status}`),
      startWatchdog: (alive) => {
        isAlive = alive;
      },
    },
    listenRetries: 0,
  });
}

async function open(): Promise<string> {
  triedMs.push(clock.monotonicMs() - 1_000);
  if (failure) throw failure;
  return 'the stores';
}

/** Begins to wait, until the listeners are open and the next attempt has its time. */
async function wait(): Promise<{ over: Promise<string | undefined> }> {
  const over = room.until(open);
  over.catch(() => {});
  // Listeners wait by this clock too, so their timers do not show that the start sleeps.
  await vi.waitFor(() => expect(told.some((line) => line.startsWith('ready'))).toBe(true));
  await vi.waitFor(() => expect(clock.waiting).toBeGreaterThanOrEqual(1));
  return { over };
}

interface Answer {
  status: number;
  text: string;
  headers: Record<string, unknown>;
}

function ask(name: string, options: { method?: string; expect?: string; body?: Buffer } = {}): Promise<Answer> {
  const { method = 'POST', body } = options;
  const headers = options.expect === undefined ? {} : { Expect: options.expect };
  return new Promise((resolve, reject) => {
    const outgoing = request({ socketPath: path(name), path: '/any', method, headers, agent: false }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (piece: string) => {
        text += piece;
      });
      answer.on('end', () => resolve({ status: answer.statusCode!, text, headers: answer.headers }));
    });
    outgoing.on('error', reject);
    if (options.expect === undefined) outgoing.end(body);
    else outgoing.flushHeaders();
  });
}

describe('what is done before a start', () => {
  it('waits for a disk that takes no writes meanwhile, the listeners open all the time, and goes on', async () => {
    const answers: string[] = [];
    const over = room.during(new StoreError('it drains', { code: 'store.draining' }), async ({ tell, untilOpen }) => {
      answers.push((await ask('ingest')).text);
      await untilOpen(open);
      tell(new StoreError('it drains on', { code: 'store.draining' }));
      answers.push((await ask('ops')).text);
    });
    await vi.waitFor(() => expect(triedMs.length).toBe(1));
    expect((await ask('ops')).text).toContain('the disk is full');
    expect((await ask('control')).text).toContain('the daemon waits at its start: the disk is full');
    failure = undefined;
    await vi.waitFor(() => expect(clock.waiting).toBeGreaterThanOrEqual(1));
    await clock.advance(1_000);
    expect(await over).toBe(true);
    expect(answers).toEqual([expect.stringContaining('it drains'), expect.stringContaining('it drains on')]);
    expect(logged.map(({ event, attempts }) => [event, attempts])).toEqual([
      ['store.unavailable', 1],
      ['store.available', 2],
    ]);
    expect(['ingest', 'ops', 'control'].filter((name) => existsSync(path(name)))).toEqual([]);
  });

  it('ends with a stop while it waits, and with what another attempt cannot mend', async () => {
    const during = () =>
      room.during(new StoreError('it drains', { code: 'store.draining' }), async ({ untilOpen }) => {
        await untilOpen(open);
      });
    const stopped = during();
    await vi.waitFor(() => expect(triedMs.length).toBe(1));
    await room.stop();
    expect(await stopped).toBe(false);
    room = make();
    failure = new StoreError('another daemon has it', { code: 'store.locked' });
    await expect(during()).rejects.toThrow('another daemon has it');
  });
});

describe('the wait for the state folder', () => {
  it('opens no listener and tells nobody where the first attempt succeeds', async () => {
    failure = undefined;
    expect(await room.until(open)).toBe('the stores');
    expect([logged, told, existsSync(path('ingest'))]).toEqual([[], [], false]);
  });

  it('tries after 1 s, doubling to 30 s, says so in the rhythm of all repeats, and goes on by itself', async () => {
    const { over } = await wait();
    for (let second = 0; second < 151; second++) {
      await clock.advance(1_000);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(triedMs.map((ms) => ms / 1_000)).toEqual([0, 1, 3, 7, 15, 31, 61, 91, 121, 151]);
    expect(logged.map(({ event, attempts }) => [event, attempts])).toEqual([
      ['store.unavailable', 1],
      ['store.unavailable', 2],
      ['store.unavailable', 4],
      ['store.unavailable', 8],
    ]);
    expect(isAlive()).toBe(true);
    failure = undefined;
    await clock.advance(30_000);
    expect(await over).toBe('the stores');
    expect(logged.at(-1)).toMatchObject({ event: 'store.available', attempts: 11, waitedMs: 181_000 });
    expect(['ingest', 'webhook', 'ops'].filter((name) => existsSync(path(name)))).toEqual([]);
    expect(room.isOpen).toBe(false);
  });

  it('says at once, to the log, to health and to systemd, when the reason is another one', async () => {
    await wait();
    failure = unavailable('the disk fails');
    await clock.advance(1_000);
    await vi.waitFor(() => expect(told).toHaveLength(2));
    expect(logged.map((fields) => (fields as { error?: string }).error)).toEqual([
      'the disk is full',
      'the disk fails',
    ]);
    expect(told).toEqual(['ready waiting: the disk is full', 'status waiting: the disk fails']);
    expect(JSON.parse((await ask('ops', { method: 'GET' })).text)).toEqual({
      status: 'unavailable',
      problems: ['the start waits, nothing is taken in: the disk fails. Free space.'],
      session: { state: 'idle' },
    });
  });

  it('is no wait for what another attempt cannot mend', async () => {
    const { over } = await wait();
    failure = new StoreError('in use by process 7', { code: 'store.locked' });
    await clock.advance(1_000);
    await expect(over).rejects.toBe(failure);
    expect(existsSync(path('ops'))).toBe(false);
  });

  it('ends with the address that is in use, and leaves no other listener open', async () => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(path('webhook'), resolve));
    await expect(room.until(open)).rejects.toMatchObject({ code: 'webhook.listen' });
    expect(['ingest', 'ops'].filter((name) => existsSync(path(name)))).toEqual([]);
    await new Promise((resolve) => other.close(resolve));
  });

  it('ends at once when the agent stops, without an error', async () => {
    const { over } = await wait();
    await room.stop();
    expect(await over).toBeUndefined();
    expect(existsSync(path('ingest'))).toBe(false);
  });

  it('feeds no watchdog where an attempt hangs for longer than a start may take', async () => {
    const { promise: stuck, resolve: end } = Promise.withResolvers<void>();
    let attempts = 0;
    const over = room.until(async () => {
      if (attempts++ === 0) throw unavailable();
      await stuck;
      return 'the stores';
    });
    await vi.waitFor(() => expect(logged).toHaveLength(1));
    await clock.advance(1_000);
    expect(isAlive()).toBe(true);
    await clock.advance(300_000);
    expect(isAlive()).toBe(false);
    end();
    expect(await over).toBe('the stores');
  });
});

describe('the listeners meanwhile', () => {
  it.each(['ingest', 'webhook', 'ops'])(
    '(%s) answer every request 503, with the time of the next attempt',
    async (name) => {
      await wait();
      for (const method of ['GET', 'POST', 'PUT', 'HEAD']) {
        const { status, headers } = await ask(name, { method });
        expect([method, status, headers['retry-after']]).toEqual([method, 503, '2']);
      }
    },
  );

  it('let a sender of megabytes read its answer, and one that asks first keep them', async () => {
    await wait();
    expect((await ask('ingest', { body: Buffer.alloc(8 << 20) })).status).toBe(503);
    expect((await ask('ingest', { expect: '100-continue' })).status).toBe(503);
  });

  it('tell strangers at the webhook nothing of this machine', async () => {
    await wait();
    expect((await ask('webhook')).text).toBe('{"error":"events cannot be stored now"}\n');
    expect((await ask('ingest')).text).toContain('the disk is full');
  });

  it('speak TLS where the webhook has a certificate of its own', async () => {
    const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
    const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-subj', '/CN=x'];
    execFileSync('openssl', ['req', '-x509', ...kind, '-keyout', key, '-out', cert], { stdio: 'ignore' });
    room = make({ cert, key });
    await wait();
    const status = await new Promise((resolve, reject) => {
      const options = { socketPath: path('webhook'), method: 'POST', rejectUnauthorized: false, agent: false };
      const outgoing = requestByTls(options, (answer) => resolve(answer.resume().statusCode));
      outgoing.on('error', reject).end('{}');
    });
    expect(status).toBe(503);
  });

  it('keep no stop waiting for a connection that says nothing', async () => {
    const { over } = await wait();
    const idle = createConnection(path('ingest'));
    await new Promise((resolve) => idle.once('connect', resolve));
    const closed = new Promise((resolve) => idle.once('close', resolve));
    await room.stop();
    expect(await over).toBeUndefined();
    await closed;
  });
});

describe('a reload meanwhile', () => {
  it('is refused in words, and systemd learns that it is over', async () => {
    await wait();
    told.length = 0;
    await room.refuseReload();
    expect(logged.at(-1)).toMatchObject({ event: 'config.refused', error: expect.stringContaining('disk is full') });
    expect(told).toEqual(['reloading', 'ready waiting: the disk is full']);
  });
});
