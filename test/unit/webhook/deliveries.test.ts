import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Deliveries } from '../../../src/webhook/deliveries.ts';
import { FailureWatch } from '../../../src/webhook/delivery-failures.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { LogCapture, until } from './parts/listening.ts';
import { type StubAnswer, StubPlatform, TestPlatform } from './parts/platforms.ts';

const NOW = Date.UTC(2026, 10, 21, 12);
const DAY_MS = 86_400_000;
const daysAgo = (days: number) => new Date(NOW - days * DAY_MS).toISOString();

interface Entry {
  id: number;
  status: string;
  last_send_at?: string | null;
  retries?: number;
  payload?: unknown;
  response?: unknown;
}

let stub: StubPlatform;
let clock: ManualClock;
let entries: Entry[];
let unknownIds: Set<number>;
let failures: number;
let resent: number[][];

const entry = (id: number, status: string, days: number, more: Partial<Entry> = {}): Entry => ({
  id,
  status,
  last_send_at: daysAgo(days),
  retries: status === 'delivered' ? 0 : 15,
  payload: { event_type: 'asset_appeared', occurred_at: daysAgo(days + 2) },
  ...more,
});

/** Ignores every filter but `status`, as the specification allows. */
function answer({ method, query, body }: { method: string; query: URLSearchParams; body: string }): StubAnswer {
  if (method === 'POST') {
    if (failures-- > 0) return { status: 503 };
    const ids = (JSON.parse(body) as { webhook_events: { id: number }[] }).webhook_events.map(({ id }) => id);
    if (ids.some((id) => unknownIds.has(id))) return { status: 422, json: { error: 'unknown' } };
    resent.push(ids);
    return { status: 204 };
  }
  const status = query.get('status');
  const chosen = entries.filter((each) => status === null || each.status === status);
  const [page, perPage] = [Number(query.get('page')), Number(query.get('per_page'))];
  const events = chosen.slice((page - 1) * perPage, page * perPage);
  return { status: 200, headers: { date: new Date(NOW).toUTCString() }, json: { events } };
}

const parts = () => ({
  platform: new TestPlatform(() => stub.url, clock),
  registered: () => ({ application: 1, webhook: 2, scope: 's' }),
  clock,
});

beforeEach(async () => {
  stub = await new StubPlatform().start();
  stub.answer = answer;
  clock = new ManualClock(NOW);
  entries = [];
  unknownIds = new Set();
  failures = 0;
  resent = [];
});
afterEach(() => stub.stop());

const eventsIn = ({ text }: LogCapture, event: string): object[] =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as { event?: string })
    .filter((line) => line.event === event);

describe('deliveries console', () => {
  it('lists attempts, responses and days left, newest first, and filters locally if the platform does not', async () => {
    entries = [
      entry(1, 'failed', 183 - 4, { response: 503 }),
      entry(2, 'delivered', 1, { payload: JSON.stringify({ event_type: 'asset_updated' }) }),
      entry(3, 'pending', 0, { last_send_at: null, retries: 0 }),
      entry(4, 'failed', 200),
    ];
    const console = new Deliveries(parts());
    const { total, deliveries } = await console.list();
    expect(total).toBe(4);
    expect(deliveries).toMatchObject([
      { id: 4, days_left: 0 },
      { id: 3, attempts: 0, days_left: null },
      { id: 2, event_type: 'asset_updated', attempts: 1, days_left: null },
      { id: 1, status: 'failed', attempts: 16, response: '503', days_left: 4 },
    ]);
    expect((await console.list({ eventType: 'asset_updated' })).deliveries).toMatchObject([{ id: 2 }]);
    expect((await console.list({ sinceMs: NOW - 5 * DAY_MS })).deliveries.map(({ id }) => id)).toEqual([3, 2]);
    expect(await console.list({ limit: 1 })).toMatchObject({ total: 4, deliveries: [{ id: 4 }] });
  });

  it('requests a resend of failed deliveries, retries, and reports each rejected delivery', async () => {
    entries = Array.from({ length: 150 }, (_, i) => entry(i + 1, i === 0 ? 'delivered' : 'failed', 1));
    unknownIds.add(77);
    failures = 1;
    const report = await new Deliveries(parts()).resendFailed();
    expect(report.rejected.map(({ id }) => id)).toEqual([77]);
    expect(report.accepted).toHaveLength(148);
    expect(resent.flat().sort((a, b) => a - b)).toEqual(report.accepted.toSorted((a, b) => a - b));
    expect(resent.flat()).not.toContain(1);
  });

  it('reports failed deliveries beyond the limit per command, and resends deliveries for another webhook', async () => {
    entries = Array.from({ length: 10_050 }, (_, i) => entry(i + 1, 'failed', 1));
    const report = await new Deliveries(parts()).resendFailed(7);
    expect([report.accepted.length, report.rejected.length, report.remaining]).toEqual([10_000, 0, 50]);
    expect(new Set(stub.requests.map(({ path }) => path))).toEqual(
      new Set(['/v1/client_applications/1/webhooks/7/events']),
    );
  });

  it('reads the list if the platform rejects or ignores pagination, or uses decimal strings as IDs', async () => {
    entries = Array.from({ length: 250 }, (_, i) => entry(i + 1, 'failed', 1));
    const console = new Deliveries(parts());
    const whole = { status: 200, json: { webhook_events: entries.map((one) => ({ ...one, id: String(one.id) })) } };
    stub.answer = ({ query }) => (query.has('page') ? { status: 400 } : whole);
    expect(await console.list()).toMatchObject({ total: 250 });
    stub.answer = () => whole;
    stub.requests.length = 0;
    expect(await console.list()).toMatchObject({ total: 250 });
    expect(stub.requests).toHaveLength(2);
  });

  it.each([['null'], ['7'], ['{"events":{}}'], ['{"events":null}'], ['"text"'], ['{}']])(
    'reports the failed call if the body is %s',
    async (text) => {
      stub.answer = () => ({ status: 200, text });
      await expect(new Deliveries(parts()).list()).rejects.toMatchObject({ code: 'platform.unreadable' });
    },
  );

  it('reads the list for the page at most once per minute', async () => {
    entries = [entry(1, 'failed', 1)];
    const console = new Deliveries(parts());
    console.recent();
    await until(() => console.recent().listing !== null);
    for (let i = 0; i < 5; i++) console.recent();
    expect(stub.requests).toHaveLength(1);
    expect(console.recent().listing?.deliveries).toMatchObject([{ id: 1 }]);
  });
});

describe('failure watch', () => {
  it('warns before a failure reaches two weeks, and reports recovery', async () => {
    entries = Array.from({ length: 10 }, (_, i) => entry(i + 1, 'failed', i));
    const logged = new LogCapture();
    const watch = new FailureWatch({ ...parts(), log: logged.log });
    watch.start();
    await clock.advance(61_000);
    await until(() => watch.failing !== undefined);
    expect(watch.failing).toMatchObject({ webhook: 2, daysLeft: 3 });
    expect(watch.notes.join()).toContain('webhook resend --all-failed');
    expect(eventsIn(logged, 'webhook.failing')).toMatchObject([{ level: 40, daysLeft: 3 }]);
    entries.push(entry(11, 'delivered', 0));
    await clock.advance(3_600_000 * 1.2);
    await until(() => watch.failing === undefined);
    expect(eventsIn(logged, 'webhook.failing_over')).toHaveLength(1);
    await watch.stop();
  });

  it('warns about one event that keeps failing while others succeed', async () => {
    entries = [
      entry(1, 'failed', 0.5, { payload: { event_type: 'asset_appeared', occurred_at: daysAgo(9) } }),
      entry(2, 'delivered', 0),
    ];
    const watch = new FailureWatch({ ...parts(), log: new LogCapture().log });
    watch.start();
    await clock.advance(61_000);
    await until(() => watch.failing !== undefined);
    expect(watch.failing).toMatchObject({ webhook: 2, daysLeft: 5 });
    await watch.stop();
  });

  it('ignores failures before a successful delivery, or with retries that ended long ago', async () => {
    entries = [entry(1, 'failed', 9), entry(2, 'failed', 100), entry(3, 'delivered', 1)];
    const logged = new LogCapture();
    const watch = new FailureWatch({ ...parts(), log: logged.log });
    watch.start();
    await clock.advance(61_000);
    await until(() => stub.requests.length === 2);
    await watch.stop();
    expect(watch.failing).toBeUndefined();
    expect(eventsIn(logged, 'webhook.failing')).toHaveLength(0);
  });
});
