import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { Redactor } from '../../../src/base/redactor.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { longFailure } from '../../../src/webhook/delivery-failures.ts';
import { type RegistrationOptions, WebhookRegistration } from '../../../src/webhook/registration.ts';
import { RegistrationFile } from '../../../src/webhook/registration-file.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { LogCapture, until } from './parts/listening.ts';
import { type StubAnswer, StubPlatform, type StubRequest, TestPlatform } from './parts/platforms.ts';

const URL_ = 'https://gateway.example.com/webhook';
const DAY_MS = 86_400_000;
const dayText = (day: number) => new Date(Date.UTC(2026, 9, 1) + day * DAY_MS).toISOString();

let folder: string;
let stub: StubPlatform;
let logged: LogCapture;
let webhook: { id: number; url: string; event_types: string[]; disabled: boolean } | undefined;
let deliveries: object[];
let changes: unknown[];
let respondOtherwise: (request: StubRequest) => StubAnswer | undefined;

/** Reads the stored record, as startup does. */
async function started(
  options: Partial<RegistrationOptions> = {},
  platform = new TestPlatform(() => stub.url),
): Promise<WebhookRegistration> {
  const clock = new ManualClock();
  const next = new WebhookRegistration(
    {
      url: URL_,
      secret: undefined,
      eventTypes: ['asset_appeared'],
      application: undefined,
      reenable: 'failures',
      ...options,
    },
    {
      platform,
      file: new RegistrationFile(join(folder, 'webhook.json')),
      clock,
      log: logged.log,
      redactor: new Redactor(),
    },
  );
  await next.load();
  return next;
}

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'enablement-'));
  logged = new LogCapture();
  webhook = undefined;
  deliveries = [];
  changes = [];
  respondOtherwise = () => undefined;
  stub = await new StubPlatform().start();
  stub.answer = (request) => {
    const { method, path, body } = request;
    const other = respondOtherwise(request);
    if (other) return other;
    if (path.endsWith('/current')) return { status: 200, json: { id: 9, name: 'x' } };
    if (path.endsWith('/events')) return { status: 200, json: { events: deliveries } };
    if (method === 'POST') {
      webhook = {
        id: (webhook?.id ?? 4) + 1,
        disabled: false,
        ...(JSON.parse(body) as { url: string; event_types: string[] }),
      };
      return { status: 201, json: { id: webhook.id, secret: 's' } };
    }
    if (method === 'GET') return { status: 200, json: { webhooks: webhook ? [webhook] : [] } };
    const change = JSON.parse(body) as object;
    changes.push(change);
    Object.assign(webhook!, change);
    return { status: 204 };
  };
});
afterEach(async () => {
  await stub.stop();
  rmSync(folder, { recursive: true, maxRetries: 10 });
});

/** Adds failed deliveries of a gateway that did not respond on these days. */
function unreachable(fromDay: number, toDay: number): void {
  for (let day = fromDay; day <= toDay; day++) {
    const status = day > toDay - 3 ? 'cancelled' : 'failed';
    const last_send_at = dayText(Math.min(day + 3, toDay));
    deliveries.push({ id: 100 + day, status, last_send_at, retries: 15, payload: { occurred_at: dayText(day) } });
  }
}

const listReads = () => stub.requests.filter(({ path }) => path.endsWith('/events')).length;

describe('`webhook disable`', () => {
  it.each(['failures', 'always', 'never'] as const)(
    'stays in effect across restarts with WEBHOOK_REENABLE=%s until `webhook enable`',
    async (reenable) => {
      const first = await started({ reenable });
      await first.register();
      unreachable(0, 20);
      await first.disable();
      expect(webhook?.disabled).toBe(true);
      const second = await started({ reenable });
      await second.register();
      expect(webhook?.disabled).toBe(true);
      expect(second.disabledBy).toBe('command');
      expect(logged.text).toMatch(/"webhook\.stays_disabled".*"by":"command".*tagferry webhook enable/);
      await second.enable();
      const third = await started({ reenable });
      await third.register();
      expect(webhook?.disabled).toBe(false);
      expect(third.disabledBy).toBeUndefined();
    },
  );

  it('is completed after a restart if its response was lost', async () => {
    const first = await started();
    await first.register();
    respondOtherwise = ({ method }) => (method === 'PATCH' ? 'drop' : undefined);
    await expect(first.disable()).rejects.toMatchObject({ retryable: true });
    expect(webhook?.disabled).toBe(false);
    respondOtherwise = () => undefined;
    await (await started()).register();
    expect(webhook?.disabled).toBe(true);
  });

  it('has no effect if the platform rejects it', async () => {
    const first = await started();
    await first.register();
    respondOtherwise = ({ method }) => (method === 'PATCH' ? { status: 403 } : undefined);
    await expect(first.disable()).rejects.toMatchObject({ code: 'platform.forbidden' });
    respondOtherwise = () => undefined;
    await (await started()).register();
    expect(webhook?.disabled).toBe(false);
  });

  it('applies to the webhook that replaces a deleted one', async () => {
    const first = await started();
    await first.register();
    await first.disable();
    webhook = undefined;
    const second = await started();
    await second.register();
    expect(webhook).toMatchObject({ disabled: true });
    expect(second.disabledBy).toBe('command');
  });

  it('is reversed when a user enables the webhook on the platform', async () => {
    const first = await started();
    await first.register();
    await first.disable();
    webhook!.disabled = false;
    await (await started()).register();
    webhook!.disabled = true;
    const third = await started({ reenable: 'always' });
    await third.register();
    expect(webhook!.disabled).toBe(false);
  });
});

describe('disabled webhook', () => {
  it('stays disabled if its deliveries failed for less than two weeks', async () => {
    const running = await started();
    await running.register();
    deliveries.push({ id: 1, status: 'delivered', last_send_at: dayText(10), payload: { occurred_at: dayText(10) } });
    unreachable(11, 20);
    webhook!.disabled = true;
    for (let i = 0; i < 3; i++) await running.register();
    expect(running.disabledBy).toBe('platform');
    expect(changes).toEqual([]);
    expect(listReads()).toBe(1);
    expect(logged.text.match(/"webhook\.stays_disabled".*"by":"platform".*tagferry webhook enable/g)).toHaveLength(1);
    await running.enable();
    expect(webhook!.disabled).toBe(false);
    expect(running.disabledBy).toBeUndefined();
  });

  it('is enabled with a warning if its deliveries failed for two weeks', async () => {
    await (await started()).register();
    deliveries.push({ id: 1, status: 'delivered', last_send_at: dayText(0), payload: { occurred_at: dayText(0) } });
    unreachable(1, 16);
    webhook!.disabled = true;
    const running = await started();
    await running.register();
    expect(webhook!.disabled).toBe(false);
    expect(running.disabledBy).toBeUndefined();
    expect(logged.text).toMatch(/"level":40[^\n]*"webhook\.reenabled"/);
  });

  it('stays disabled if a user disables it again, even across a restart', async () => {
    const running = await started();
    await running.register();
    unreachable(1, 16);
    webhook!.disabled = true;
    await running.register();
    webhook!.disabled = true;
    await running.register();
    await (await started()).register();
    expect(webhook!.disabled).toBe(true);
  });

  it.each([
    ['always', false, undefined],
    ['never', true, 'platform'],
  ] as const)('follows WEBHOOK_REENABLE=%s without reading the deliveries', async (reenable, disabled, by) => {
    const running = await started({ reenable });
    await running.register();
    if (reenable === 'never') unreachable(0, 20);
    webhook!.disabled = true;
    await running.register();
    expect(webhook!.disabled).toBe(disabled);
    expect(running.disabledBy).toBe(by);
    expect(listReads()).toBe(0);
  });

  it('stays disabled until the deliveries list is readable', async () => {
    const running = await started();
    await running.register();
    unreachable(0, 20);
    webhook!.disabled = true;
    respondOtherwise = ({ path }) => (path.endsWith('/events') ? { status: 403 } : undefined);
    await running.register();
    expect(running.disabledBy).toBe('platform');
    respondOtherwise = () => undefined;
    await running.register();
    expect(webhook!.disabled).toBe(false);
  });
});

describe('webhook disabled by the sandbox', () => {
  it('is enabled because its deliveries failed for two weeks', async () => {
    const sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
    await sandbox.start();
    onTestFinished(() => sandbox.stop());
    const url = 'http://127.0.0.1:1/hook';
    const eventTypes = ['asset_updated'];
    await (await started({ url, eventTypes }, await TestPlatform.at(sandbox))).register();
    let updates = 0;
    await until(() => {
      sandbox.changes.updateAsset(881, { description: `update ${updates++}` });
      sandbox.clock.advance(6 * 3_600_000);
      return sandbox.webhooks()[0]!.disabled;
    });
    await (await started({ url, eventTypes }, await TestPlatform.at(sandbox))).register();
    expect(sandbox.webhooks()[0]!.disabled).toBe(false);
    expect(logged.text).toContain('webhook.reenabled');
  });
});

describe('long failure', () => {
  const span = (failing: boolean, firstDay: number, lastDay: number) => ({
    failing,
    firstMs: firstDay * DAY_MS,
    lastMs: lastDay * DAY_MS,
  });

  it('is two weeks of failures without an intervening success', () => {
    const failures = [span(true, 0, 3), span(true, 7, 10), span(true, 12, 14)];
    expect(longFailure(failures)).toBe(14 * DAY_MS);
    expect(longFailure(failures.slice(0, 2))).toBeUndefined();
    expect(longFailure([...failures, span(false, 8, 8)])).toBeUndefined();
    expect(longFailure([...failures, span(false, 0, 0)])).toBe(14 * DAY_MS);
  });

  it('can be one event that failed for two weeks, unless a later delivery succeeded', () => {
    const event = span(true, 0, 15);
    expect(longFailure([event, span(false, 10, 10)])).toBe(15 * DAY_MS);
    expect(longFailure([event, span(false, 16, 16)])).toBeUndefined();
    expect(longFailure([event], 2 * DAY_MS)).toBeUndefined();
  });
});
