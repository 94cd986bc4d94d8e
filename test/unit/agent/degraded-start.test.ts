import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { request } from 'node:http';
import { request as requestByTls } from 'node:https';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { DegradedStart } from '../../../src/agent/degraded-start.ts';
import { Listeners } from '../../../src/agent/listeners.ts';
import { Certificates } from '../../../src/base/certificates.ts';
import { StoreError } from '../../../src/base/errors.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { HEALTHY } from '../doubles/no-page.ts';
import { telling } from '../doubles/open-flow.ts';

let folder: string;
let clock: ManualClock;
let start: DegradedStart;
let listeners: Listeners;
let logged: { event: string; attempts?: number }[];
let told: string[];
let isAlive: () => boolean;
/** Times at which startup tried to open the stores. */
let triedMs: number[];
/** Error of the attempts, if any. */
let failure: Error | undefined;

const path = (name: string) => join(folder, `${name}.sock`);
const unavailable = (message = 'the disk is full') =>
  new StoreError(message, { code: 'store.unavailable', hint: 'Free up space.' });

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-waiting-'));
  clock = new ManualClock();
  logged = [];
  told = [];
  triedMs = [];
  failure = unavailable();
  isAlive = () => false;
  start = make();
});
afterEach(async () => {
  await start.stop();
  await listeners.stop();
  rmSync(folder, { recursive: true, force: true });
});

function make(tls?: { cert: string; key: string }, opsToken?: string): DegradedStart {
  const log = telling((fields) => void logged.push(fields));
  listeners = new Listeners({
    settings: {
      ingestListen: { path: path('ingest') },
      webhookListen: { path: path('webhook') },
      webhookTlsCert: tls?.cert,
      webhookTlsKey: tls?.key,
      opsListen: { path: path('ops') },
      opsToken,
    },
    certificates: new Certificates(),
    clock,
    log,
    unavailable: () => start.unavailable,
    session: () => HEALTHY.session,
  });
  return new DegradedStart({
    clock,
    log,
    listeners,
    controlPath: path('control'),
    service: {
      ready: async (status) => void told.push(`ready ${status}`),
      reloading: async () => void told.push('reloading'),
      status: async (status) => void told.push(`status ${status}`),
      startWatchdog: (alive) => {
        isAlive = alive;
      },
    },
  });
}

async function open(): Promise<string> {
  triedMs.push(clock.monotonicMs() - 1_000);
  if (failure) throw failure;
  return 'the stores';
}

/** Resolves when the listeners are open and the next attempt is scheduled. */
async function wait(): Promise<{ over: Promise<string | undefined> }> {
  const over = start.until(open);
  over.catch(() => {});
  // Listeners also use this clock, so a single timer does not prove that startup is waiting.
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

describe('pre-startup work', () => {
  it('keeps listeners open while the disk rejects writes, and continues when the disk recovers', async () => {
    const answers: string[] = [];
    const over = start.during(
      new StoreError('it drains', { code: 'store.draining' }),
      async ({ report, untilOpen }) => {
        answers.push((await ask('ingest')).text);
        await untilOpen(open);
        report(new StoreError('it drains on', { code: 'store.draining' }));
        answers.push((await ask('ops')).text);
      },
    );
    await vi.waitFor(() => expect(triedMs.length).toBe(1));
    expect((await ask('ops')).text).toContain('the disk is full');
    expect((await ask('control')).text).toContain('the agent has not finished starting: the disk is full');
    failure = undefined;
    await vi.waitFor(() => expect(clock.waiting).toBeGreaterThanOrEqual(1));
    await clock.advance(1_000);
    expect(await over).toBe(true);
    expect(answers).toEqual([expect.stringContaining('store.draining'), expect.stringContaining('it drains on')]);
    expect(logged.map(({ event, attempts }) => [event, attempts])).toEqual([
      ['store.unavailable', 1],
      ['store.available', 2],
    ]);
    expect(existsSync(path('control'))).toBe(false);
    expect((await ask('ingest')).text).toContain('agent.starting');
  });

  it('stops at shutdown and on errors that a retry cannot fix', async () => {
    const during = () =>
      start.during(new StoreError('it drains', { code: 'store.draining' }), async ({ untilOpen }) => {
        await untilOpen(open);
      });
    const stopped = during();
    await vi.waitFor(() => expect(triedMs.length).toBe(1));
    await start.stop();
    expect(await stopped).toBe(false);
    await listeners.stop();
    start = make();
    failure = new StoreError('another agent has it', { code: 'store.locked' });
    await expect(during()).rejects.toThrow('another agent has it');
  });
});

describe('startup without a usable state folder', () => {
  it('reports nothing if the first attempt succeeds', async () => {
    failure = undefined;
    expect(await start.until(open)).toBe('the stores');
    expect([logged, told]).toEqual([[], []]);
  });

  it('retries with delays doubling from 1 s to 30 s, and continues without intervention', async () => {
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
    expect(start.isWaiting).toBe(false);
  });

  it('immediately reports a changed reason in the log, health and systemd status', async () => {
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
      problems: ['startup is suspended and values are not accepted: the disk fails. Free up space.'],
      notes: [],
      session: HEALTHY.session,
    });
  });

  it('reports only the code of the problem to requests without OPS_TOKEN', async () => {
    start = make(undefined, 'the-token');
    await wait();
    expect(JSON.parse((await ask('ops', { method: 'GET' })).text)).toMatchObject({ problems: ['store.unavailable'] });
  });

  it('fails immediately on an error that a retry cannot fix', async () => {
    const { over } = await wait();
    failure = new StoreError('in use by process 7', { code: 'store.locked' });
    await clock.advance(1_000);
    await expect(over).rejects.toBe(failure);
  });

  it('fails without READY if a listener cannot be opened', async () => {
    rmSync(folder, { recursive: true });
    await expect(start.until(open)).rejects.toThrow('cannot listen');
    expect(told).toEqual([]);
  });

  it('stops immediately without an error at shutdown', async () => {
    const { over } = await wait();
    await start.stop();
    expect(await over).toBeUndefined();
    expect((await ask('ingest')).text).toContain('the agent is stopping');
  });

  it('stops notifying the watchdog if an attempt hangs', async () => {
    const { promise: stuck, resolve: end } = Promise.withResolvers<void>();
    let attempts = 0;
    const over = start.until(async () => {
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

describe('listeners during a suspended startup', () => {
  it.each(['ingest', 'webhook', 'ops'])(
    'respond to all %s requests with 503 and the time of the next attempt',
    async (name) => {
      await wait();
      for (const method of ['GET', 'POST', 'PUT', 'HEAD']) {
        const { status, headers } = await ask(name, { method });
        expect([method, status, headers['retry-after']]).toEqual([method, 503, '2']);
      }
    },
  );

  it('respond to large requests before and after receiving the body', async () => {
    await wait();
    expect((await ask('ingest', { body: Buffer.alloc(8 << 20) })).status).toBe(503);
    expect((await ask('ingest', { expect: '100-continue' })).status).toBe(503);
  });

  it('report the code of the reason without details to programs', async () => {
    await wait();
    const reason = 'startup is not complete (store.unavailable)';
    expect(JSON.parse((await ask('webhook')).text)).toEqual({ error: `events are not accepted: ${reason}` });
    expect(JSON.parse((await ask('ingest')).text)).toMatchObject({ error: `values are not accepted: ${reason}` });
  });

  it('use TLS if the webhook has a certificate', async () => {
    const certificates = join(import.meta.dirname, '../../fixtures/certificates');
    const [key, cert] = [join(certificates, 'server.key'), join(certificates, 'self-signed.pem')];
    start = make({ cert, key });
    await wait();
    const status = await new Promise((resolve, reject) => {
      const options = { socketPath: path('webhook'), method: 'POST', rejectUnauthorized: false, agent: false };
      const outgoing = requestByTls(options, (answer) => resolve(answer.resume().statusCode));
      outgoing.on('error', reject).end('{}');
    });
    expect(status).toBe(503);
  });

  it('do not delay shutdown because of an idle connection', async () => {
    const { over } = await wait();
    const idle = createConnection(path('ingest'));
    await new Promise((resolve) => idle.once('connect', resolve));
    const closed = new Promise((resolve) => idle.once('close', resolve));
    await start.stop();
    await listeners.stop();
    expect(await over).toBeUndefined();
    await closed;
  });
});

describe('reload during a suspended startup', () => {
  it('is postponed with a reason, and its completion is reported to systemd', async () => {
    await wait();
    told.length = 0;
    await start.postponeReload();
    const reason = expect.stringContaining('disk is full');
    expect(logged.at(-1)).toMatchObject({ event: 'config.reload_postponed', reason });
    expect(told).toEqual(['reloading', 'ready waiting: the disk is full']);
  });
});
