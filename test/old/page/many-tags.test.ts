import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { openBrowser, openPage } from './open-browser.ts';

const TAGS = 10_000;

/** Half of the tags are simulated and change; programs push the others. */
function manyTags(): string {
  const lines = ['sources:', '  sim: { simulate: true, every: 2s }', 'tags:'];
  for (let tag = 1; tag <= TAGS; tag++) {
    const from = tag % 2 === 0 ? 'from: sim, shape: noise, low: 0, high: 10, ' : '';
    lines.push(`  T-${tag}: { asset: ${1_000 + (tag % 100)}, values: { v${tag}: { ${from}unit: { code: one } } } }`);
  }
  return `${lines.join('\n')}\n`;
}

let browser: Browser;
let sandbox: Sandbox;
let agent: AgentProcess;
let page: Page;

beforeAll(async () => {
  sandbox = new Sandbox({});
  await sandbox.start();
  // Posting is disabled, because the test covers the page only.
  await sandbox.goOffline('refuse');
  agent = new AgentProcess(sandbox.url, { env: { OPS_LISTEN: '127.0.0.1:0' }, tags: manyTags() });
  [browser] = await Promise.all([openBrowser(), agent.start()]);
  ({ page } = await openPage(browser, `http://${String(agent.logged('ops.listening').at(-1)!.address)}/#/tags`));
});

afterAll(async () => {
  await browser?.close();
  await agent?.dispose();
  await sandbox?.stop();
});

describe('page with ten thousand tags', () => {
  it('lists all tags but renders only the visible ones', async () => {
    await page.getByText('10,000 values').waitFor();
    await page.getByRole('link', { name: /T-2 v2 / }).waitFor();
    expect(await page.locator('.long-list li').count()).toBeLessThan(60);
    await page.locator('.long-list').focus();
    await page.keyboard.press('End');
    await page.getByRole('link', { name: /T-10000 v10000/ }).waitFor();
    expect(await page.locator('.long-list li').count()).toBeLessThan(60);
  });

  it('finds a single tag and tags with problems', async () => {
    await page.getByRole('searchbox').fill('t-7777');
    await page.getByText('1 of 10000').waitFor();
    await page.getByRole('link', { name: /T-7777 v7777.*no reading yet.*silent/ }).waitFor();
    await page.getByRole('searchbox').fill('');
    await page.getByLabel('show').selectOption('silent');
    await page.getByText('5000 of 10000').waitFor();
    await page.getByLabel('show').selectOption('live');
    await page.getByLabel('order').selectOption('oldest first');
    await page.getByText('5000 of 10000').waitFor();
  });

  it('updates each tag when a new reading arrives', async () => {
    await page.getByLabel('order').selectOption('tags.yaml order');
    const reading = page.getByRole('link', { name: /T-2 v2 / }).locator('.reading');
    const before = await reading.textContent();
    await expect.poll(() => reading.textContent(), { timeout: 40_000 }).not.toBe(before);
  });
});
