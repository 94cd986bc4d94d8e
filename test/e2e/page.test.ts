// Requires: chromium
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AgentProcess } from './harness/agent-process.ts';
import { axeFindings, openBrowser, openPage, pageAddress } from './harness/browser.ts';
import { Platform } from './harness/platform.ts';

const TOKEN = 'of-this-gateway/+==';
const TAGS = `tags:
  FT-101: { asset: 881, values: { flow: {} } }
  FT-102: { asset: 882, values: { level: {} } }
`;

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

  it('has no accessibility violations or console messages in its views, in light and dark mode', async () => {
    const { page, complaints } = await openPage(browser, withToken());
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      for (const view of ['Now', 'Tags', 'Events', 'Log']) {
        await page.getByRole('link', { name: view, exact: true }).click();
        await page.getByRole('heading', { name: view, exact: true }).first().waitFor();
        expect({ view, colorScheme, findings: await axeFindings(page) }).toEqual({ view, colorScheme, findings: [] });
      }
    }
    await page.getByText('agent.ready').first().waitFor();
    expect(unexpected(complaints)).toEqual([]);
    await page.close();
  });
});
