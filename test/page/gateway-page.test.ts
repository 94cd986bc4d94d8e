import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../../src/base/port-claim.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../process/agent-process.ts';
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

/** What was there to be seen instead, and what the browser said of it. */
afterEach(async ({ task }) => {
  if (task.result?.state !== 'fail') return;
  const text = await page.innerText('body', { timeout: 5_000 }).catch(String);
  process.stderr.write(`${page.url()}: ${complaints.join('; ')}\n${text}\n${agent.output.slice(-2_000)}\n`);
});

/** A part of the picture on top. */
const part = (name: string) => page.getByRole('listitem', { name });
const view = (name: string) => page.getByRole('link', { name, exact: true }).click();
const push = (value: number) => agent.push([{ tag: 'FT-101', key: 'flow', value }]);

describe('the page of a gateway', () => {
  it('asks nobody but its gateway, and breaks none of its own rules', async () => {
    const hosts = new Set<string>();
    page.on('request', (request) => hosts.add(new URL(request.url()).host));
    await page.reload();
    // The token was taken out of the address, and stands in no store: a reload asks for it.
    expect(page.url()).not.toContain('token');
    await page.getByLabel('OPS_TOKEN of this gateway').fill('wrong');
    await page.getByRole('button', { name: 'Show' }).click();
    await page.getByText('The gateway did not take it.').waitFor();
    await page.getByLabel('OPS_TOKEN of this gateway').fill(TOKEN);
    expect(await axeFindings(page)).toEqual([]);
    await page.getByRole('button', { name: 'Show' }).click();
    await part('plant to buffer').waitFor();
    expect([...hosts]).toEqual([`localhost:${port}`]);
    const kept = await page.evaluate('[localStorage.length, sessionStorage.length, document.cookie]');
    expect(kept).toEqual([0, 0, '']);
    // What it was answered without the token is all that a browser has to complain about.
    expect(complaints.filter((text) => !text.includes('401'))).toEqual([]);
  });

  it('shows an outage from its beginning to its end: away since when, a backlog that grows and drains', async () => {
    await push(1);
    await part('buffer to platform').getByText('flows').waitFor();
    await sandbox.goOffline('refuse');
    for (let value = 0; value < 20; value++) await push(value);
    await part('buffer to platform')
      .getByText(/away since/)
      .waitFor();
    await page.getByText(/The platform is away, for/).waitFor();
    await page.getByRole('button', { name: 'copy: tagferry doctor' }).waitFor();
    await sandbox.goOnline();
    await part('buffer to platform').getByText('flows').waitFor();
    await page.getByText('Nothing is wrong.').waitFor();
  });

  it('shows what is held, in the words of the platform, and its release', async () => {
    sandbox.takePermission({ type: 'Asset', id: ASSET });
    await push(2);
    await part('buffer to platform').getByText('1 hold').waitFor();
    await view('Held and refused');
    await page.getByRole('heading', { name: `asset ${ASSET}` }).waitFor();
    await page.getByText(/tried again in/).waitFor();
    await view('Tags');
    const row = page.getByRole('link', { name: /FT-101 flow/ });
    await row.getByText('held').waitFor();
    sandbox.grantPermission({ type: 'Asset', id: ASSET });
    await row.getByText('live').waitFor();
  });

  it('shows an event, what its reaction did, and how its output ended, as text', async () => {
    await agent.registered();
    sandbox.setThreshold({ instrumentation: 4711, type: 'high', value: 50, key: 'flow', unit: 'one' });
    await push(10);
    await push(99);
    await view('Events');
    await page.getByRole('heading', { name: /done threshold_reached of instrumentation 4711/ }).waitFor();
    await page.getByText('the output of close-inlet-valve ended').waitFor();
    await page.getByText('<b>the valve closes</b>', { exact: true }).waitFor();
    expect(await axeFindings(page)).toEqual([]);
  });

  it('lists the deliveries of its webhook as the platform stores them', async () => {
    await view('Events');
    const list = page.getByRole('region', { name: 'Deliveries on the platform' });
    await list.getByRole('row', { name: /delivered asset_disappeared .* 1 / }).waitFor();
    await page.getByText(/^\d+ of \d+, webhook \d+, read /).waitFor();
  });

  it('lists known assets, finds one by its serial number, and shows that access was lost', async () => {
    sandbox.takePermission({ type: 'Asset', id: 910 });
    sandbox.grantPermission({ type: 'Asset', id: 910 });
    await view('Assets');
    const list = page.getByRole('region', { name: 'assets' });
    await list.getByText('SK-910').waitFor();
    await page.getByRole('searchbox').fill('sk-910');
    await page.getByText(/^1 of \d+$/).waitFor();
    await list.getByText('visible').waitFor();
    sandbox.takePermission({ type: 'Asset', id: 910 });
    await list.getByText('lost').waitFor();
    expect(await axeFindings(page)).toEqual([]);
    sandbox.grantPermission({ type: 'Asset', id: 910 });
  });

  it('shows a tag that is named as markup as its name, its raw reading, and its last hour as it comes', async () => {
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

  it('shows the log with its meaning, and what the doctor finds without a request to anybody outside', async () => {
    await view('Log');
    await page.getByRole('searchbox').fill('agent.ready');
    await page.getByText('everything stands, the first sign-in was tried').first().waitFor();
    await view('Doctor');
    const before = sandbox.requests.list().length;
    const [answered] = await Promise.all([
      page.waitForResponse(/live\/doctor/),
      page.getByRole('button', { name: 'Look through the installation' }).click(),
    ]);
    const { checks } = (await answered.json()) as { checks: { check: string }[] };
    expect(checks.map(({ check }) => check)).toContain('state.writable');
    expect(checks.filter(({ check }) => /^(network|api|sign_in|proxy|assets)/.test(check))).toEqual([]);
    await page.getByText(/\d+ ok, at/).waitFor();
    const asked = sandbox.requests.list().slice(before);
    expect(asked.filter(({ method, path }) => !(method === 'POST' && path.endsWith('/values')))).toEqual([]);
  });

  it('has nothing for axe-core to find and nothing beside the screen, on a phone of 360 pixels, light and dark', async () => {
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      for (const [name, width] of [
        ['Now', 360],
        ['History', 360],
        ['Tags', 360],
        ['Events', 360],
        ['Assets', 360],
        ['Held and refused', 1280],
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

  it('can be used by the keyboard alone', async () => {
    await view('Now');
    await page.getByRole('link', { name: 'Now', exact: true }).focus();
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 2, name: 'History' }).waitFor();
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 2, name: 'Tags' }).waitFor();
  });

  it('says since when a gateway is gone, finds it again, and says what its restart forgot', async () => {
    await agent.end('SIGKILL');
    await page.getByText(/The gateway does not answer, since/).waitFor();
    await agent.start({ TZ: 'Asia/Kolkata' });
    await page.getByText(/The gateway does not answer, since/).waitFor({ state: 'detached' });
    await view('History');
    await page.getByText(/It begins with the agent’s start .* what was before is forgotten/).waitFor();
  });

  it('has the time of its gateway, whatever the clock of who looks says', async () => {
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

  it('is shown to nobody under another name: a page elsewhere that lets its own name point here', async () => {
    const foreign = await browser.newPage();
    const answer = await foreign.goto(`http://evil.example:${port}/`);
    expect(answer!.status()).toBe(421);
    expect(await foreign.content()).not.toContain('main-');
    await foreign.close();
  });
});
