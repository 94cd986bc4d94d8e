import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import type { StatusReport } from '../../../src/ops/status-report.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { runVerb } from '../commands/verb-run.ts';
import { openBrowser, openPage } from './open-browser.ts';

const TAGS = 'tags:\n  FT-101: { asset: 881, values: { flow: { unit: 12 } } }\n';
const CONFIGURED = 400;

let browser: Browser;
let sandbox: Sandbox;
let agent: AgentProcess;
let address: string;

beforeAll(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  const [port] = await Promise.all([freePort(), sandbox.start()]);
  address = `127.0.0.1:${port}`;
  const env = { OPS_LISTEN: address, REQUESTS_PER_MINUTE: String(CONFIGURED) };
  agent = new AgentProcess(sandbox.url, { env, tags: TAGS });
  [browser] = await Promise.all([openBrowser(), agent.start()]);
});
afterAll(async () => {
  await browser?.close();
  await agent?.dispose();
  await sandbox?.stop();
});

const fetched = async (path: string) => (await fetch(`http://${address}${path}`)).text();
const requests = async () => (JSON.parse(await fetched('/status')) as StatusReport).requests;
const shown = async () => ({
  screen: (await runVerb(['status', '--config', agent.config])).stdout,
  metrics: (await fetched('/metrics')).split('\n').filter((line) => line.startsWith('tagferry_requests_share')),
});

it('status, metrics and page show the share of the request limit in use and the reason', async () => {
  expect(await requests()).toMatchObject({ share: CONFIGURED, share_reason: 'configured' });
  expect((await shown()).metrics).toEqual([
    `tagferry_requests_share ${CONFIGURED}`,
    'tagferry_requests_share_info{reason="configured"} 1',
  ]);
  const { page } = await openPage(browser, `http://${address}/`);
  await page.getByText('last 24 hours').waitFor();
  expect(await page.getByText(/^limit \(/).count()).toBe(0);
  // The pause lasts for minutes, so that the share does not grow during the test.
  sandbox.faults.add({ method: 'POST', path: '/v1/assets/*', status: 429, retryAfter: '300' });
  await agent.push([{ tag: 'FT-101', key: 'flow', value: 1 }]);
  await agent.until(async () => (await requests()).share_reason === 'refused', 'the platform has rejected a post');
  const { share } = await requests();
  expect(share).toBeLessThan(CONFIGURED);
  const { screen, metrics } = await shown();
  expect(screen.replaceAll(/\s+/g, ' ')).toContain(`limited to ${share} per minute, reduced after a 429 response`);
  expect(metrics[1]).toBe('tagferry_requests_share_info{reason="refused"} 1');
  expect(Number(metrics[0]!.split(' ')[1])).toBeCloseTo(share, 1);
  await page.getByText('limit (refused)').waitFor();
  await page.getByText(`${share} per minute`).waitFor();
});
