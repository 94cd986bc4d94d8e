// Requires: chromium
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AgentProcess } from './harness/agent-process.ts';
import { axeFindings, openBrowser, openPage, pageAddress } from './harness/browser.ts';
import { Platform } from './harness/platform.ts';

const TOKEN = 'of-this-gateway/+==';
const TAGS = `tags:
  FT-101: { asset: 881, values: { flow: {} } }
  FT-102: { asset: 882, values: { level: {} } }
`;
const VIEWS = ['Now', 'History', 'Tags', 'Events', 'Assets', 'Held and rejected', 'Log', 'Doctor'];

let browser: Browser;
let platform: Platform;
let agent: AgentProcess;
let address: string;

beforeAll(async () => {
  const listen = await pageAddress();
  address = `http://${listen}/`;
  platform = await Platform.start();
  agent = new AgentProcess(platform.url, { tags: TAGS, env: { OPS_LISTEN: listen, OPS_TOKEN: TOKEN } });
  [browser] = await Promise.all([openBrowser(), agent.start()]);
});
afterAll(async () => {
  await browser?.close();
  await agent?.dispose();
  await platform?.stop();
});

const push = async (value: number) => (await agent.push([{ tag: 'FT-101', key: 'flow', value }])).status;
const withToken = () => `${address}#token=${encodeURIComponent(TOKEN)}`;
/** The document without the token has the status 401, and the browser reports this. */
const unexpected = (complaints: readonly string[]) => complaints.filter((text) => !text.includes('401'));

describe('operations page', () => {
  it('requires the token, and does not show anything with a wrong one', async () => {
    const authorized = { headers: { Authorization: `Bearer ${TOKEN}` } };
    const statuses = [await fetch(`${address}status`), await fetch(`${address}status`, authorized)];
    expect(statuses.map(({ status }) => status)).toEqual([401, 200]);
    const { page, complaints } = await openPage(browser, address);
    const field = page.getByLabel(/OPS_TOKEN/);
    await field.fill('wrong');
    await field.press('Enter');
    await page.getByText('Token rejected.').waitFor();
    expect(await page.getByRole('link', { name: 'Tags', exact: true }).count()).toBe(0);
    expect(await axeFindings(page)).toEqual([]);
    await field.fill(TOKEN);
    await field.press('Enter');
    await page.getByRole('link', { name: 'Tags', exact: true }).waitFor();
    expect(await page.evaluate('[localStorage.length, sessionStorage.length, document.cookie]')).toEqual([0, 0, '']);
    expect(unexpected(complaints)).toEqual([]);
    await page.close();
  });

  it('shows values as they arrive, and an outage of the platform until it recovers', async () => {
    const { page, complaints } = await openPage(browser, withToken());
    await page.getByRole('link', { name: 'Tags', exact: true }).click();
    expect(page.url()).not.toContain('token');
    for (const value of [12.5, 37.25]) {
      expect(await push(value)).toBe(204);
      await page.getByText(String(value)).first().waitFor();
    }
    await page.getByRole('link', { name: 'Now', exact: true }).click();
    const outage = page.getByText(/platform .*unavailable|unavailable for/i).first();
    expect(await outage.count()).toBe(0);
    await platform.fail();
    expect(await push(50)).toBe(204);
    await outage.waitFor();
    expect(await axeFindings(page)).toEqual([]);
    await platform.recover();
    await outage.waitFor({ state: 'detached' });
    expect(platform.stored(881, 'flow').map(({ value }) => value)).toEqual([12.5, 37.25, 50]);
    expect(unexpected(complaints)).toEqual([]);
    await page.close();
  });

  it('shows the reading, destination and chart of a tag that is opened by its address', async () => {
    const { page } = await openPage(browser, `${withToken()}&tags=FT-102%2Flevel`);
    await page.getByText('Waiting for readings').waitFor();
    for (const value of [1.25, 7.75]) {
      const pushed = await agent.push([{ tag: 'FT-102', key: 'level', value }]);
      expect(pushed.status).toBe(204);
      await page.getByText(String(value)).first().waitFor();
    }
    // A chart has one point per second.
    const chart = page.getByRole('img', { name: /time series chart/ });
    await expect
      .poll(async () => {
        await agent.push([{ tag: 'FT-102', key: 'level', value: 3 }]);
        return chart.count();
      })
      .toBe(1);
    await page.getByText('/assets/882/').waitFor();
    await page.close();
  });

  it('shows since when the connection is lost, and continues after a restart of the agent', async () => {
    const { page } = await openPage(browser, `${withToken()}&log`);
    const ready = page.locator('ol.log li').filter({ hasText: 'agent.ready' });
    await ready.waitFor();
    expect(await agent.end('SIGTERM')).toBe(0);
    await page.getByText(/No data from the gateway for \d+ s .*latest known state/).waitFor();
    expect(await ready.count()).toBe(1);
    await agent.start();
    await page.getByText('No data from the gateway').waitFor({ state: 'detached' });
    // The lines of the previous process are replaced.
    await expect.poll(() => ready.count()).toBe(1);
    await page.getByRole('link', { name: 'Tags', exact: true }).click();
    expect(await push(99.5)).toBe(204);
    await page.getByText('99.5').first().waitFor();
    await page.close();
  });

  it('does not send requests while its tab is hidden', async () => {
    const [hidden, visible] = [await openPage(browser, withToken()), await openPage(browser, withToken())];
    const [sent, reference] = [hidden, visible].map(({ page }) => {
      const requests: string[] = [];
      page.on('requestfinished', (request) => requests.push(request.url()));
      return requests;
    });
    await expect.poll(() => sent!.length).toBeGreaterThan(1);
    const setVisibility = (state: 'hidden' | 'visible') =>
      hidden.page.evaluate((value) => {
        Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => value });
        document.dispatchEvent(new Event('visibilitychange'));
      }, state);
    await setVisibility('hidden');
    const [before, referenceBefore] = [sent!.length, reference!.length];
    await expect.poll(() => reference!.length).toBeGreaterThan(referenceBefore + 4);
    // A request can be in progress while the tab is hidden.
    expect(sent!.length - before).toBeLessThanOrEqual(1);
    await setVisibility('visible');
    await expect.poll(() => sent!.length).toBeGreaterThan(before + 2);
    for (const { page } of [hidden, visible]) await page.close();
  });

  it('has no accessibility violations or console messages in its views, in light and dark mode', async () => {
    const { page, complaints } = await openPage(browser, withToken());
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      for (const view of VIEWS) {
        await page.getByRole('link', { name: view, exact: true }).click();
        await page.getByRole('heading', { name: view, exact: true }).first().waitFor();
        expect({ view, colorScheme, findings: await axeFindings(page) }).toEqual({ view, colorScheme, findings: [] });
      }
    }
    await page.getByRole('link', { name: 'Log', exact: true }).click();
    await page.getByText('agent.ready').first().waitFor();
    expect(unexpected(complaints)).toEqual([]);
    await page.close();
  });
});

describe('operations page without OPS_TOKEN', () => {
  let open: AgentProcess;
  let page: Page;

  beforeAll(async () => {
    const listen = await pageAddress();
    open = new AgentProcess(platform.url, { tags: TAGS, env: { OPS_LISTEN: listen } });
    await open.start();
    ({ page } = await openPage(browser, `http://${listen}/#/tags`));
  });
  afterAll(() => open?.dispose());

  it('shows status and readings, but no event contents, assets, log lines and checks', async () => {
    expect((await open.push([{ tag: 'FT-101', key: 'flow', value: 61.5 }])).status).toBe(204);
    await page.getByText('61.5').first().waitFor();
    const requests: string[] = [];
    page.on('request', (request) => {
      const { pathname } = new URL(request.url());
      if (pathname.startsWith('/live/')) requests.push(pathname);
    });
    for (const view of ['Events', 'Assets', 'Log', 'Doctor']) {
      await page.getByRole('link', { name: view, exact: true }).click();
      await page.getByText('require OPS_TOKEN').waitFor();
    }
    await expect.poll(() => requests.length).toBeGreaterThan(1);
    expect(new Set(requests)).toEqual(new Set(['/live/now']));
  });
});

describe('operations page with thousands of values', () => {
  const VALUES = 2_500;
  let many: AgentProcess;
  let page: Page;

  beforeAll(async () => {
    const listen = await pageAddress();
    const lines = Array.from({ length: VALUES }, (_, at) => {
      const from = at % 2 === 1 ? 'from: sim, shape: noise, low: 0, high: 10, ' : '';
      return `  T-${at}: { asset: ${881 + (at % 12)}, values: { v${at}: { ${from}unit: { code: one } } } }\n`;
    });
    const tags = `sources:\n  sim: { simulate: true, every: 1s }\ntags:\n${lines.join('')}`;
    many = new AgentProcess(platform.url, { tags, env: { OPS_LISTEN: listen } });
    await many.start();
    ({ page } = await openPage(browser, `http://${listen}/#/tags`));
  });
  afterAll(() => many?.dispose());

  it('lists all values but renders only the visible ones', async () => {
    await page.getByText('2,500 values', { exact: true }).waitFor();
    await page.locator('.long-list').focus();
    await page.keyboard.press('End');
    await page.getByRole('link', { name: /T-2499 v2499 / }).waitFor();
    expect(await page.locator('.long-list li').count()).toBeLessThan(60);
  });

  it('updates the readings of all values', async () => {
    const reading = page.getByRole('link', { name: /T-2499 v2499 / }).locator('.reading');
    const before = await reading.textContent();
    await expect.poll(() => reading.textContent()).not.toBe(before);
    await page.getByRole('searchbox').fill('t-1001');
    await page.getByText('1 of 2500').waitFor();
    const other = page.getByRole('link', { name: /T-1001 v1001 / }).locator('.reading');
    const otherBefore = await other.textContent();
    await expect.poll(() => other.textContent()).not.toBe(otherBefore);
    await page.getByRole('searchbox').fill('');
    await page.getByLabel('Show').selectOption('live');
    await page.getByText('1250 of 2500').waitFor();
  });

  it('loads and updates over a slow link', async () => {
    const slow = await browser.newPage();
    const network = await slow.context().newCDPSession(slow);
    const limits = { offline: false, latency: 500, downloadThroughput: 16_000, uploadThroughput: 4_000 };
    await network.send('Network.emulateNetworkConditions', limits);
    await slow.goto(page.url());
    await slow.getByText('2,500 values', { exact: true }).waitFor();
    await slow.getByRole('searchbox').fill('t-2499');
    const reading = slow.getByRole('link', { name: /T-2499 v2499 / }).locator('.reading');
    const before = await reading.textContent();
    await expect.poll(() => reading.textContent()).not.toBe(before);
    expect(await slow.getByText('No data from the gateway').count()).toBe(0);
    await slow.close();
  });

  it('lists added values after a reload', async () => {
    await page.getByLabel('Show').selectOption('all');
    many.write(platform.url, { tags: TAGS, env: { OPS_LISTEN: new URL(page.url()).host } });
    many.signal('SIGHUP');
    await page.getByRole('link', { name: /FT-101 flow / }).waitFor();
    await page.getByText('2 values', { exact: true }).waitFor();
  });
});
