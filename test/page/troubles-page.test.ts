import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { freePort } from '../../src/base/port-claim.ts';
import { DoctorRun } from '../../src/ops/live/doctor-run.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../process/agent-process.ts';
import { openBrowser, openPage } from './open-browser.ts';

const TOKEN = 'of-this-gateway';
const TAGS = `tags:
  FT-101: { asset: 881, values: { flow: { unit: { code: one } } } }
  FT-102: { asset: 882, values: { flow: { unit: { code: one } } } }
  FT-103: { asset: 883, values: { flow: { unit: { code: no-such-unit } } } }
`;

let browser: Browser;
let sandbox: Sandbox;
let agent: AgentProcess;
let page: Page;
let webhook: string;

/** A gateway that shows itself by https alone. */
beforeAll(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  const [port, webhookPort] = await Promise.all([freePort(), freePort(), sandbox.start()]);
  webhook = `http://127.0.0.1:${webhookPort}/webhook`;
  const env = {
    OPS_LISTEN: `127.0.0.1:${port}`,
    OPS_TOKEN: TOKEN,
    OPS_TLS_CERT: 'ops.pem',
    OPS_TLS_KEY: 'ops.key',
    WEBHOOK_LISTEN: `127.0.0.1:${webhookPort}`,
    WEBHOOK_URL: webhook,
  };
  agent = new AgentProcess(sandbox.url, { env, tags: TAGS });
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-subj', '/CN=localhost'];
  const files = ['-keyout', join(agent.config, 'ops.key'), '-out', join(agent.config, 'ops.pem')];
  execFileSync('openssl', ['req', '-x509', ...curve, ...files], { stdio: 'ignore' });
  [browser] = await Promise.all([openBrowser(), agent.start()]);
  await agent.registered();
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  ({ page } = await openPage(context, `https://localhost:${port}/#token=${TOKEN}`));
});

afterAll(async () => {
  await browser?.close();
  await agent?.dispose();
  await sandbox?.stop();
});

const view = (name: string) => page.getByRole('link', { name, exact: true }).click();
const push = (tag: string, ...values: number[]) => agent.push(values.map((value) => ({ tag, key: 'flow', value })));

describe('what a gateway is in trouble with', () => {
  it('is shown by https with a certificate of its own, as it comes', async () => {
    await push('FT-101', 1);
    await page.getByRole('listitem', { name: 'buffer to platform' }).getByText('flows').waitFor();
  });

  it('stands under held and refused with the words of the platform: a value in quarantine, a series refused', async () => {
    sandbox.faults.poison({ asset: 882, value: 666 });
    await push('FT-102', 1, 666, 3);
    const logged = (event: string) => agent.logged(event).length > 0;
    await agent.until(async () => {
      await push('FT-101', 2);
      await push('FT-103', 5);
      return logged('uplink.quarantined') && logged('uplink.series_waits');
    }, 'one value is set aside, and a series that is refused again and again waits');
    await view('Held and refused');
    await page.getByRole('heading', { name: /FT-102 flow: 1 value, refused with \d+/ }).waitFor();
    await page.getByRole('button', { name: 'copy: tagferry buffer requeue' }).first().waitFor();
    await page.getByRole('heading', { name: /Refused series: [1-9]/ }).waitFor();
    await page
      .getByRole('heading', { name: /FT-103 flow/ })
      .last()
      .waitFor();
    await page
      .getByText(/there is no unit with the code no-such-unit/)
      .first()
      .waitFor();
  });

  it('comes first in the list of tags, where somebody wants the worst first', async () => {
    await view('Tags');
    await page.getByLabel('order').selectOption('worst first');
    const first = page.locator('.long-list li').first();
    await first.getByText(/quarantined|refused/).waitFor();
    await page.getByLabel('order').selectOption('name');
    await first.getByText('FT-101').waitFor();
    await page.getByLabel('show').selectOption('not live');
    await page.getByRole('link', { name: /FT-101/ }).waitFor({ state: 'detached' });
  });

  it('counts what the listener rejected, by the reason', async () => {
    for (let i = 0; i < 2; i++) await fetch(webhook, { method: 'POST', body: '{}' });
    const headers = { 'X-Hub-Signature-Sha256': 'sha256=00' };
    await fetch(webhook, { method: 'POST', body: '{}', headers });
    await view('Events');
    await page.getByText('Rejected: 2 signature missing, 1 signature wrong.').waitFor();
  });

  it('is found in the log by its level', async () => {
    await view('Log');
    const lines = page.locator('ol.log li');
    await lines.filter({ hasText: 'agent.ready' }).waitFor();
    await page.getByRole('button', { name: 'warn and worse' }).click();
    await lines.filter({ hasText: 'agent.ready' }).waitFor({ state: 'detached' });
    await lines.filter({ hasText: 'webhook.rejected' }).first().waitFor();
  });

  it('is not forgotten with a configuration that is read again: the history goes on', async () => {
    await view('History');
    const beginning = page.getByText(/It begins with the agent’s start .*, at/);
    const since = async () => /, at ([^:]+:\d+:\d+)/.exec((await beginning.textContent()) ?? '')![1];
    const before = await since();
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('config.reloaded').length > 0, 'the configuration is read again');
    await push('FT-101', 3);
    expect(await since()).toBe(before);
    expect(await page.getByText('The gateway does not answer').count()).toBe(0);
  });
});

describe('the doctor of the page', () => {
  it('runs once at a time, however many ask', async () => {
    let runs = 0;
    let over = () => {};
    const doctor = new DoctorRun(async () => {
      runs++;
      await new Promise<void>((resolve) => {
        over = resolve;
      });
      return [];
    }, systemClock);
    const asked = [doctor.report(), doctor.report(), doctor.report()];
    expect(runs).toBe(1);
    over();
    const [first, ...others] = await Promise.all(asked);
    expect(others).toEqual([first, first]);
    const again = doctor.report();
    expect(runs).toBe(2);
    over();
    await again;
  });
});
