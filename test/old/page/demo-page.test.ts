import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { MAIN } from '../../built-agent.ts';
import { openBrowser, openPage } from './open-browser.ts';

const PATIENCE_MS = 90_000;

let folder: string;
let browser: Browser;
let demo: ChildProcess;
let output: string;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'demo-page-'));
  browser = await openBrowser();
  output = '';
  const env = { ...process.env, TMPDIR: folder, DISPLAY: '', WAYLAND_DISPLAY: '' };
  demo = spawn(process.execPath, [MAIN, 'demo', '--seconds', '40', '--stay', '--open'], { cwd: folder, env });
  for (const stream of [demo.stdout!, demo.stderr!])
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
});

afterEach(async () => {
  if (demo.exitCode === null) demo.kill('SIGKILL');
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
});

const said = (words: RegExp) => expect.poll(() => words.exec(output), { timeout: PATIENCE_MS }).not.toBeNull();

describe('demo page', () => {
  it('shows the demo from start to finish and remains available until Ctrl-C', {
    timeout: 240_000,
  }, async () => {
    await said(/agent started[\s\S]*agent ready to ingest/);
    const address = /http:\/\/\S+#token=\S+/.exec(output)![0];
    const { page } = await openPage(browser, address);
    page.setDefaultTimeout(PATIENCE_MS);
    const posts = page.getByRole('listitem', { name: 'buffer to platform' });
    await posts.getByText(/unavailable for/).waitFor();
    await posts.getByText('flowing').waitFor();
    await page.getByRole('link', { name: 'Events', exact: true }).click();
    await page.getByRole('heading', { name: /done threshold_reached for instrumentation 4711/ }).waitFor();
    await page.getByText('valve of FT-101 operated').waitFor();
    await said(/asset 885 held/);
    await said(/Sandbox and agent keep running/);
    // Values continue to arrive.
    await page.getByRole('link', { name: 'Now', exact: true }).click();
    await page.getByText('No problems.').waitFor();
    const ended = new Promise((resolve) => demo.once('exit', resolve));
    demo.kill('SIGINT');
    expect(await ended).toBe(0);
    expect(output).toContain('Demo passed.');
  });
});
