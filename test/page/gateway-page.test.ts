import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../process/agent-process.ts';
import { axeFindings, openBrowser, openPage } from './open-browser.ts';

const TAGS = `tags:
  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: { code: one } } } }
`;

let browser: Browser;
let sandbox: Sandbox;
let agent: AgentProcess;
let page: Page;
let complaints: string[];

beforeAll(async () => {
  browser = await openBrowser();
  sandbox = new Sandbox({});
  await sandbox.start();
  agent = new AgentProcess(sandbox.url, { env: { OPS_LISTEN: '127.0.0.1:0' }, tags: TAGS });
  await agent.start();
  const address = String(agent.logged('ops.listening').at(-1)!.address);
  ({ page, complaints } = await openPage(browser, `http://${address}/`));
});

afterAll(async () => {
  await browser?.close();
  await agent?.dispose();
  await sandbox?.stop();
});

describe('the page', () => {
  it('shows how the gateway is without asking anybody else, and breaks none of its own rules', async () => {
    await page.getByText('online').first().waitFor();
    await page.getByRole('heading', { name: 'Session' }).waitFor();
    expect(complaints).toEqual([]);
    expect(await axeFindings(page)).toEqual([]);
  });
});
