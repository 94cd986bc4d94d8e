import { execFileSync } from 'node:child_process';
import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { runVerb } from '../commands/verb-run.ts';
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

/** Gateway whose page is served over HTTPS only. */
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

describe('gateway with problems', () => {
  it('serves a live page over HTTPS with its own certificate', async () => {
    await push('FT-101', 1);
    await page.getByRole('listitem', { name: 'buffer to platform' }).getByText('flowing').waitFor();
  });

  it('lists quarantined values and a rejected series with the platform message', async () => {
    sandbox.faults.poison({ asset: 882, value: 666 });
    await push('FT-102', 1, 666, 3);
    const logged = (event: string) => agent.logged(event).length > 0;
    await agent.until(async () => {
      await push('FT-101', 2);
      await push('FT-103', 5);
      return logged('uplink.quarantined') && logged('uplink.series_waits');
    }, 'one value is quarantined, and a repeatedly rejected series is paused');
    await view('Held and rejected');
    await page.getByRole('heading', { name: /FT-102 flow: 1 value, rejected with \d+/ }).waitFor();
    await page.getByRole('button', { name: 'Copy: tagferry buffer requeue' }).first().waitFor();
    await page.getByRole('heading', { name: /Rejected series: [1-9]/ }).waitFor();
    await page
      .getByRole('heading', { name: /FT-103 flow/ })
      .last()
      .waitFor();
    await page
      .getByText(/no unit with the code no-such-unit/)
      .first()
      .waitFor();
  });

  it('lists the affected tags first when sorted by severity', async () => {
    await view('Tags');
    await page.getByLabel('order').selectOption('worst first');
    const first = page.locator('.long-list li').first();
    await first.getByText(/quarantined|rejected/).waitFor();
    await page.getByLabel('order').selectOption('name');
    await first.getByText('FT-101').waitFor();
    await page.getByLabel('show').selectOption('not live');
    await page.getByRole('link', { name: /FT-101/ }).waitFor({ state: 'detached' });
  });

  it('counts rejected listener requests by reason', async () => {
    for (let i = 0; i < 2; i++) await fetch(webhook, { method: 'POST', body: '{}' });
    const headers = { 'X-Hub-Signature-Sha256': 'sha256=00' };
    await fetch(webhook, { method: 'POST', body: '{}', headers });
    await view('Events');
    await page.getByText('Rejected: 2 signature missing, 1 signature wrong.').waitFor();
  });

  it('shows its configuration digest, and a changed file until it is loaded', async () => {
    const digest = async () => {
      const { stdout } = await runVerb(['status', '--json', '--config', agent.config]);
      return (JSON.parse(stdout) as { configuration: { files_digest: string } }).configuration.files_digest;
    };
    await view('Now');
    await page.getByText(new RegExp(`files ${await digest()}`)).waitFor();
    appendFileSync(join(agent.config, 'tags.yaml'), '# edited\n');
    await page.getByText('Changed configuration files are not loaded').waitFor();
    agent.signal('SIGHUP');
    await page.getByText('Changed configuration files are not loaded').waitFor({ state: 'detached' });
    await page.getByText(new RegExp(`files ${await digest()}`)).waitFor();
  });

  it('filters its log by level', async () => {
    await view('Log');
    const lines = page.locator('ol.log li');
    await lines.filter({ hasText: 'agent.ready' }).waitFor();
    await page.getByRole('button', { name: 'warn and above' }).click();
    await lines.filter({ hasText: 'agent.ready' }).waitFor({ state: 'detached' });
    await lines.filter({ hasText: 'webhook.rejected' }).first().waitFor();
  });

  it('keeps its history across a configuration reload', async () => {
    await view('History');
    const beginning = page.getByText(/History starts at agent startup, .*, at/);
    const since = async () => /, at ([^:]+:\d+:\d+)/.exec((await beginning.textContent()) ?? '')![1];
    const before = await since();
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('config.reloaded').length > 0, 'the configuration is read again');
    await push('FT-101', 3);
    expect(await since()).toBe(before);
    expect(await page.getByText('No data from the gateway').count()).toBe(0);
  });
});
