import axe from 'axe-core';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';

/** Debian's Chromium, without a window. One for a file of tests: it takes a second to start. */
export function openBrowser(): Promise<Browser> {
  // Root has no sandbox to stand in, containers have a small /dev/shm.
  const args = ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--disable-component-update'];
  // A name of somebody else that points here, as in DNS rebinding.
  args.push('--host-resolver-rules=MAP evil.example 127.0.0.1');
  return chromium.launch({ executablePath: '/usr/bin/chromium', args, timeout: 60_000 });
}

/** A page, and whatever the browser had to complain about while it was looked at. */
export async function openPage(
  browser: Browser | BrowserContext,
  address: string,
): Promise<{ page: Page; complaints: string[] }> {
  const page = await browser.newPage();
  const complaints: string[] = [];
  page.setDefaultTimeout(30_000);
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') complaints.push(message.text());
  });
  page.on('response', (answer) => {
    if (answer.status() >= 400) complaints.push(`${answer.status()} ${new URL(answer.url()).pathname}`);
  });
  await page.goto(address);
  return { page, complaints };
}

/** What axe-core finds wrong for people who see, hear or move otherwise: one line a rule, with the first place. */
export async function axeFindings(page: Page): Promise<string[]> {
  // Not as a script of the page, whose policy would not let it in.
  await page.evaluate(axe.source);
  return await page.evaluate(async () => {
    const { axe } = globalThis as unknown as { axe: typeof import('axe-core') };
    const { violations } = await axe.run();
    return violations.map(({ id, help, nodes }) => `${id}: ${help} (${nodes.length}, first ${nodes[0]?.html})`);
  });
}

/** By how much the page is wider than the screen. */
export function sidewaysPixels(page: Page): Promise<number> {
  return page.evaluate<number>('document.documentElement.scrollWidth - document.documentElement.clientWidth');
}
