import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../src/base/database.ts';
import { Redactor } from '../../src/base/redactor.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { CatchUp, type CatchUpOptions } from '../../src/webhook/catch-up.ts';
import { Inbox } from '../../src/webhook/inbox.ts';
import { readEvent } from '../../src/webhook/received-event.ts';
import { WebhookRegistration } from '../../src/webhook/registration.ts';
import { RegistrationFile } from '../../src/webhook/registration-file.ts';
import { advance, planPass } from '../../src/webhook/watermark.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { anEvent, asyncInbox, Listening, LogCapture, until } from './parts/listening.ts';
import { type StubAnswer, StubPlatform, TestPlatform } from './parts/platforms.ts';

const NOW = Date.UTC(2026, 10, 21, 12);
const DAY = 86_400_000;

interface Entry {
  id: number;
  status: string;
  payload?: unknown;
  last_send_at?: string;
}

describe('catch-up reads the deliveries list', () => {
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

  /** A list like the platform's, in pages of three at most. */
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

  it('in every status, through all pages, and takes in what was never seen', async () => {
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

  it('knows what was pushed, with its members in another order, and what is pushed after', async () => {
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

  it('knows a delivery by its id, whatever the list prints of it, but not that of another registration', async () => {
    entries = [{ id: 1, status: 'failed', payload: event() }];
    await catchUp().catchUpNow();
    entries = [{ id: 1, status: 'delivered', payload: event() }];
    expect(await catchUp().catchUpNow()).toMatchObject({ taken: 0 });
    scope = 'scope-2';
    entries = [{ id: 1, status: 'failed', payload: event() }];
    expect(await catchUp().catchUpNow()).toMatchObject({ taken: 1 });
  });

  it('keeps every digit of an id that no double holds', async () => {
    const text = anEvent().replace('"id":881', '"id":881,"big":9007199254740993');
    inbox.insertMany([readEvent(new TextEncoder().encode(text), 0)]);
    stub.answer = () => ({ status: 200, text: `{"webhook_events":[{"id":1,"status":"failed","payload":${text}}]}` });
    expect(await catchUp().catchUpNow()).toEqual({ listed: 1, taken: 0, asked: 0, rejected: 0 });
  });

  it('from a watermark with an overlap, moved after a whole pass alone, and kept across restarts', async () => {
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

  it('once a day with a long overlap, so that what becomes visible days late is found', async () => {
    entries = [{ id: 1, status: 'delivered', payload: event(NOW) }];
    const running = catchUp();
    await running.catchUpNow();
    entries.push({ id: 2, status: 'failed', payload: event(NOW - 3 * DAY) });
    expect(await running.catchUpNow()).toMatchObject({ taken: 0 });
    platformMs += DAY;
    await clock.advance(DAY);
    expect(await running.catchUpNow()).toMatchObject({ taken: 1 });
  });

  it('with a long overlap again after the platform clock was set back', async () => {
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

  it('by a platform clock that the date of one response does not move', async () => {
    entries = [{ id: 1, status: 'delivered', payload: event(NOW) }];
    await catchUp().catchUpNow();
    platformMs += 365 * DAY;
    entries.push({ id: 2, status: 'delivered', payload: event(NOW + 300 * DAY) });
    await catchUp().catchUpNow();
    platformMs = NOW;
    entries.push({ id: 3, status: 'delivered', payload: event(NOW + 60_000) });
    expect(await catchUp().catchUpNow()).toMatchObject({ taken: 1 });
  });

  it('whole where the platform refuses the filter, or the list has no pagination, or names its member otherwise', async () => {
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

  it('in smaller pages where a page is longer than the client reads', async () => {
    entries = Array.from({ length: 7 }, (_, i) => ({ id: i + 1, status: 'failed', payload: event() }));
    stub.answer = (request) =>
      Number(request.query.get('per_page')) > 4 ? { status: 200, text: '{"events":[{"id":1,"pay' } : answer(request);
    expect(await catchUp().catchUpNow()).toMatchObject({ listed: 7, taken: 7 });
  });

  it('and asks again for what has no payload: in one request, not pending ones, not after six months, not for ever', async () => {
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

  it('and with the listener off asks for nothing that could not come in', async () => {
    entries = [
      { id: 1, status: 'failed' },
      { id: 2, status: 'failed', payload: event() },
    ];
    expect(await catchUp({ listening: false }).catchUpNow()).toMatchObject({ taken: 1, asked: 0 });
  });

  it.each([404, 422])('and counts a resend that the platform rejects with %i, and goes on', async (status) => {
    entries = [
      { id: 1, status: 'failed' },
      { id: 2, status: 'failed', payload: event() },
    ];
    stub.answer = (request) => (request.method === 'POST' ? { status } : answer(request));
    expect(await catchUp().catchUpNow()).toEqual({ listed: 2, taken: 1, asked: 0, rejected: 1 });
    expect(inbox.note('catch_up.watermark')).toBeDefined();
    expect(logged.text).toContain('webhook.resend_refused');
  });

  it('without end for a platform that lists rubbish beside events', async () => {
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

  it('though an event is nested too deeply to be written', async () => {
    entries = [{ id: 1, status: 'failed', payload: event() }];
    const page = JSON.stringify(entries[0]);
    const nested = `{"id":2,"status":"pending","payload":${'['.repeat(20_000)}${']'.repeat(20_000)}}`;
    stub.answer = () => ({ status: 200, text: `[${nested},${page}]` });
    expect(await catchUp().catchUpNow()).toMatchObject({ listed: 2, taken: 1 });
  });

  it('every WEBHOOK_POLL, sooner after an outage, in the background with retries; never where that is 0', async () => {
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

  it('waits for the registration, and says when the webhook is gone', async () => {
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

describe('the watermark', () => {
  it('is not pushed into the future by one event, nor back by an old one', () => {
    const mark = advance(undefined, 's', { deep: true, newestMs: NOW + 365 * DAY, platformMs: NOW });
    expect(mark).toEqual({ scope: 's', upToMs: NOW, deepAtMs: NOW });
    expect(advance(mark, 's', { deep: false, newestMs: NOW - DAY, platformMs: NOW + 5 })).toMatchObject({
      upToMs: NOW,
    });
    expect(advance(mark, 's', { deep: false, newestMs: undefined, platformMs: NOW + 5 })).toMatchObject({
      upToMs: NOW,
    });
  });

  it('begins anew for another registration', () => {
    const mark = { scope: 's', upToMs: NOW };
    expect(planPass(mark, 'other', NOW)).toEqual({ fromMs: undefined, deep: true });
    expect(advance(mark, 'other', { deep: true, newestMs: undefined, platformMs: NOW })).toBeUndefined();
  });
});

describe('push, list and resend at the sandbox', () => {
  it('are one event each: what the listener missed comes by the list, and nothing comes twice', async () => {
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
        registered: () => registration.current(),
        clock,
        log: at.logged.log,
      },
    );

    sandbox.takePermission({ type: 'Asset', id: 882 });
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
