import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { PlatformError } from '../../../src/base/errors.ts';
import { Redactor } from '../../../src/base/redactor.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { findDrift } from '../../../src/webhook/drift.ts';
import { type RegistrationOptions, WebhookRegistration } from '../../../src/webhook/registration.ts';
import { RegistrationFile } from '../../../src/webhook/registration-file.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { LogCapture, until } from './parts/listening.ts';
import { StubPlatform, TestPlatform } from './parts/platforms.ts';

const URL_ = 'https://gateway.example.com/webhook';

let folder: string;
let clock: ManualClock;
let logged: LogCapture;
let registered = 0;

const path = () => join(folder, 'webhook.json');
const onDisk = () => JSON.parse(readFileSync(path(), 'utf8'));

function registration(platform: TestPlatform, options: Partial<RegistrationOptions> = {}): WebhookRegistration {
  const made = new WebhookRegistration(
    {
      url: URL_,
      secret: undefined,
      eventTypes: ['threshold_reached', 'asset_appeared'],
      application: undefined,
      reenable: 'failures',
      ...options,
    },
    {
      platform,
      file: new RegistrationFile(path()),
      clock,
      log: logged.log,
      redactor: new Redactor(),
    },
  );
  made.onChecked(() => registered++);
  return made;
}

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'registration-'));
  clock = new ManualClock();
  logged = new LogCapture();
  registered = 0;
});
afterEach(() => rmSync(folder, { recursive: true, maxRetries: 10 }));

describe('webhook registration with the sandbox', () => {
  let sandbox: Sandbox;
  let platform: TestPlatform;

  beforeEach(async () => {
    sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
    await sandbox.start();
    platform = await TestPlatform.at(sandbox);
  });
  afterEach(() => sandbox.stop());

  it('creates the webhook once and stores its secret readable only by its owner', async () => {
    const first = registration(platform);
    await first.load();
    expect(first.secrets()).toEqual([]);
    const made = await first.register();
    const [there] = sandbox.webhooks();
    expect(there).toMatchObject({ id: made.webhook, url: URL_, disabled: false });
    expect(first.secrets()).toEqual([there!.secret]);
    expect(statSync(path()).mode & 0o777).toBe(0o600);
    expect(readdirSync(folder)).toEqual(['webhook.json']);

    const second = registration(platform);
    await second.load();
    expect(second.secrets()).toEqual([there!.secret]);
    expect(await second.register()).toEqual(made);
    expect(sandbox.webhooks()).toHaveLength(1);
    expect(platform.story.filter((call) => !call.startsWith('GET'))).toHaveLength(1);
    expect(logged.text).not.toContain(there!.secret);
  });

  it('finds the client application by its name, and reports a missing application with a hint', async () => {
    await registration(platform, { application: 'sandbox-application' }).register();
    expect(sandbox.webhooks()).toHaveLength(1);
    await expect(registration(platform, { application: 'sandbox' }).register()).rejects.toMatchObject({
      code: 'platform.no_client_application',
      hint: expect.stringContaining('CLIENT_APPLICATION'),
    });
  });

  it.each([404, 405])('uses the only client application if /current returns %i', async (status) => {
    sandbox.faults.add({ path: '/v1/client_applications/current', status });
    await registration(platform).register();
    expect(sandbox.webhooks()).toHaveLength(1);
  });

  it('resets an unknown secret', async () => {
    await registration(platform).register();
    const before = sandbox.webhooks()[0]!.secret;
    rmSync(path());
    const again = registration(platform);
    await again.register();
    expect(sandbox.webhooks()).toHaveLength(1);
    expect(sandbox.webhooks()[0]!.secret).not.toBe(before);
    expect(again.secrets()).toEqual([sandbox.webhooks()[0]!.secret]);
  });

  it('restores changed event types', async () => {
    const { application, webhook } = await registration(platform).register();
    const at = `/v1/client_applications/${application}/webhooks/${webhook}`;
    await platform.request({
      method: 'PATCH',
      path: at,
      body: { event_types: ['node_appeared'] },
      kind: 'other',
    });
    const again = registration(platform);
    await again.load();
    await again.register();
    const listed = await again.list();
    expect(listed).toMatchObject([{ id: webhook, own: true }]);
    expect([...listed[0]!.event_types].sort()).toEqual(['asset_appeared', 'threshold_reached']);
    expect(JSON.stringify(listed)).not.toContain(sandbox.webhooks()[0]!.secret);
  });

  it('restores a URL that was changed on the platform', async () => {
    const running = registration(platform);
    const { application, webhook } = await running.register();
    const at = `/v1/client_applications/${application}/webhooks/${webhook}`;
    await platform.request({ method: 'PATCH', path: at, body: { url: 'https://elsewhere.example/' }, kind: 'other' });
    await running.register();
    expect(sandbox.webhooks()).toMatchObject([{ id: webhook, url: URL_ }]);
  });

  it('creates, restores and removes filters based on the rules', async () => {
    const eventTypes = ['asset_updated', 'asset_appeared'];
    const filtered = (properties: Record<string, string[]>) => registration(platform, { eventTypes, properties });
    const { application, webhook } = await filtered({ asset_updated: ['status'] }).register();
    expect(sandbox.webhooks()[0]!.properties).toEqual({ asset_updated: ['status'] });
    const at = `/v1/client_applications/${application}/webhooks/${webhook}`;
    await platform.request({
      method: 'PATCH',
      path: at,
      body: { properties: { asset_updated: ['x'] } },
      kind: 'other',
    });
    const restarted = filtered({ asset_updated: ['status'] });
    await restarted.load();
    await restarted.register();
    expect(sandbox.webhooks()[0]!.properties).toEqual({ asset_updated: ['status'] });
    const calls = platform.calls.length;
    await restarted.register();
    expect(platform.calls.slice(calls).map(({ method }) => method)).toEqual(['GET']);
    const wide = filtered({});
    await wide.load();
    await wide.register();
    expect(sandbox.webhooks()[0]!.properties).toEqual({});
  });

  it('updates the filters when the rules change, even during a check', async () => {
    const stop = new AbortController();
    const running = registration(platform, {
      eventTypes: ['asset_updated'],
      properties: { asset_updated: ['status'] },
    });
    await running.start(stop.signal);
    running.setFilters({ asset_updated: ['product'] });
    await until(() => JSON.stringify(sandbox.webhooks()[0]?.properties) === '{"asset_updated":["product"]}');
    await until(() => registered > 0);
    running.setFilters({});
    await until(() => JSON.stringify(sandbox.webhooks()[0]?.properties) === '{}');
    const calls = platform.calls.length;
    running.setFilters({});
    await until(() => registered > 1);
    expect(platform.calls).toHaveLength(calls);
    stop.abort();
    await running.stop();
  });

  it('finds and enables an existing webhook if WEBHOOK_SECRET is set, but never changes or deletes it', async () => {
    const byHand = () => registration(platform, { secret: 'by-hand', reenable: 'always' });
    await expect(byHand().register()).rejects.toMatchObject({ code: 'webhook.not_registered' });
    expect(sandbox.webhooks()).toEqual([]);
    const { application, webhook } = await registration(platform).register();
    rmSync(path());
    const secret = sandbox.webhooks()[0]!.secret;
    const at = `/v1/client_applications/${application}/webhooks/${webhook}`;
    await platform.request({ method: 'PATCH', path: at, body: { disabled: true }, kind: 'other' });
    const mine = byHand();
    expect(mine.secrets()).toEqual(['by-hand']);
    expect(await mine.register()).toMatchObject({ webhook });
    expect(sandbox.webhooks()[0]).toMatchObject({ disabled: false, secret });
    expect(() => mine.rotateSecret()).toThrowError(expect.objectContaining({ code: 'usage' }));
    expect(() => mine.delete()).toThrowError(expect.objectContaining({ code: 'usage' }));
    await expect(mine.delete(webhook)).rejects.toMatchObject({ code: 'usage' });
    expect(sandbox.webhooks()).toHaveLength(1);
    expect(readFileSync(path(), 'utf8')).not.toContain('by-hand');
  });

  it('accepts both secrets for an hour after a rotation, then only the new secret', async () => {
    const running = registration(platform);
    await running.register();
    const [old] = running.secrets();
    await running.rotateSecret();
    const fresh = sandbox.webhooks()[0]!.secret;
    expect(running.secrets()).toEqual([fresh, old]);
    const restarted = registration(platform);
    await restarted.load();
    expect(restarted.secrets()).toEqual([fresh, old]);
    await restarted.register();
    expect(sandbox.webhooks()[0]!.secret).toBe(fresh);
    await clock.advance(3_600_000);
    await until(() => !JSON.stringify(onDisk()).includes(old!));
    expect(restarted.secrets()).toEqual([fresh]);
    expect(logged.text).not.toContain(fresh);
  });

  it('immediately repeats a secret reset if its response was lost, and reports the secret as unknown until then', async () => {
    const stop = new AbortController();
    const running = registration(platform);
    await running.start(stop.signal);
    await until(() => registered === 1);
    expect(running.isSecretKnown).toBe(true);
    const [old] = running.secrets();
    sandbox.faults.add({ path: '/v1/client_applications/*', method: 'POST', drop: 'after', times: 1 });
    await expect(running.rotateSecret()).rejects.toMatchObject({ retryable: true });
    expect(running.isSecretKnown).toBe(false);
    expect(logged.text).toContain('webhook.reset_failed');
    // The clock is not advanced, so the reset does not wait for the next check.
    await until(() => running.isSecretKnown);
    expect(running.secrets()[0]).toBe(sandbox.webhooks()[0]!.secret);
    expect(running.secrets()).not.toEqual([old]);
    // The secret is valid before it is stored.
    await until(() => onDisk().resetting === undefined);
    stop.abort();
    await running.stop();
  });

  it('creates a webhook for a changed URL, and logs the webhook that still uses the previous URL', async () => {
    const { webhook } = await registration(platform).register();
    const moved = registration(platform, { url: 'https://gateway.example.com/elsewhere' });
    await moved.load();
    const made = await moved.register();
    expect(made.webhook).not.toBe(webhook);
    expect(sandbox.webhooks().map(({ disabled }) => disabled)).toEqual([false, false]);
    expect(logged.text).toMatch(new RegExp(`"webhook.left_behind","webhook":${webhook},.*webhook prune`));
    const said = logged.text.length;
    await moved.register();
    expect(logged.text.slice(said)).not.toContain('left_behind');
  });

  it('repeats a secret reset at the next startup if its response was lost', async () => {
    const running = registration(platform);
    await running.register();
    const [old] = running.secrets();
    sandbox.faults.add({ path: '/v1/client_applications/*', method: 'POST', drop: 'after', times: 1 });
    await expect(running.rotateSecret()).rejects.toMatchObject({ retryable: true });
    expect(sandbox.webhooks()[0]!.secret).not.toBe(old);
    expect(onDisk()).toMatchObject({ resetting: true });
    // The agent is killed here: the next start has only the file.
    const restarted = registration(platform);
    await restarted.load();
    await restarted.register();
    expect(restarted.secrets()).toContain(sandbox.webhooks()[0]!.secret);
    expect(onDisk().resetting).toBeUndefined();
  });

  it('waits for the platform in the background, then registers and checks every 15 minutes', async () => {
    await sandbox.goOffline('refuse');
    const stop = new AbortController();
    const running = registration(platform, { reenable: 'always' });
    await running.start(stop.signal);
    await until(() => logged.text.includes('webhook.registration_failed'));
    for (let i = 0; i < 20; i++) {
      await clock.advance(60_000);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    expect(platform.calls.length).toBeGreaterThan(12);
    const lines = logged.text.match(/registration_failed/g)!.length;
    expect(lines).toBeLessThanOrEqual(Math.ceil(platform.calls.length / 10));
    await sandbox.goOnline();
    await until(async () => {
      await clock.advance(60_000);
      return registered > 0;
    });
    expect(running.current()).toMatchObject({ webhook: sandbox.webhooks()[0]!.id });
    const at = `/v1/client_applications/${running.current()!.application}/webhooks/${running.current()!.webhook}`;
    await platform.request({ method: 'PATCH', path: at, body: { disabled: true }, kind: 'other' });
    await until(async () => {
      await clock.advance(60_000);
      return sandbox.webhooks()[0]!.disabled === false;
    });
    stop.abort();
    await running.stop();
  });

  it('logs nothing without a session, registers after a sign-in, and warns if the platform rejects the registration', async () => {
    const gate = { refusal: 'platform.no_session' };
    const guarded = new TestPlatform(() => sandbox.url);
    guarded.token = platform.token;
    const request = guarded.request.bind(guarded);
    let asked = 0;
    guarded.request = (call) => {
      asked++;
      if (gate.refusal === '') return request(call);
      return Promise.reject(new PlatformError('not now', { code: gate.refusal, retryable: true }));
    };
    const warnings = () => (logged.text.match(/"level":40[^\n]*registration_failed/g) ?? []).length;
    const stop = new AbortController();
    const running = registration(guarded);
    await running.start(stop.signal);
    await until(async () => {
      await clock.advance(60_000);
      return asked > 2;
    });
    expect(warnings()).toBe(0);
    gate.refusal = 'platform.refused';
    // The clock is not advanced: the sign-in starts the check.
    await until(() => {
      running.signedIn();
      return warnings() === 1;
    });
    gate.refusal = '';
    await until(async () => {
      await clock.advance(60_000);
      return registered > 0;
    });
    stop.abort();
    await running.stop();
  });

  it('keeps the webhook deleted after `webhook delete` until `webhook register`', async () => {
    const stop = new AbortController();
    const running = registration(platform);
    await running.start(stop.signal);
    await until(() => registered > 0);
    await running.delete();
    expect(sandbox.webhooks()).toEqual([]);
    expect(running.secrets()).toEqual([]);
    expect(readdirSync(folder)).toEqual([]);
    for (let i = 0; i < 5; i++) await clock.advance(20 * 60_000);
    expect(sandbox.webhooks()).toEqual([]);
    await running.register();
    expect(sandbox.webhooks()).toHaveLength(1);
    stop.abort();
    await running.stop();
  });
});

describe('unused webhook', () => {
  let sandbox: Sandbox;
  let platform: TestPlatform;

  beforeEach(async () => {
    sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
    await sandbox.start();
    platform = await TestPlatform.at(sandbox);
  });
  afterEach(() => sandbox.stop());

  const urls = () => sandbox.webhooks().map(({ url }) => url);
  const elsewhere = `${URL_}/elsewhere`;

  it('is deleted by prune, unlike the current webhook and webhooks with other URLs', async () => {
    const first = registration(platform);
    await first.load();
    const { webhook, application } = await first.register();
    // A webhook that was registered manually with another address.
    const stranger = { url: `${URL_}/stranger`, event_types: ['asset_appeared'] };
    const path = `/v1/client_applications/${application}/webhooks`;
    await platform.act({ method: 'POST', path, body: stranger, kind: 'other' });
    const moved = registration(platform, { url: elsewhere });
    await moved.load();
    await moved.register();
    expect((await moved.list()).filter((one) => one.left_behind).map(({ id }) => id)).toEqual([webhook]);
    expect(await moved.prune([webhook, 2, 3])).toEqual([webhook]);
    expect(urls()).toEqual([`${URL_}/stranger`, elsewhere]);
    expect(await moved.prune([1, 2, 3])).toEqual([]);
    expect(urls()).toHaveLength(2);
  });

  it('is found and reported if WEBHOOK_URL was removed, even if its ID was not stored due to a crash', async () => {
    const first = registration(platform);
    await first.load();
    const { webhook } = await first.register();
    writeFileSync(path(), JSON.stringify({ making: URL_ }));
    const again = registration(platform);
    await again.load();
    await again.register();
    const emptied = registration(platform, { url: undefined });
    const ending = new AbortController();
    await emptied.start(ending.signal);
    await until(() => logged.text.includes('webhook.left_behind'));
    expect(logged.text).toContain('tagferry webhook prune');
    expect(emptied.current()).toBeUndefined();
    expect(await emptied.prune([webhook])).toEqual([webhook]);
    ending.abort();
    await emptied.stop();
    expect(urls()).toEqual([]);
    expect(readdirSync(folder)).toEqual([]);
  });

  it('is not deleted if its URL was changed on the platform', async () => {
    const first = registration(platform);
    await first.load();
    const { webhook, application } = await first.register();
    const at = `/v1/client_applications/${application}/webhooks/${webhook}`;
    await platform.act({ method: 'PATCH', path: at, body: { url: `${URL_}/person` }, kind: 'other' });
    const moved = registration(platform, { url: elsewhere });
    await moved.load();
    await moved.register();
    expect(await moved.prune([webhook])).toEqual([]);
    expect(urls()).toEqual([`${URL_}/person`, elsewhere]);
  });
});

describe('previous webhook secret', () => {
  let stub: StubPlatform;
  let serial: number;

  beforeEach(async () => {
    serial = 0;
    stub = await new StubPlatform().start();
    stub.answer = ({ method, path }) => {
      if (path.endsWith('/current')) return { status: 200, json: { id: 9 } };
      if (path.endsWith('/reset_secret')) return { status: 200, json: { secret: `s${++serial}` } };
      if (method === 'POST') return { status: 201, json: { id: 5, secret: 's0' } };
      if (method === 'PATCH') return { status: 204 };
      return {
        status: 200,
        json: { webhooks: [{ id: 5, url: URL_, event_types: [], disabled: false }] },
      };
    };
  });
  afterEach(() => stub.stop());

  /** Reads the stored record, as startup does. */
  async function restarted(): Promise<WebhookRegistration> {
    const next = registration(new TestPlatform(() => stub.url));
    await next.load();
    return next;
  }

  it('expires an hour after the rotation, regardless of restarts', async () => {
    const first = await restarted();
    await first.register();
    await first.rotateSecret();
    await first.stop();
    for (let minutes = 0; minutes < 50; minutes += 10) {
      await clock.advance(10 * 60_000);
      const next = await restarted();
      expect(next.secrets()).toHaveLength(2);
      await next.stop();
    }
    const last = await restarted();
    await clock.advance(10 * 60_000);
    await until(() => last.secrets().length === 1);
    expect((await restarted()).secrets()).toEqual(['s2']);
  });

  it('expires immediately if the wall clock is more than an hour ahead', async () => {
    const first = await restarted();
    await first.register();
    await first.rotateSecret();
    await first.stop();
    clock.jumpWall(-2 * 3_600_000);
    expect((await restarted()).secrets()).toHaveLength(1);
  });
});

describe('webhook registration with other platforms', () => {
  let stub: StubPlatform;
  beforeEach(async () => {
    stub = await new StubPlatform().start();
  });
  afterEach(() => stub.stop());

  const platform = () => new TestPlatform(() => stub.url);
  const pagination = (page: number, page_count: number) => ({ page, page_count, per_page: 1, total_count: page_count });

  it('reads the ID from the body if Location is missing, and reads all pages before creating a webhook', async () => {
    const pages = [1, 2, 3].map((id) => ({ id, url: `https://other/${id}`, event_types: [], disabled: false }));
    stub.answer = ({ method, path, query }) => {
      if (path.endsWith('/current')) return { status: 200, json: { id: 9, name: 'x' } };
      if (method === 'GET') {
        const page = Number(query.get('page'));
        return { status: 200, json: { webhooks: [pages[page - 1]], pagination: pagination(page, 3) } };
      }
      return { status: 201, json: { id: 77, secret: 's' } };
    };
    expect(await registration(platform()).register()).toMatchObject({ application: 9, webhook: 77 });
    expect(stub.requests.map(({ method }) => method)).toEqual(['GET', 'GET', 'GET', 'GET', 'POST']);
    expect(onDisk()).toMatchObject({ webhook: 77, secret: 's' });
  });

  it('reads the ID from Location, and resets the secret if the creation response contains none', async () => {
    stub.answer = ({ method, path }) => {
      if (path.endsWith('/current')) return { status: 200, json: { id: 9, name: 'x' } };
      if (method === 'GET') return { status: 200, json: { webhooks: [] } };
      if (path.endsWith('/reset_secret')) return { status: 200, json: { secret: 'later' } };
      return { status: 201, headers: { location: '/v1/client_applications/9/webhooks/55' } };
    };
    const made = registration(platform());
    expect(await made.register()).toMatchObject({ webhook: 55 });
    expect(made.secrets()).toEqual(['later']);
  });

  it('enables the webhook even if the platform rejects event types and filters, and warns once', async () => {
    const changes: unknown[] = [];
    stub.answer = ({ method, path, body }) => {
      if (path.endsWith('/current')) return { status: 200, json: { id: 9, name: 'x' } };
      if (method === 'GET') {
        return { status: 200, json: { webhooks: [{ id: 5, url: URL_, event_types: ['old'], disabled: true }] } };
      }
      if (method !== 'PATCH') return { status: 200, json: { secret: 's' } };
      const change = JSON.parse(body) as object;
      changes.push(change);
      return 'disabled' in change ? { status: 204 } : { status: 400, json: { errors: [{ message: 'only disabled' }] } };
    };
    const running = registration(platform(), { properties: { threshold_reached: ['x'] }, reenable: 'always' });
    for (let i = 0; i < 2; i++) expect(await running.register()).toMatchObject({ webhook: 5 });
    expect(changes.slice(0, 3)).toEqual([
      { event_types: ['threshold_reached', 'asset_appeared'] },
      { properties: { threshold_reached: ['x'] } },
      { disabled: false },
    ]);
    const refused = logged.text.split('\n').filter((line) => line.includes('webhook.change_refused'));
    expect(refused.map((line) => JSON.parse(line).what)).toEqual(['event_types', 'properties']);
  });

  it('relies on its own filters if the platform does not return them, and warns if the platform does not store them', async () => {
    let shown: object = {};
    const changes: string[] = [];
    stub.answer = ({ method, path, body }) => {
      if (path.endsWith('/current')) return { status: 200, json: { id: 9, name: 'x' } };
      if (method === 'GET') {
        const hook = { id: 5, url: URL_, event_types: ['asset_updated'], disabled: false, ...shown };
        return { status: 200, json: { webhooks: [hook] } };
      }
      if (method === 'PATCH') changes.push(body);
      return method === 'PATCH' ? { status: 204 } : { status: 200, json: { secret: 's' } };
    };
    const filters = { eventTypes: ['asset_updated'], properties: { asset_updated: ['status'] } };
    await registration(platform(), filters).register();
    const restarted = registration(platform(), filters);
    await restarted.load();
    await restarted.register();
    expect(changes).toEqual(['{"properties":{"asset_updated":["status"]}}']);
    shown = { properties: {} };
    for (let i = 0; i < 4; i++) await restarted.register();
    expect(changes).toHaveLength(5);
    expect(logged.text.match(/webhook\.drift_stays/g)).toHaveLength(1);
  });

  it('registers without filters if the platform does not support them, and reports this', async () => {
    let made: object | undefined;
    stub.answer = ({ method, path, body }) => {
      if (path.endsWith('/current')) return { status: 200, json: { id: 9, name: 'x' } };
      if (method === 'GET')
        return { status: 200, json: { webhooks: made ? [{ id: 5, disabled: false, ...made }] : [] } };
      if (body.includes('properties')) return { status: 400, json: { errors: [{ message: 'unknown attribute' }] } };
      made = JSON.parse(body) as object;
      return { status: 201, json: { id: 5, secret: 's' } };
    };
    const running = registration(platform(), { properties: { threshold_reached: ['x'] } });
    expect(await running.register()).toMatchObject({ webhook: 5 });
    expect(running.secrets()).toEqual(['s']);
    await running.register();
    expect(logged.text).toContain('webhook.change_refused');
    expect(logged.text).toContain('unknown attribute');
  });

  it('reports the rejection message, but never the entire body', async () => {
    stub.answer = ({ path }) =>
      path.endsWith('/current')
        ? { status: 200, json: { id: 9 } }
        : {
            status: 403,
            json: { errors: [{ type: 'x', message: 'not yours', attribute: 'id' }], filler: 'y'.repeat(5_000) },
          };
    await expect(registration(platform()).register()).rejects.toMatchObject({
      code: 'platform.forbidden',
      retryable: false,
      message: expect.stringMatching(/403 \(forbidden\) to .*: id: not yours$/),
    });
  });

  it('sets an unreadable record aside unchanged, and resets the secret', async () => {
    writeFileSync(path(), '{"webhook":5,"url');
    stub.answer = ({ method, path: at }) => {
      if (at.endsWith('/current')) return { status: 200, json: { id: 9 } };
      if (method === 'GET')
        return { status: 200, json: { webhooks: [{ id: 5, url: URL_, event_types: [], disabled: false }] } };
      return method === 'PATCH' ? { status: 204 } : { status: 200, json: { secret: 'fresh' } };
    };
    const fixed = registration(platform());
    await fixed.load();
    await fixed.register();
    expect(fixed.secrets()).toEqual(['fresh']);
    const aside = readdirSync(folder).find((name) => name.includes('.corrupt-'))!;
    expect(readFileSync(join(folder, aside), 'utf8')).toBe('{"webhook":5,"url');
    expect(logged.text).toMatch(new RegExp(`"webhook.record_set_aside".*${aside}`));
  });

  it('sets aside a folder in place of the record, so that startup succeeds', async () => {
    mkdirSync(path());
    const started = registration(platform());
    await started.load();
    expect(started.secrets()).toEqual([]);
    expect(readdirSync(folder)).toEqual([expect.stringMatching(/^webhook\.json\.corrupt-/)]);
  });
});

describe('webhook registration with documented calls only', () => {
  let stub: StubPlatform;
  let hooks: { id: number; disabled: boolean; event_types: string[]; secret: string }[];

  beforeEach(async () => {
    hooks = [];
    stub = await new StubPlatform().start();
    stub.answer = ({ method, path, body }) => {
      if (path.endsWith('/current')) return { status: 200, json: { id: 9 } };
      const id = Number(/webhooks\/(\d+)/.exec(path)?.[1]);
      const hook = hooks.find((one) => one.id === id);
      if (method === 'POST' && path.endsWith('/webhooks')) {
        const made = { ...JSON.parse(body), id: hooks.length + 1, disabled: false, secret: `s${hooks.length + 1}` };
        hooks.push(made);
        return { status: 201, json: made };
      }
      if (hook && method === 'PATCH') {
        Object.assign(hook, JSON.parse(body));
        return { status: 200, json: { webhook: hook } };
      }
      if (hook && path.endsWith('/events')) return { status: 200, json: { events: [] } };
      return { status: 404 };
    };
  });
  afterEach(() => stub.stop());

  async function started(options: Partial<RegistrationOptions> = {}): Promise<WebhookRegistration> {
    const next = registration(new TestPlatform(() => stub.url), options);
    await next.load();
    return next;
  }
  const listed = () => {
    const respond = stub.answer;
    stub.answer = (request) =>
      request.method === 'GET' && request.path.endsWith('/webhooks')
        ? { status: 200, json: { webhooks: hooks.map(({ secret: _, ...shown }) => shown) } }
        : respond(request);
  };

  it('creates one webhook, stores its ID, and updates it without listing webhooks', async () => {
    const first = await started();
    expect(await first.register()).toMatchObject({ webhook: 1 });
    const second = await started({ eventTypes: ['node_appeared'] });
    await second.register();
    await second.register();
    expect(hooks).toMatchObject([{ id: 1, event_types: ['node_appeared'] }]);
    expect(stub.requests.filter(({ method }) => method === 'PATCH')).toHaveLength(1);
    expect(await second.list()).toMatchObject([{ id: 1, own: true, disabled: false }]);
    await second.disable();
    await (await started({ eventTypes: ['node_appeared'] })).register();
    expect(hooks).toMatchObject([{ id: 1, disabled: true }]);
  });

  it('creates another webhook if the stored webhook no longer exists', async () => {
    await (await started()).register();
    hooks = [{ id: 0, disabled: false, event_types: [], secret: '' }];
    expect(await (await started()).register()).toMatchObject({ webhook: 2 });
  });

  it('replaces the previous webhook if webhook.json was lost and the secret cannot be changed', async () => {
    listed();
    await (await started()).register();
    rmSync(path());
    const second = await started();
    expect(await second.register()).toMatchObject({ webhook: 2 });
    expect(second.secrets()).toEqual(['s2']);
    expect(hooks.map(({ disabled }) => disabled)).toEqual([true, false]);
    expect(logged.text).toMatch(/"webhook\.replaced","webhook":2,"replaced":1/);
    await (await started()).register();
    expect(hooks).toHaveLength(2);
    expect((await second.list()).map(({ own }) => own)).toEqual([false, true]);
  });

  it('keeps the current secret if a rotation is not possible, and reports how to change it', async () => {
    const running = await started();
    await running.register();
    await expect(running.rotateSecret()).rejects.toMatchObject({
      code: 'webhook.no_secret_change',
      hint: expect.stringContaining('WEBHOOK_SECRET'),
    });
    expect(running.isSecretKnown).toBe(true);
    expect(running.secrets()).toEqual(['s1']);
    await running.register();
    expect(hooks).toHaveLength(1);
  });

  it('does not create webhooks repeatedly if the platform returns no secret', async () => {
    const respond = stub.answer;
    stub.answer = (request) => {
      const response = respond(request);
      return request.method === 'POST' && response !== 'drop' && response.status === 201
        ? { status: 201, json: { id: hooks.length } }
        : response;
    };
    const running = await started();
    for (let i = 0; i < 3; i++) {
      await expect(running.register()).rejects.toMatchObject({ code: 'webhook.no_secret_change' });
    }
    expect(hooks).toHaveLength(1);
  });
});

describe('webhook drift', () => {
  const wanted = { url: URL_, eventTypes: ['a'], byHand: false };
  const there = (id: number, more = {}) => ({ id, url: URL_, event_types: ['a'], disabled: false, ...more });

  it('selects the recorded webhook, otherwise an enabled one, otherwise the oldest', () => {
    const found = [there(3, { disabled: true }), there(5), there(4)];
    expect(findDrift(found, { webhook: 5, url: URL_, scope: '', secret: 's' }, wanted)).toMatchObject({
      webhook: { id: 5 },
      resetSecret: false,
    });
    expect(findDrift(found, undefined, wanted)).toMatchObject({ webhook: { id: 4 }, resetSecret: true });
  });

  it('restores the URL of this webhook, but not of one registered for another URL', () => {
    const moved = [there(5, { url: 'https://elsewhere/' })];
    const record = { webhook: 5, url: URL_, scope: '', secret: 's' };
    expect(findDrift(moved, record, wanted)).toMatchObject({ kind: 'adopt', changes: [{ url: URL_ }] });
    expect(findDrift(moved, { ...record, url: 'https://elsewhere/' }, wanted)).toEqual({ kind: 'create' });
  });

  it('compares filters only if filters are configured', () => {
    const found = [there(5, { properties: { asset_updated: ['status'] } })];
    const record = { webhook: 5, url: URL_, scope: '', secret: 's' };
    expect(findDrift(found, record, wanted)).toMatchObject({ changes: [] });
    const same = { ...wanted, properties: { asset_updated: ['status'] } };
    expect(findDrift(found, record, same)).toMatchObject({ changes: [] });
    const other = { ...wanted, properties: { asset_updated: ['product'] } };
    expect(findDrift(found, record, other)).toMatchObject({
      changes: [{ properties: { asset_updated: ['product'] } }],
    });
  });
});
