import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { MAIN } from '../built-agent.ts';
import { COMPILED_CODE } from '../host/made-once.ts';

let folder: string;
let demo: ChildProcess | undefined;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-demo-'));
});
afterEach(() => {
  demo?.kill('SIGINT');
  rmSync(folder, { recursive: true, force: true });
});

/** Runs the demo until it exits. Its temporary files are in the folder, so that leftover files are visible. */
function runDemo(...args: string[]): Promise<{ status: number | null; output: string }> {
  const clean = Object.fromEntries(Object.entries(process.env).filter(([key]) => !key.startsWith('NODE_')));
  // The agent of the demo must not inherit the settings of this machine, which would redirect its values.
  const inherited = { PLATFORM_URL: 'http://127.0.0.1:1', TAGFERRY_CONFIG: '/nowhere' };
  const child = spawn(process.execPath, [MAIN, 'demo', ...args], {
    cwd: folder,
    env: { ...clean, ...COMPILED_CODE, ...inherited, TMPDIR: folder },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  demo = child;
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  return new Promise((resolve) => child.once('close', (status) => resolve({ status, output })));
}

describe('tagferry demo', () => {
  it('runs from login to a clean shutdown, counts no missing values, and leaves no files', async () => {
    const { status, output } = await runDemo('--seconds', '20');
    expect(`${status}\n${output}`).toMatch(/^0\n/);
    expect(output).toMatch(/\bmissing 0\b/);
    // The sign-in, the tags, the event and its reaction, and the asset without permission.
    for (const name of ['gateway@sandbox.example', 'FT-101', 'threshold_reached', 'close-valve', 'TT-101']) {
      expect(output).toContain(name);
    }
    expect(readdirSync(folder)).toEqual([]);
  });
});
