import { request } from 'node:http';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { SANDBOX_CREDENTIALS, Sandbox, type SandboxOptions } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { axeFindings, openBrowser, openPage } from './open-browser.ts';

const HOSTILE = '<img src=x onerror="document.title=1">';
const TAGS = `tags:
  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: { code: cubic_meter_per_hour } } } }
  FT-102: { asset: 882, instrumentation: 4712, values: { flow: { unit: { code: cubic_meter_per_hour } } } }
`;

let browser: Browser;
let sandbox: Sandbox;
let context: BrowserContext;
let page: Page;
let complaints: string[];

beforeAll(async () => {
  browser = await openBrowser();
});
afterAll(() => browser?.close());

async function open(options: SandboxOptions = {}, look: Parameters<Browser['newContext']>[0] = {}): Promise<void> {
  sandbox = new Sandbox({ sendWebhook: () => Promise.resolve(204), ...options });
  await sandbox.start();
  context = await browser.newContext({ viewport: { width: 1300, height: 1000 }, ...look });
  ({ page, complaints } = await openPage(context, `${sandbox.url}/sandbox/`));
  await page.getByText('available', { exact: true }).waitFor();
}

function take(asset: number, values: readonly number[], unit = sandbox.site.get('units', 12)): void {
  const timestampMs = sandbox.clock.wallMs();
  const points = values.map((value, at) => ({
    timestampMs: timestampMs + at,
    value,
    status: undefined,
    stamped: false,
  }));
  sandbox.acceptValues(asset, [{ key: 'flow', group: undefined, unit, points }]);
}

const slider = () => page.getByRole('slider', { name: 'high limit' });

describe('sandbox page with a gateway', () => {
  let agent: AgentProcess;

  beforeAll(async () => {
    await open();
    sandbox.webhookRegistry.add({
      ...{ url: 'http://127.0.0.1/hook', event_types: ['threshold_reached'], application: 3 },
      ...{ secret: 'webhook-secret-of-the-test', disabled: false },
    });
    agent = new AgentProcess(sandbox.url, { tags: TAGS });
    await agent.start();
  });
  afterAll(async () => {
    await context?.close();
    await agent?.dispose();
    await sandbox?.stop();
  });

  let nextMs = Date.UTC(2026, 10, 22, 12);
  const push = async (tag: string, value: number) => {
    nextMs += 1000;
    const timestamp = new Date(nextMs).toISOString();
    expect((await agent.push([{ tag, key: 'flow', timestamp, value }])).status).toBe(204);
  };
  const told = () => sandbox.deliveries().filter(({ eventType }) => eventType === 'threshold_reached').length;
  const limit = () => sandbox.site.all('thresholds')[0]!.value;
  const arrived = (count: number) =>
    agent.until(() => sandbox.values.counts(881, 'flow').stored === count, `${count} values at the platform`);

  it('draws live values, and triggers events when a threshold is moved by mouse or keyboard', async () => {
    const id = sandbox.setThreshold({ instrumentation: 4711, type: 'high', value: 100, key: 'flow' });
    await push('FT-101', 15);
    await push('FT-101', 20);
    await arrived(2);
    await page.getByRole('figure').getByText('flow 20 m³/h').waitFor();
    expect(told()).toBe(0);

    await slider().hover();
    const { x, y, width } = (await slider().boundingBox())!;
    const chart = (await page.getByRole('img', { name: 'FT-101, time series chart' }).boundingBox())!;
    await page.mouse.move(x + width / 2, y + 10);
    await page.mouse.down();
    await page.mouse.move(x + width / 2, chart.y + chart.height / 2, { steps: 4 });
    await page.mouse.move(x + width / 2, chart.y + chart.height, { steps: 4 });
    await page.mouse.up();
    await agent.until(() => limit() < 15, 'the threshold is below the values');
    await push('FT-101', 21);
    await arrived(3);
    expect(told()).toBe(1);
    const rows = page.getByRole('row', { name: /threshold_reached webhook 1 delivered 1, latest response 204/ });
    await expect.poll(() => rows.count(), { timeout: 30_000 }).toBe(1);

    sandbox.setThreshold({ id, instrumentation: 4711, type: 'high', value: 100, key: 'flow' });
    await expect.poll(() => slider().getAttribute('aria-valuenow'), { timeout: 30_000 }).toBe('100');
    await slider().focus();
    await page.keyboard.press('ArrowDown');
    await agent.until(() => limit() < 100 && limit() > 90, 'one key press is one step');
    await page.keyboard.press('Home');
    await agent.until(() => limit() < 15, 'the threshold is below the values');
    await push('FT-101', 22);
    await arrived(4);
    expect(told()).toBe(2);
    await expect.poll(() => rows.count(), { timeout: 30_000 }).toBe(2);
    expect(complaints).toEqual([]);
  });

  it('revokes a permission with a switch, and the gateway holds the asset', async () => {
    await page.getByRole('button', { name: /^FT-102/ }).click();
    const update = page.getByRole('switch', { name: 'can_update on asset SN-000882' });
    await update.click();
    await page.getByRole('switch', { name: 'can_update on asset SN-000882', checked: false }).waitFor();
    await push('FT-102', 1);
    await agent.until(async () => (await agent.metric('tagferry_assets_held')) === 1, 'the asset is held');
    await page
      .getByRole('row', { name: /Gateway POST \/v1\/assets\/882\/values 403/ })
      .first()
      .waitFor();
    await update.click();
    await page.getByRole('switch', { name: 'can_update on asset SN-000882', checked: true }).waitFor();
    expect(sandbox.permissions.may(5, 'can_update', { type: 'Asset', id: 882 })).toBe(true);
  });

  it('takes the platform offline and online, while the gateway backlog grows and drains', async () => {
    const away = page.getByRole('button', { name: /^outage/ });
    await away.click();
    await page.getByRole('button', { name: /^outage/, pressed: true }).waitFor();
    const backlog = () => agent.metric('tagferry_buffer_values');
    const before = await backlog();
    const stored = sandbox.values.counts().stored;
    for (const value of [30, 31, 32, 33, 34]) await push('FT-101', value);
    await agent.until(async () => (await backlog()) === before + 5, 'five more values are waiting');
    await agent.until(async () => (await agent.metric('tagferry_platform_unavailable_seconds')) > 0, 'it is known');
    expect(sandbox.values.counts().stored).toBe(stored);
    await away.click();
    await page.getByText('available', { exact: true }).waitFor();
    await arrived(9);
  });

  it('identifies tokens by fingerprint and shows no secrets', async () => {
    const { access_token, refresh_token } = sandbox.tokens.issue(5, 3, 'password');
    const token = sandbox.tokens.list().at(-1);
    await page.getByRole('row', { name: new RegExp(`${token!.fingerprint} Gateway password`) }).waitFor();
    const stream = await firstOfStream();
    for (const secret of [
      access_token,
      refresh_token,
      'webhook-secret-of-the-test',
      SANDBOX_CREDENTIALS.clientSecret,
      'gateway-password',
    ]) {
      expect(stream).not.toContain(secret);
      expect(await page.content()).not.toContain(secret);
    }
  });
});

/** First message to a new viewer. */
async function firstOfStream(): Promise<string> {
  const answer = await fetch(`${sandbox.url}/sandbox/live?asset=881&key=flow`);
  const reader = answer.body!.getReader();
  let text = '';
  const decoder = new TextDecoder();
  while (!text.includes('event: tick')) text += decoder.decode((await reader.read()).value, { stream: true });
  await reader.cancel();
  return text;
}

describe('sandbox page', () => {
  afterEach(async () => {
    await context?.close();
    await sandbox?.stop();
  });

  it('sets and removes faults', async () => {
    await open();
    for (const [label, effect] of [
      ['429', { status: 429, retryAfter: 10 }],
      ['500', { status: 500 }],
      ['slow', { latencyMs: 3000 }],
      ['lost response', { drop: 'after', method: 'POST' }],
    ] as const) {
      const button = page.getByRole('button', { name: new RegExp(`^${label}`) });
      await button.click();
      await page.getByRole('button', { name: new RegExp(`^${label}`), pressed: true }).waitFor();
      expect(sandbox.faults.list()).toEqual([expect.objectContaining({ path: '/v1/*', ...effect })]);
      await button.click();
      await page.getByRole('button', { name: new RegExp(`^${label}`), pressed: false }).waitFor();
      expect(sandbox.faults.list()).toEqual([]);
    }
    sandbox.faults.add({ asset: 881, status: 503 });
    await page.getByText('{"asset":881,"status":503}').waitFor();
    await page.getByRole('button', { name: /Remove/ }).click();
    await expect.poll(() => sandbox.faults.list()).toEqual([]);
    expect(complaints).toEqual([]);
  });

  it('reports why an action failed, and adds and removes thresholds', async () => {
    await open();
    take(881, [1, 2], { id: 999, code: 'no_unit_of_the_site', symbol: '' });
    const set = page.getByRole('button', { name: 'Add', exact: true });
    await page.getByRole('spinbutton', { name: 'Value of the new threshold' }).fill('7.5');
    await set.click();
    await page.getByText(/^Failed: unit/).waitFor();
    take(881, [3, 4]);
    await page.getByRole('figure').getByText('flow 4 m³/h').waitFor();
    await set.click();
    await slider().waitFor();
    expect(sandbox.site.all('thresholds')).toEqual([
      expect.objectContaining({ value: 7.5, key: 'flow', unit: 'cubic_meter_per_hour', thresholdable_id: 4711 }),
    ]);
    await page.getByText('Failed:').waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Remove high limit' }).click();
    await slider().waitFor({ state: 'detached' });
    expect(sandbox.site.all('thresholds')).toEqual([]);
  });

  it('draws a threshold in a different unit at its position among the values', async () => {
    await open();
    take(881, [1, 2]);
    sandbox.setThreshold({ instrumentation: 4711, type: 'high', value: 50, unit: 'liter_per_minute' });
    sandbox.setThreshold({ instrumentation: 4711, type: 'low', value: 50, unit: 'bar' });
    await slider().waitFor();
    expect(await slider().getAttribute('aria-valuenow')).toBe('3');
    await page.getByText('in a unit of a different physical quantity').waitFor();
    expect(await page.getByRole('slider').count()).toBe(1);
    await slider().focus();
    await page.keyboard.press('End');
    await expect.poll(() => sandbox.site.all('thresholds')[0]!.value, { timeout: 30_000 }).toBeGreaterThan(50);
    expect(sandbox.site.all('thresholds')[0]).toMatchObject({ unit: 'liter_per_minute', thresholdable_id: 4711 });
  });

  it('escapes markup in external names', async () => {
    await open();
    sandbox.changes.put('assets', { id: 990, serial_number: HOSTILE, description: HOSTILE });
    sandbox.changes.put('instrumentations', { id: 4990, tag: HOSTILE, assets: [990] });
    sandbox.setThreshold({ instrumentation: 4990, type: 'high', value: 3, name: HOSTILE });
    take(990, [1, 2]);
    sandbox.report(HOSTILE);
    await page.getByRole('button', { name: /asset 990/ }).click();
    await page.getByRole('heading', { name: HOSTILE }).waitFor();
    await page.getByRole('slider', { name: HOSTILE }).waitFor();
    await page.getByRole('cell', { name: HOSTILE }).waitFor();
    expect(await page.locator('img[src]').count()).toBe(0);
    expect(await page.title()).toBe('tagferry sandbox');
    expect(complaints).toEqual([]);
  });

  it('keeps the 200 latest requests, shows how long the sandbox has been unreachable, and reconnects', async () => {
    await open();
    for (const from of [0, 90, 180]) {
      for (let at = from; at < from + 90; at++) sandbox.report(`sentence ${at}`);
      await page.getByText(`sentence ${from + 89}`, { exact: true }).waitFor();
    }
    expect(await page.getByRole('row', { name: /sentence/ }).count()).toBe(200);
    await sandbox.goOffline('refuse');
    await page.getByText('No response from the sandbox for').waitFor();
    await sandbox.goOnline();
    await page.getByText('No response from the sandbox for').waitFor({ state: 'detached' });
    sandbox.report('and on it goes');
    await page.getByText('and on it goes').waitFor();
  });

  it.each([
    ['a wall, light', { viewport: { width: 1600, height: 900 }, colorScheme: 'light' }],
    ['a phone of 360 px, dark', { viewport: { width: 360, height: 740 }, colorScheme: 'dark' }],
  ] as const)('has no accessibility findings on %s', async (_, look) => {
    await open({}, look);
    take(881, [1, 2]);
    sandbox.setThreshold({ instrumentation: 4711, type: 'high', value: 3 });
    await slider().waitFor();
    expect(await axeFindings(page)).toEqual([]);
    const wide = await page.evaluate('document.documentElement.scrollWidth - window.innerWidth');
    expect(wide).toBe(0);
    expect(complaints).toEqual([]);
  });
});

describe('sandbox page access', () => {
  afterEach(() => sandbox.stop());

  function call(path: string, headers: Record<string, string>, method = 'GET'): Promise<[number, string]> {
    return new Promise((resolve, reject) => {
      const asked = request(`${sandbox.url}${path}`, { headers, method, agent: false }, (answer) => {
        resolve([answer.statusCode!, String(answer.headers['content-security-policy'] ?? '')]);
        answer.destroy();
      });
      asked.on('error', reject).end();
    });
  }

  it('is denied to other host names and origins', async () => {
    sandbox = new Sandbox();
    await sandbox.start();
    const host = { Host: 'plant.evil.example' };
    const origin = { Origin: 'http://evil.example' };
    for (const path of ['/sandbox/', '/sandbox/live', '/sandbox/page/main.js'])
      expect((await call(path, host))[0], path).toBe(421);
    expect((await call('/sandbox/live', origin))[0]).toBe(403);
    expect((await call('/sandbox/live', { Origin: 'null' }))[0]).toBe(403);
    expect((await call('/sandbox/live', { Origin: sandbox.url }))[0]).toBe(200);
    for (const path of ['/sandbox/thresholds', '/sandbox/permissions', '/sandbox/faults', '/sandbox/offline'])
      expect((await call(path, { ...origin, 'Content-Type': 'text/plain' }, 'POST'))[0], path).toBe(403);
    const [status, policy] = await call('/sandbox/', {});
    expect(status).toBe(200);
    expect(policy).toMatch(/^default-src 'none'; script-src 'self'; style-src 'self'/);
    expect(policy).not.toContain('unsafe');
    expect((await call('/sandbox/page/../index.html', {}))[0]).toBe(404);
    expect((await call('/sandbox/live?asset=all', {}))[0]).toBe(400);
  });

  it('is denied if the sandbox listens on the network', async () => {
    sandbox = new Sandbox({ host: '192.0.2.1' });
    const route = sandbox.routes.find(({ pattern }) => pattern === '/sandbox/')!;
    expect(() => route.handle({} as never)).toThrow(expect.objectContaining({ status: 403 }));
  });
});
