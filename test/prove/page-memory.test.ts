// Long: 11 min
import { setTimeout as delay } from 'node:timers/promises';
import type { Browser, CDPSession, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../e2e/harness/agent-process.ts';
import { openBrowser, openPage } from '../old/page/open-browser.ts';

const MINUTE_MS = 60_000;
const VIEWS = ['now', 'history', 'tags', 'held', 'log', 'tags=FT-101%2Fflow'];
const TAGS = `sources:
  sim: { simulate: true, every: 200ms }
tags:
  FT-101: { asset: 881, values: { flow: { unit: { code: one }, from: sim, shape: noise, low: 0, high: 10 } } }
`;

let browser: Browser;
let sandbox: Sandbox;
let agent: AgentProcess;

beforeAll(async () => {
  sandbox = new Sandbox({});
  await sandbox.start();
  const env = { OPS_LISTEN: '127.0.0.1:0', OPS_TOKEN: 'token', LOG_LEVEL: 'debug' };
  agent = new AgentProcess(sandbox.url, { env, tags: TAGS });
  [browser] = await Promise.all([openBrowser(), agent.start()]);
});

afterAll(async () => {
  await browser?.close();
  await agent?.dispose();
  await sandbox?.stop();
});

/** Memory in bytes and DOM nodes of the page after a garbage collection. */
async function sizeOf(session: CDPSession): Promise<{ bytes: number; nodes: number }> {
  await session.send('HeapProfiler.collectGarbage');
  const { usedSize } = await session.send('Runtime.getHeapUsage');
  const { nodes } = await session.send('Memory.getDOMCounters');
  return { bytes: usedSize, nodes };
}

async function look(page: Page, forMs: number): Promise<void> {
  const endMs = performance.now() + forMs;
  for (let at = 0; performance.now() < endMs; at++) {
    await page.evaluate(`location.hash = '#/${VIEWS[at % VIEWS.length]}'`);
    await delay(10_000);
  }
  await page.evaluate(`location.hash = '#/now'`);
  await delay(3_000);
}

it('open page does not use more memory after ten minutes of switching views', {
  timeout: 15 * MINUTE_MS,
}, async () => {
  const { page } = await openPage(
    browser,
    `http://${String(agent.logged('ops.listening').at(-1)!.address)}/#token=token`,
  );
  const session = await page.context().newCDPSession(page);
  // By then, everything except the history has reached its limit. The history grows to 600 rows of a few hundred
  // kilobytes.
  await look(page, 3 * MINUTE_MS);
  const early = await sizeOf(session);
  await look(page, 7 * MINUTE_MS);
  const late = await sizeOf(session);
  console.log(
    `${(early.bytes / 1e6).toFixed(2)} MB, ${early.nodes} nodes; then ${(late.bytes / 1e6).toFixed(2)} MB, ${late.nodes} nodes`,
  );
  expect(late.bytes - early.bytes).toBeLessThan(1_500_000);
  expect(late.nodes - early.nodes).toBeLessThan(500);
});
