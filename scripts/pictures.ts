import { spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { openBrowser, openPage } from '../test/e2e/harness/browser.ts';

/**
 * `pictures.ts` takes the picture for README.md during a demo with Debian's Chromium, and writes it to
 * docs/pictures/.
 */
const root = join(import.meta.dirname, '..');
const folder = join(root, 'docs/pictures');
mkdirSync(folder, { recursive: true });
const demo = spawn(process.execPath, [join(root, 'src/main.ts'), 'demo', '--seconds', '60'], {
  stdio: ['ignore', 'pipe', 'inherit'],
});
let story = '';
demo.stdout.setEncoding('utf8').on('data', (text: string) => {
  story += text;
});
const ended = new Promise((resolve) => demo.once('exit', resolve));

async function said(words: RegExp): Promise<string> {
  for (;;) {
    const found = words.exec(story);
    if (found) return found[0];
    if (demo.exitCode !== null) throw new Error(`the demo ended before it said ${words}:\n${story}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const browser = await openBrowser();
try {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 } });
  const address = await said(/http:\/\/\S+#token=\S+/);
  await said(/agent ready to ingest/);
  const { page } = await openPage(context, address);
  await said(/the agent detected the outage/);
  await page
    .getByText(/values\/min/)
    .first()
    .waitFor();
  await page.getByText(/unavailable for [5-9] s/).waitFor();
  await page.screenshot({ path: join(folder, 'gateway.png') });
} finally {
  await browser.close();
  demo.kill('SIGINT');
  await ended;
}
