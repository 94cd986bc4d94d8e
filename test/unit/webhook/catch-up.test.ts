import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../../src/base/database.ts';
import { Redactor } from '../../../src/base/redactor.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { CatchUp, type CatchUpOptions } from '../../../src/webhook/catch-up.ts';
import { Inbox } from '../../../src/webhook/inbox.ts';
import { readEvent } from '../../../src/webhook/received-event.ts';
import { WebhookRegistration } from '../../../src/webhook/registration.ts';
import { RegistrationFile } from '../../../src/webhook/registration-file.ts';
import { advance, planPass } from '../../../src/webhook/watermark.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { anEvent, arrivalsOf, asyncInbox, Listening, LogCapture, until } from './parts/listening.ts';
import { type StubAnswer, StubPlatform, TestPlatform } from './parts/platforms.ts';

const NOW = Date.UTC(2026, 10, 21, 12);
const DAY = 86_400_000;

interface Entry {
  id: number;
  status: string;
  payload?: unknown;
  last_send_at?: string;
}

describe('webhook catch-up', () => {
  let stub: StubPlatform;
  let folder: string;
  let database: Database;
  let inbox: Inbox;
  let clock: ManualClock;
  let logged: LogCapture;
  let entries: Entry[];
  let scope: string;
  let platform: TestPlatform;
  let platformMs: number;
  const resent: number[][] = [];

  /** Responds like the platform, with at most three entries per page. */
  function answer({ method, query, body }: { method: string; query: URLSearchParams; body: string }): StubAnswer {
    if (method === 'POST') {
      resent.push((JSON.parse(body) as { webhook_events: { id: number }[] }).webhook_events.map(({ id }) => id));
      return { status: 204 };
    }
    const from = query.get('occurred_at_from');
    const chosen = entries.filter((entry) => {
      const at = (entry?.payload as { occurred_at?: string } | undefined)?.occurred_at;
      return !from || !at || Date.parse(at) >= Date.parse(from);
    });
    const perPage = Math.min(3, Number(query.get('per_page')));
    const page = Number(query.get('page'));
    return {
      status: 200,
      headers: { date: new Date(platformMs).toUTCString() },
      json: {
        events: chosen.slice((page - 1) * perPage, page * perPage),
        pagination: {
          page,
          page_count: Math.max(1, Math.ceil(chosen.length / perPage)),
          per_page: perPage,
          total_count: chosen.length,
        },
      },
    };
  }

  function catchUp(options: Partial<CatchUpOptions> = {}, more = {}): CatchUp {
    return new CatchUp(
      { pollMs: 300_000, listening: true, ...options },
      {
        platform,
        inbox: asyncInbox(inbox),
        arrivals: arrivalsOf(inbox, logged.log),
        registered: () => ({ application: 1, webhook: 2, scope }),
        clock,
        log: logged.log,
        ...more,
      },
    );
  }

  const event = (occurredAtMs = NOW) => JSON.parse(anEvent({ occurred_at: new Date(occurredAtMs).toISOString() }));
  const reads = () => stub.requests.filter(({ method }) => method === 'GET');

  beforeEach(async () => {
    stub = await new StubPlatform().start();
    stub.answer = answer;
    folder = mkdtempSync(join(tmpdir(), 'catch-up-'));
    database = openDatabase(join(folder, 'inbox.db'));
    clock = new ManualClock(NOW);
    inbox = Inbox.open(database, clock, 'boot');
    logged = new LogCapture();
    entries = [];
    scope = 'scope-1';
    platform = new TestPlatform(() => stub.url, clock);
    platformMs = NOW;
    resent.length = 0;
  });
  afterEach(async () => {
    await stub.stop();
    database.close();
    rmSync(folder, { recursive: true });
  });

  it('inserts unknown events from all pages and in all states', async () => {
    entries = ['pending', 'delivered', 'cancelled', 'failed', 'failed', 'delivered', 'pending'].map((status, i) => ({
      id: i + 1,
      status,
      payload: event(),
    }));
    expect(await catchUp().catchUpNow()).toEqual({ listed: 7, taken: 7, asked: 0, rejected: 0 });
    expect(inbox.list()).toHaveLength(7);
    expect(reads()[0]!.query.get('status')).toBeNull();
    expect(await catchUp().catchUpNow()).toMatchObject({ taken: 0 });
  });

  it('recognises pushed events with a different member order', async () => {
    const pushed = event();
    const later = event();
    inbox.insertMany([readEvent(new TextEncoder().encode(JSON.stringify(pushed, null, 1)), 0)]);
    const { event_type, occurred_at, content } = pushed;
    entries = [
      { id: 1, status: 'delivered', payload: { content, occurred_at, event_type } },
      { id: 2, status: 'pending', payload: JSON.stringify(later) },
    ];
    expect(await catchUp().catchUpNow()).toMatchObject({ taken: 1 });
    expect(inbox.insertMany([readEvent(new TextEncoder().encode(JSON.stringify(later)), 0)])).toEqual(['seen']);
  });

  it('recognises a delivery by its ID within a registration', async () => {
    entries = [{ id: 1, status: 'failed', payload: event() }];
    await catchUp().catchUpNow();
    entries = [{ id: 1, status: 'delivered', payload: event() }];
    expect(await catchUp().catchUpNow()).toMatchObject({ taken: 0 });
    scope = 'scope-2';
    entries = [{ id: 1, status: 'failed', payload: event() }];
    expect(await catchUp().catchUpNow()).toMatchObject({ taken: 1 });
  });

  it('preserves all digits of large IDs', async () => {
    const text = anEvent().replace('"id":881', '"id":881,"big":9007199254740993');
    inbox.insertMany([readEvent(new TextEncoder().encode(text), 0)]);
    stub.answer = () => ({ status: 200, text: `{"webhook_events":[{"id":1,"status":"failed","payload":${text}}]}` });
    expect(await catchUp().catchUpNow()).toEqual({ listed: 1, taken: 0, asked: 0, rejected: 0 });
  });

  it('starts at the watermark with an overlap, including after a restart', async () => {
    entries = [1, 2, 3, 4].map((id) => ({ id, status: 'delivered', payload: event(NOW - DAY + id * 1000) }));
    stub.answer = (request) => (request.query.get('page') === '2' ? 'drop' : answer(request));
    await expect(catchUp().catchUpNow()).rejects.toMatchObject({ retryable: true });
    stub.answer = answer;
    await catchUp().catchUpNow();
    expect(
      reads()
        .slice(-2)
        .map(({ query }) => query.get('occurred_at_from')),
    ).toEqual([null, null]);
    await catchUp().catchUpNow();
    const from = Date.parse(reads().at(-1)!.query.get('occurred_at_from')!);
    expect(from).toBe(NOW - DAY + 4000 - 15 * 60_000);
  });

  it('overlaps by four days once per day', async () => {
    entries = [{ id: 1, status: 'delivered', payload: event(NOW) }];
    const running = catchUp();
    await running.catchUpNow();
    entries.push({ id: 2, status: 'failed', payload: event(NOW - 3 * DAY) });
    expect(await running.catchUpNow()).toMatchObject({ taken: 0 });
    platformMs += DAY;
    await clock.advance(DAY);
    expect(await running.catchUpNow()).toMatchObject({ taken: 1 });
  });

  it('overlaps by four days after the platform clock is set back', async () => {
    platformMs += 10 * DAY;
    clock.jumpWall(10 * DAY);
    entries = [{ id: 1, status: 'delivered', payload: event(NOW) }];
    await catchUp().catchUpNow();
    platformMs = NOW + DAY;
    clock.jumpWall(-9 * DAY);
    platform = new TestPlatform(() => stub.url, clock);
    entries.push({ id: 2, status: 'failed', payload: event(NOW - 3 * DAY) });
    await catchUp().catchUpNow();
    expect(await catchUp().catchUpNow()).toMatchObject({ taken: 1 });
  });

  it('reads the entire list if filters and pagination are not supported', async () => {
    await catchUp().catchUpNow();
    entries = [{ id: 1, status: 'failed', payload: event() }];
    await catchUp().catchUpNow();
    entries.push({ id: 2, status: 'failed', payload: event(NOW - 100 * DAY) });
    stub.answer = ({ query }) => {
      if (query.has('occurred_at_from')) return { status: 422 };
      return { status: 201, json: { webhook_events: entries } };
    };
    expect(await catchUp().catchUpNow()).toEqual({ listed: 2, taken: 1, asked: 0, rejected: 0 });
  });

  it('requests smaller pages if a page is too large', async () => {
    entries = Array.from({ length: 7 }, (_, i) => ({ id: i + 1, status: 'failed', payload: event() }));
    stub.answer = (request) =>
      Number(request.query.get('per_page')) > 4 ? { status: 200, text: '{"events":[{"id":1,"pay' } : answer(request);
    expect(await catchUp().catchUpNow()).toMatchObject({ listed: 7, taken: 7 });
  });

  it('requests a resend of deliveries without a payload, at most three times', async () => {
    entries = [
      { id: 1, status: 'failed' },
      { id: 2, status: 'pending' },
      { id: 3, status: 'cancelled', payload: null },
      { id: 4, status: 'failed', last_send_at: new Date(NOW - 200 * DAY).toISOString() },
      { id: 5, status: 'failed', payload: event() },
    ];
    expect(await catchUp().catchUpNow()).toEqual({ listed: 5, taken: 1, asked: 2, rejected: 0 });
    expect(resent.flat()).toEqual([1, 3]);
    for (let day = 0; day < 10; day++) {
      await catchUp().catchUpNow();
      await clock.advance(DAY);
    }
    expect(resent.flat().filter((id) => id === 1)).toHaveLength(3);
  });

  it('requests no resend without a listener', async () => {
    entries = [
      { id: 1, status: 'failed' },
      { id: 2, status: 'failed', payload: event() },
    ];
    expect(await catchUp({ listening: false }).catchUpNow()).toMatchObject({ taken: 1, asked: 0 });
  });

  it.each([404, 422])('continues if a resend is rejected with %i', async (status) => {
    entries = [
      { id: 1, status: 'failed' },
      { id: 2, status: 'failed', payload: event() },
    ];
    stub.answer = (request) => (request.method === 'POST' ? { status } : answer(request));
    expect(await catchUp().catchUpNow()).toEqual({ listed: 2, taken: 1, asked: 0, rejected: 1 });
    expect(inbox.note('catch_up.watermark')).toBeDefined();
    expect(logged.text).toContain('webhook.resend_refused');
  });

  it('ignores invalid entries', async () => {
    entries = [
      null,
      5,
      { id: 'x', status: 'failed', payload: event() },
      { id: 3, payload: 'no json' },
      { id: 4, payload: {} },
    ] as never;
    expect(await catchUp().catchUpNow()).toMatchObject({ taken: 3 });
    expect(inbox.list().filter(({ unrecognised }) => unrecognised)).toHaveLength(2);
  });

  it('ignores an event that is nested too deeply', async () => {
    entries = [{ id: 1, status: 'failed', payload: event() }];
    const page = JSON.stringify(entries[0]);
    const nested = `{"id":2,"status":"pending","payload":${'['.repeat(20_000)}${']'.repeat(20_000)}}`;
    stub.answer = () => ({ status: 200, text: `[${nested},${page}]` });
    expect(await catchUp().catchUpNow()).toMatchObject({ listed: 2, taken: 1 });
  });

  it('runs every WEBHOOK_POLL and after an outage, with retries', async () => {
    const stop = new AbortController();
    const idle = catchUp({ pollMs: 0 });
    idle.start(stop.signal);
    stub.answer = () => ({ status: 503 });
    const running = catchUp();
    running.start(stop.signal);
    await until(() => logged.text.includes('webhook.catch_up_failed'));
    entries = [{ id: 1, status: 'failed', payload: event() }];
    stub.answer = answer;
    await until(async () => {
      await clock.advance(1_000);
      return inbox.list().length === 1;
    });
    entries.push({ id: 2, status: 'failed', payload: event() });
    running.readSoon();
    await until(() => inbox.list().length === 2);
    entries.push({ id: 3, status: 'failed', payload: event() });
    await until(async () => {
      await clock.advance(60_000);
      return inbox.list().length === 3;
    });
    stop.abort();
    await Promise.all([running.stop(), idle.stop()]);
  });

  it('waits for the registration, and reports a missing webhook', async () => {
    let registered = false;
    let lost = 0;
    const running = catchUp(
      {},
      { registered: () => (registered ? { application: 1, webhook: 2, scope } : undefined), lost: () => lost++ },
    );
    await expect(running.catchUpNow()).rejects.toMatchObject({ code: 'webhook.not_registered' });
    const stop = new AbortController();
    running.start(stop.signal);
    await clock.advance(1_000);
    expect(stub.requests).toHaveLength(0);
    stub.answer = () => ({ status: 404 });
    registered = true;
    running.nowRegistered();
    await until(() => lost > 0);
    stop.abort();
    await running.stop();
  });
});

describe('watermark', () => {
  it('is not changed by an event from the future or the past', () => {
    const mark = advance(undefined, 's', { deep: true, newestMs: NOW + 365 * DAY, platformMs: NOW });
    expect(mark).toEqual({ scope: 's', upToMs: NOW, deepAtMs: NOW });
    expect(advance(mark, 's', { deep: false, newestMs: NOW - DAY, platformMs: NOW + 5 })).toMatchObject({
      upToMs: NOW,
    });
    expect(advance(mark, 's', { deep: false, newestMs: undefined, platformMs: NOW + 5 })).toMatchObject({
      upToMs: NOW,
    });
  });

  it('is reset for a different registration', () => {
    const mark = { scope: 's', upToMs: NOW };
    expect(planPass(mark, 'other', NOW)).toEqual({ fromMs: undefined, deep: true });
    expect(advance(mark, 'other', { deep: true, newestMs: undefined, platformMs: NOW })).toBeUndefined();
  });
});

describe('push, deliveries list and resend', () => {
  it('insert each event once', async () => {
    const at = new Listening();
    await at.start();
    const sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 }, webhookTimeoutMs: 2_000 });
    await sandbox.start();
    const platform = await TestPlatform.at(sandbox);
    const clock = new ManualClock();
    const registration = new WebhookRegistration(
      {
        url: at.url(),
        secret: undefined,
        eventTypes: ['asset_appeared', 'asset_disappeared'],
        application: undefined,
        reenable: 'failures',
      },
      {
        platform,
        file: new RegistrationFile(join(at.folder, 'webhook.json')),
        clock,
        log: at.logged.log,
        redactor: new Redactor(),
      },
    );
    await registration.register();
    at.secrets = [...registration.secrets()];
    const catchUp = new CatchUp(
      { pollMs: 0, listening: true },
      {
        platform,
        inbox: asyncInbox(at.inbox),
        arrivals: at.arrivals,
        registered: () => registration.current(),
        clock,
        log: at.logged.log,
      },
    );

    sandbox.revokePermission({ type: 'Asset', id: 882 });
    await until(() => at.inbox.list().length === 1);
    at.secrets = ['not the one: all pushes are refused'];
    sandbox.grantPermission({ type: 'Asset', id: 882 });
    await until(() => at.rejected.includes('signature_wrong'));
    expect(at.inbox.list()).toHaveLength(1);
    await catchUp.catchUpNow();
    expect(at.inbox.list().map(({ eventType }) => eventType)).toEqual(['asset_appeared', 'asset_disappeared']);

    at.secrets = [...registration.secrets()];
    const ids = sandbox.deliveries().map(({ id }) => id);
    await sandbox.resend(ids);
    await until(() => sandbox.deliveries().every(({ status }) => status === 'delivered'));
    await catchUp.catchUpNow();
    expect(at.inbox.list()).toHaveLength(sandbox.deliveries().length);
    for (const secret of registration.secrets()) expect(at.logged.text).not.toContain(secret);
    await sandbox.stop();
    await at.stop();
  });
});
