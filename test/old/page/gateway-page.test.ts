import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { axeFindings, openBrowser, openPage, sidewaysPixels } from './open-browser.ts';

const TOKEN = 'kept-in-the-tab/+alone==';
const HOSTILE = `<img src=x onerror="document.title='taken'"><script>document.title='taken'</script>`;
const ASSET = 881;
const TAGS = `sources:
  sim: { simulate: true, every: 1s, period: 20s }
tags:
  FT-101: { asset: ${ASSET}, instrumentation: 4711, values: { flow: { unit: { code: one } } } }
  TT-101:
    asset: 882
    values: { temperature: { unit: { code: one }, from: sim, shape: sine, low: 0, high: 10, scale: 2, offset: 1 } }
  ${JSON.stringify(HOSTILE)}: { asset: 882, values: { x: { unit: { code: one }, from: sim, shape: noise, low: 0, high: 1 } } }
`;
const REACTIONS = `reactions:
  - name: close-inlet-valve
    on: threshold_reached
    do: [{ run: [/bin/echo, "<b>the valve closes</b>"] }]
`;

let browser: Browser;
let sandbox: Sandbox;
let agent: AgentProcess;
let page: Page;
let complaints: string[];
let port: number;

beforeAll(async () => {
  sandbox = new Sandbox({});
  const ports = await Promise.all([freePort(), freePort(), sandbox.start()]);
  port = ports[0];
  agent = new AgentProcess(sandbox.url, {
    env: {
      OPS_LISTEN: `127.0.0.1:${port}`,
      OPS_TOKEN: TOKEN,
      WEBHOOK_LISTEN: `127.0.0.1:${ports[1]}`,
      WEBHOOK_URL: `http://127.0.0.1:${ports[1]}/webhook`,
    },
    tags: TAGS,
    reactions: REACTIONS,
  });
  [browser] = await Promise.all([openBrowser(), agent.start({ TZ: 'Asia/Kolkata' })]);
  ({ page, complaints } = await openPage(browser, `http://localhost:${port}/#token=${encodeURIComponent(TOKEN)}&now`));
  await part('buffer to platform').waitFor();
});

afterAll(async () => {
  await browser?.close();
  await agent?.dispose();
  await sandbox?.stop();
});

/** Page contents and browser messages at the failure. */
afterEach(async ({ task }) => {
  if (task.result?.state !== 'fail') return;
  const text = await page.innerText('body', { timeout: 5_000 }).catch(String);
  process.stderr.write(`${page.url()}: ${complaints.join('; ')}\n${text}\n${agent.output.slice(-2_000)}\n`);
});

/** Selects part of the diagram at the top. */
const part = (name: string) => page.getByRole('listitem', { name });
const view = (name: string) => page.getByRole('link', { name, exact: true }).click();
const push = (value: number) => agent.push([{ tag: 'FT-101', key: 'flow', value }]);

const LOGS_PAGE = readFileSync(join(import.meta.dirname, '../../../docs/reference/logs.md'), 'utf8');

describe('gateway page', () => {
  it('sends requests only to its gateway, and complies with its content security policy', async () => {
    const hosts = new Set<string>();
    page.on('request', (request) => hosts.add(new URL(request.url()).host));
    await page.reload();
    // The token was removed from the address and is not in browser storage, so a reload prompts for it.
    expect(page.url()).not.toContain('token');
    await page.getByLabel('OPS_TOKEN of this gateway').fill('wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('Token rejected.').waitFor();
    await page.getByLabel('OPS_TOKEN of this gateway').fill(TOKEN);
    expect(await axeFindings(page)).toEqual([]);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await part('plant to buffer').waitFor();
    expect([...hosts]).toEqual([`localhost:${port}`]);
    const kept = await page.evaluate('[localStorage.length, sessionStorage.length, document.cookie]');
    expect(kept).toEqual([0, 0, '']);
    // The response without the token is the only browser error.
    expect(complaints.filter((text) => !text.includes('401'))).toEqual([]);
  });

  it('shows the start time of an outage, and the backlog as it grows and drains', async () => {
    await push(1);
    await part('buffer to platform').getByText('flowing').waitFor();
    await sandbox.goOffline('refuse');
    for (let value = 0; value < 20; value++) await push(value);
    await part('buffer to platform')
      .getByText(/unavailable for/)
      .waitFor();
    await page.getByText(/The platform has been unavailable for/).waitFor();
    await page.getByRole('button', { name: 'Copy: tagferry doctor' }).waitFor();
    await sandbox.goOnline();
    await part('buffer to platform').getByText('flowing').waitFor();
    await page.getByText('No problems.').waitFor();
  });

  it('shows holds with the platform message until they are released', async () => {
    sandbox.revokePermission({ type: 'Asset', id: ASSET });
    await push(2);
    await part('buffer to platform').getByText('1 object held').waitFor();
    await view('Held and rejected');
    await page.getByRole('heading', { name: `asset ${ASSET}` }).waitFor();
    await page.getByText(/next attempt in/).waitFor();
    await view('Tags');
    const row = page.getByRole('link', { name: /FT-101 flow/ });
    await row.getByText('held').waitFor();
    sandbox.grantPermission({ type: 'Asset', id: ASSET });
    await row.getByText('live').waitFor();
  });

  it('shows an event, the result of its reaction, and the end of the command output as plain text', async () => {
    await agent.registered();
    sandbox.setThreshold({ instrumentation: 4711, type: 'high', value: 50, key: 'flow', unit: 'one' });
    await push(10);
    await push(99);
    await view('Events');
    await page.getByRole('heading', { name: /done threshold_reached for instrumentation 4711/ }).waitFor();
    await page.getByText('Final output of close-inlet-valve:').waitFor();
    await page.getByText('<b>the valve closes</b>', { exact: true }).waitFor();
    expect(await axeFindings(page)).toEqual([]);
  });

  it('lists its webhook deliveries as recorded by the platform', async () => {
    await view('Events');
    const list = page.getByRole('region', { name: 'Deliveries on the platform' });
    await list.getByRole('row', { name: /delivered asset_disappeared .* 1 / }).waitFor();
    await page.getByText(/^\d+ of \d+ deliveries of webhook \d+, as of /).waitFor();
  });

  it('lists known assets, finds an asset by serial number, and shows lost access', async () => {
    sandbox.revokePermission({ type: 'Asset', id: 910 });
    sandbox.grantPermission({ type: 'Asset', id: 910 });
    const grantedMs = Date.now();
    await view('Assets');
    const list = page.getByRole('region', { name: 'assets' });
    await list.getByText('SK-910').waitFor();
    await page.getByRole('searchbox').fill('sk-910');
    await page.getByText(/^1 of \d+$/).waitFor();
    await list.getByText('visible').waitFor();
    // Of events within a second, the appearance takes precedence.
    await agent.until(() => Date.now() > grantedMs + 1_000, 'the next event is later');
    sandbox.revokePermission({ type: 'Asset', id: 910 });
    await list.getByText('lost').waitFor();
    expect(await axeFindings(page)).toEqual([]);
    sandbox.grantPermission({ type: 'Asset', id: 910 });
  });

  it('escapes markup in a tag name, and shows the raw reading and live samples', async () => {
    await view('Tags');
    await page.getByRole('link', { name: HOSTILE }).waitFor();
    await page.getByRole('searchbox').fill('tt-101');
    await page.getByText('1 of 3').waitFor();
    await page.getByRole('link', { name: /TT-101 temperature/ }).click();
    await page.getByText('raw × 2 + 1').waitFor();
    await page.getByText('/v1/assets/882/values').waitFor();
    await page.locator('figure.chart canvas').waitFor();
    await page.goBack();
    await page.getByRole('link', { name: HOSTILE }).click();
    await page.getByRole('heading', { name: HOSTILE }).waitFor();
    expect(await page.title()).toBe('tagferry');
  });

  it('shows the log with explanations and the doctor results without external requests', async () => {
    await view('Log');
    await page.getByRole('searchbox').fill('agent.ready');
    const [, meaning] = /^\| `agent\.ready` \| [^|]+ \| ([^|]+) \|/m.exec(LOGS_PAGE)!;
    await page.getByText(meaning!.trim()).first().waitFor();
    await view('Doctor');
    const before = sandbox.requests.list().length;
    await page.getByRole('button', { name: 'Run checks' }).click();
    await page.getByText(/\d+ ok at/).waitFor();
    const checks = await page.locator('.check code').allTextContents();
    expect(checks).toContain('state.writable');
    expect(checks.filter((check) => /^(network|api|sign_in|proxy|assets)/.test(check))).toEqual([]);
    const asked = sandbox.requests.list().slice(before);
    expect(asked.filter(({ method, path }) => !(method === 'POST' && path.endsWith('/values')))).toEqual([]);
  });

  it('has no axe-core violations or horizontal overflow on a 360-pixel screen in light and dark mode', async () => {
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      for (const [name, width] of [
        ['Now', 360],
        ['History', 360],
        ['Tags', 360],
        ['Events', 360],
        ['Assets', 360],
        ['Held and rejected', 1280],
        ['Log', 360],
        ['Doctor', 360],
      ] as const) {
        await page.setViewportSize({ width, height: 740 });
        await view(name);
        await page.getByRole('heading', { level: 2, name, exact: true }).waitFor();
        expect([name, colorScheme, await axeFindings(page)]).toEqual([name, colorScheme, []]);
        expect([name, await sidewaysPixels(page)]).toEqual([name, 0]);
      }
    }
    await page.emulateMedia({ colorScheme: 'light' });
    await page.setViewportSize({ width: 1280, height: 800 });
  });

  it('can be operated with the keyboard alone', async () => {
    await view('Now');
    await page.getByRole('link', { name: 'Now', exact: true }).focus();
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 2, name: 'History' }).waitFor();
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 2, name: 'Tags' }).waitFor();
  });

  it('shows how long a gateway has been unreachable, reconnects, and reports data lost in the gateway restart', async () => {
    await agent.end('SIGKILL');
    await page.getByText(/No data from the gateway for/).waitFor();
    await agent.start({ TZ: 'Asia/Kolkata' });
    await page.getByText(/No data from the gateway for/).waitFor({ state: 'detached' });
    await view('History');
    await page.getByText(/History starts at agent startup, .* ago/).waitFor();
  });

  it('uses the gateway time, regardless of the browser clock', async () => {
    const context = await browser.newContext({ timezoneId: 'America/New_York' });
    await context.addInitScript(() => {
      const years = 20 * 365 * 86_400_000;
      const { now } = Date;
      Date.now = () => now() - years;
    });
    const other = await openPage(context, `http://localhost:${port}/#token=${encodeURIComponent(TOKEN)}`);
    const clock = other.page.getByText(/ \+05:30$/).first();
    await clock.waitFor();
    const shown = await clock.textContent();
    const shownMs = Date.parse(shown!.replace(' ', 'T').replace(' ', ''));
    expect(Math.abs(shownMs - Date.now())).toBeLessThan(60_000);
    await context.close();
  });

  it('rejects requests with a different host name to prevent DNS rebinding', async () => {
    const foreign = await browser.newPage();
    const answer = await foreign.goto(`http://evil.example:${port}/`);
    expect(answer!.status()).toBe(421);
    expect(await foreign.content()).not.toContain('main-');
    await foreign.close();
  });
});
