/**
 * Measures the cost of viewers: the agent's CPU time and memory with 0, 1 and 20 viewers of Now and History, then also
 * of the tags, with 500 tags read every second. In the browser, measures the first paint, and the longest task while
 * scrolling 10,000 tags. `node scripts/bench/page.ts [--seconds N] [--only daemon|browser]`. Uses the built agent.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../test/e2e/harness/agent-process.ts';
import { openBrowser } from '../../test/old/page/open-browser.ts';
import { machine, median, processUsage, table } from './measure.ts';

const { values: options } = parseArgs({
  options: { seconds: { type: 'string', default: '30' }, only: { type: 'string' } },
});
const SECONDS = Number(options.seconds);
const PAINTS = 9;

/** Starts an agent with simulated tags that posts nothing. */
async function startAgent(
  tags: number,
  every: string,
): Promise<{ agent: AgentProcess; address: string; stop(): Promise<void> }> {
  const lines = ['sources:', `  sim: { simulate: true, every: ${every} }`, 'tags:'];
  for (let tag = 1; tag <= tags; tag++) {
    const value = `{ from: sim, shape: noise, low: 0, high: 10, unit: { code: one } }`;
    lines.push(`  T-${tag}: { asset: ${1_000 + (tag % 50)}, values: { v${tag}: ${value} } }`);
  }
  const sandbox = new Sandbox({});
  await sandbox.start();
  await sandbox.goOffline('refuse');
  const env = { OPS_LISTEN: '127.0.0.1:0', COMMIT_INTERVAL: '1s', POST_INTERVAL: '10s' };
  const agent = new AgentProcess(sandbox.url, { env, tags: `${lines.join('\n')}\n` });
  await agent.start();
  const address = `http://${String(agent.logged('ops.listening').at(-1)!.address)}`;
  const stop = async () => {
    await agent.dispose();
    await sandbox.stop();
  };
  return { agent, address, stop };
}

/** Reads and discards the stream. */
async function view(address: string, subjects: string, signal: AbortSignal): Promise<number> {
  let bytes = 0;
  try {
    const answer = await fetch(`${address}/live/stream?of=${subjects}`, { signal });
    for await (const chunk of answer.body!) bytes += (chunk as Uint8Array).length;
  } catch {
    // The stream ends with the round.
  }
  return bytes;
}

async function round(agent: AgentProcess, address: string, viewers: number, subjects: string): Promise<string[]> {
  const over = new AbortController();
  const views = Array.from({ length: viewers }, () => view(address, subjects, over.signal));
  await delay(5_000);
  const before = processUsage(agent.pid).cpuSeconds;
  const startMs = performance.now();
  await delay(SECONDS * 1000);
  const used = (processUsage(agent.pid).cpuSeconds - before) / ((performance.now() - startMs) / 1000);
  const memory = agent.memoryMb();
  over.abort();
  const bytes = (await Promise.all(views)).reduce((sum, each) => sum + each, 0);
  const perViewer = viewers === 0 ? '' : `${(bytes / viewers / (SECONDS + 5) / 1000).toFixed(1)} kB/s`;
  return [
    viewers === 0 ? 'none' : `${viewers}, ${subjects}`,
    `${(used * 100).toFixed(2)} %`,
    `${memory} MB`,
    perViewer,
  ];
}

async function measureDaemon(): Promise<void> {
  const { agent, address, stop } = await startAgent(500, '1s');
  try {
    await delay(10_000);
    const rows: string[][] = [];
    for (const subjects of ['now,history', 'now,history,tags'])
      for (const viewers of [0, 1, 20]) rows.push(await round(agent, address, viewers, subjects));
    rows.push(await round(agent, address, 0, ''));
    console.log(table(['viewers', 'CPU of one core', 'resident', 'per viewer'], rows));
  } finally {
    await stop();
  }
}

async function measureBrowser(): Promise<void> {
  const { address, stop } = await startAgent(10_000, '2s');
  const browser = await openBrowser();
  try {
    const paints: number[] = [];
    for (let paint = 0; paint < PAINTS; paint++) {
      const page = await browser.newPage();
      await page.goto(address);
      await page.getByRole('heading', { name: 'Session' }).waitFor();
      paints.push(await page.evaluate<number>(`performance.getEntriesByName('first-contentful-paint')[0].startTime`));
      await page.close();
    }
    console.log(
      `first contentful paint with an empty browser cache: ${median(paints).toFixed(0)} ms (median of ${PAINTS})`,
    );
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    await page.goto(`${address}/#/tags`);
    await page.getByText('10,000 values').waitFor();
    await page.evaluate(`
      window.tasks = [];
      new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: 'longtask' });
    `);
    await page.locator('.long-list').hover();
    for (let turn = 0; turn < 300; turn++) {
      await page.mouse.wheel(0, 1_500);
      await delay(33);
    }
    const tasks = await page.evaluate<number[]>('window.tasks');
    console.log(
      `10,000 tags, half of them updated every second, scrolled for 10 s: ${tasks.length} tasks longer than 50 ms, the longest ${Math.max(0, ...tasks).toFixed(0)} ms`,
    );
  } finally {
    await browser.close();
    await stop();
  }
}

console.log(machine());
if (options.only !== 'browser') await measureDaemon();
if (options.only !== 'daemon') await measureBrowser();
