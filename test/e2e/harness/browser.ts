import axe from 'axe-core';
import { type Browser, chromium, type Page } from 'playwright-core';
import { freePort } from '../../../src/base/port-claim.ts';

/** OPS_LISTEN at an address that a browser can reach. */
export async function pageAddress(): Promise<string> {
  return `127.0.0.1:${await freePort()}`;
}

/** Debian's Chromium in headless mode. One per test file, because it takes a second to start. */
export function openBrowser(): Promise<Browser> {
  // Root cannot use the browser sandbox, and containers have a small /dev/shm.
  const args = ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--disable-component-update'];
  return chromium.launch({ executablePath: '/usr/bin/chromium', args, timeout: 60_000 });
}

/** A page, and the errors and warnings of the browser while it is open. */
export async function openPage(
  browser: Pick<Browser, 'newPage'>,
  address: string,
): Promise<{ page: Page; complaints: string[] }> {
  const page = await browser.newPage();
  const complaints: string[] = [];
  page.setDefaultTimeout(30_000);
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') complaints.push(message.text());
  });
  await page.goto(address);
  return { page, complaints };
}

/** axe-core findings: one line per rule, with the first location. */
export async function axeFindings(page: Page): Promise<string[]> {
  // Not injected as a page script, which the content security policy would block.
  await page.evaluate(axe.source);
  return await page.evaluate(async () => {
    const { axe } = globalThis as unknown as { axe: typeof import('axe-core') };
    const { violations } = await axe.run();
    return violations.map(({ id, help, nodes }) => `${id}: ${help} (${nodes.length}, first ${nodes[0]?.html})`);
  });
}
