import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import type { SourceReport } from '../../../src/sources/status.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { wholeLines } from '../../whole-lines.ts';
import { runVerb } from '../commands/verb-run.ts';

const PAGE = readFileSync(join(import.meta.dirname, '../../../docs/guide/sources.md'), 'utf8');

let sandbox: Sandbox;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url);
});
afterEach(async () => {
  // Terminates the programs, too, even a stopped one.
  await agent.end('SIGTERM');
  await agent.dispose();
  await sandbox.stop();
});

/** Writes a Python program to the folder and returns its path. */
function program(name: string, text: string): string {
  const path = join(agent.folder, name);
  writeFileSync(path, `#!/usr/bin/env python3\n${text}`);
  chmodSync(path, 0o755);
  return path;
}

const numbers = (asset = 881, key = 'n') => sandbox.values.list(asset, key).map(({ value }) => value);

/** Waits while a reload replaces the source. */
async function report(): Promise<SourceReport> {
  let found: SourceReport | undefined;
  await agent.until(async () => {
    [found] = (await agent.status()).sources as SourceReport[];
    return found !== undefined;
  }, 'the source is open');
  return found!;
}

function isAlive(pid: number): boolean {
  try {
    // A zombie is no longer running; it only waits for its parent.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

/** Prints increasing numbers, continuing from its ledger. Each number is printed before it is written there. */
const COUNTER = `
import json, os, sys, time
os.environ.get("CLIENT_SECRET") and sys.exit("secret in the environment")
ledger = open(sys.argv[1], "a+"); ledger.seek(0)
n = len(ledger.read().split())
open(sys.argv[1] + ".pid", "w").write(str(os.getpid()))
while True:
    print(json.dumps({"tag": "T-1", "key": "n", "value": n}), flush=True)
    ledger.write(str(n) + "\\n"); ledger.flush()
    n += 1
    time.sleep(0.002)
`;

describe('program source', () => {
  it('delivers every printed value even if the program is killed and the agent is restarted', async () => {
    const ledger = join(agent.folder, 'ledger');
    const path = program('counter.py', COUNTER);
    const tags = `sources: { p: { exec: ["${path}", "${ledger}"] } }\ntags: { T-1: { asset: 881, values: { n: { unit: 1, from: p } } } }\n`;
    agent.write(sandbox.url, { tags, env: { COMMIT_INTERVAL: '200ms' } });
    await agent.start();
    const more = async (what: string) => {
      const before = wholeLines(ledger).length;
      await agent.until(() => wholeLines(ledger).length > before + 100, what);
    };
    for (let kill = 1; kill <= 2; kill++) {
      await more('the program prints numbers');
      process.kill(Number(readFileSync(`${ledger}.pid`, 'utf8')), 'SIGKILL');
      await agent.until(() => agent.logged('exec.ended').length === kill, 'the end is logged');
      expect(agent.logged('exec.ended').at(-1)).toMatchObject({ source: 'p', error: 'terminated by SIGKILL' });
    }
    await more('the program prints numbers again');
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(isAlive(Number(readFileSync(`${ledger}.pid`, 'utf8')))).toBe(false);
    await agent.start();
    await more('the program prints numbers after the restart');
    process.kill(Number(readFileSync(`${ledger}.pid`, 'utf8')), 'SIGSTOP');
    const printed = wholeLines(ledger).map(Number);
    await agent.until(() => printed.every((n) => numbers().includes(n)), 'every printed number is delivered', 20_000);
    // A number printed but not written to the ledger before a kill is printed again.
    const stored = numbers();
    expect(stored.length - new Set(stored).size).toBeLessThanOrEqual(4);
    expect(stored.filter((n) => n > printed.length)).toEqual([]);
    expect((await report()).stored).toBeGreaterThan(0);
  });

  it('throttles a program that outpaces the disk, and delivers all its values', async () => {
    const COUNT = 60_000;
    const path = program(
      'flood.py',
      `
import sys, time
print("T-1 bad=x", flush=True)
for n in range(${COUNT}): sys.stdout.write("T-1 n=%d,free=%d\\n" % (n, n))
sys.stdout.flush()
sys.stderr.write("".join("line %d\\n" % n for n in range(1000)))
time.sleep(1000)
`,
    );
    const tags = `sources: { p: { exec: ["${path}"], format: lines } }
tags: { T-1: { asset: 881, values: { n: { unit: 1, from: p, scale: 0.5, offset: 1 }, free: { unit: 1 } } } }\n`;
    agent.write(sandbox.url, { tags, env: { POST_MAX_VALUES: '10000' } });
    await sandbox.goOffline('refuse');
    await agent.start();
    await agent.until(async () => (await report()).stored === 2 * COUNT, 'all values are on disk');
    expect(agent.memoryMb()).toBeLessThan(300);
    expect((await report()).errors).toBe(1);
    await sandbox.goOnline();
    await agent.until(() => numbers(881, 'free').length + numbers().length === 2 * COUNT, 'all values are delivered');
    expect(numbers().reduce((sum, n) => sum + n, 0)).toBe((COUNT * (COUNT - 1)) / 4 + COUNT);
    expect(numbers(881, 'free').reduce((sum, n) => sum + n, 0)).toBe((COUNT * (COUNT - 1)) / 2);
    const logged = agent.logged('exec.said');
    expect(logged.length).toBeGreaterThan(0);
    expect(logged.length).toBeLessThanOrEqual(40);
  });

  it('is terminated with its child processes even if it ignores SIGTERM, and its error is reported', async () => {
    const pids = join(agent.folder, 'pids');
    const path = program(
      'stubborn.py',
      `
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0: os.setsid()
open("${pids}", "a").write(str(os.getpid()) + "\\n")
time.sleep(1000)
`,
    );
    const failing = program(
      'failing.py',
      'import sys\nprint("not a value", flush=True)\nsys.exit("the probe is unplugged")\n',
    );
    const tagsFor = (command: string) =>
      `sources: { p: { exec: ["${command}"] } }\ntags: { T-1: { asset: 881, values: { n: { unit: 1, from: p } } } }\n`;
    agent.write(sandbox.url, { tags: tagsFor(path) });
    await agent.start();
    await agent.until(() => wholeLines(pids).length === 2, 'the program and its child are running');
    agent.write(sandbox.url, { tags: tagsFor(failing) });
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('exec.ended').length > 0, 'the other program has started and exited');
    expect(wholeLines(pids).map(Number).filter(isAlive)).toEqual([]);
    expect(agent.logged('exec.said')[0]).toMatchObject({ source: 'p', line: 'the probe is unplugged' });
    expect(agent.logged('exec.refused')[0]).toMatchObject({ source: 'p', refused: 1 });
    expect(await report()).toMatchObject({ connected: false, problem: 'exited with status 1' });
    agent.write(sandbox.url, { tags: tagsFor(join(agent.folder, 'nothing')) });
    const { stdout } = await runVerb(['check', '--config', agent.config]);
    expect(stdout).toContain('does not exist');
    agent.signal('SIGHUP');
    await agent.until(
      async () => /nothing does not exist/.test((await report()).problem ?? ''),
      'the state contains the reason',
    );
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('runs at an interval, stores each run once, and applies on_failure to failed runs', async () => {
    const ledger = join(agent.folder, 'ledger');
    const path = program(
      'once.py',
      `
import sys
with open("${ledger}", "a+") as file:
    file.seek(0); n = len(file.readlines()); file.write("%d\\n" % n)
print('{"tag":"T-1","key":"n","value":%d}' % n)
sys.exit("the boiler is off" if n == 3 else 0)
`,
    );
    const tags = `sources: { p: { exec: ["${path}"], every: 300ms } }
tags: { T-1: { asset: 881, values: { n: { unit: 1, from: p, on_failure: bad } } } }\n`;
    agent.write(sandbox.url, { tags });
    await agent.start();
    await agent.until(() => numbers().includes(5), 'five runs are delivered');
    expect(agent.logged('exec.failed')).toMatchObject([{ source: 'p', error: 'exited with status 1' }]);
    expect(agent.logged('exec.failed_over')).toHaveLength(1);
    expect(agent.logged('exec.ended')).toEqual([]);
    const bad = sandbox.values.list(881, 'n').filter(({ status }) => status === 'bad');
    expect(bad.map(({ value }) => value)).toEqual([3]);
    expect(await report()).toMatchObject({ connected: true, problem: null, errors: 1 });
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('runs immediately for sources test, which reports a failed run', async () => {
    const state = join(agent.folder, 'boiler');
    writeFileSync(state, '5');
    const path = program(
      'read.py',
      `import sys
text = open("${state}").read()
if text == "off": sys.exit(3)
print('{"tag":"T-1","key":"n","value":%s}' % text)
`,
    );
    const tags = `sources: { p: { exec: ["${path}"], every: 1h } }
tags: { T-1: { asset: 881, values: { n: { unit: 1, from: p, scale: 2 } } } }\n`;
    agent.write(sandbox.url, { tags });
    await agent.start();
    await agent.until(() => numbers().length === 1, 'the first run is delivered');
    const test = async (wait: string) =>
      JSON.parse((await runVerb(['sources', 'test', '--json', '--wait', wait, '--config', agent.config])).stdout);
    writeFileSync(state, '6');
    expect(await test('20s')).toMatchObject([{ raw: 6, value: 12, problem: null }]);
    writeFileSync(state, 'off');
    expect(await test('3s')).toMatchObject([{ raw: null, problem: 'exited with status 3' }]);
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('is terminated with its child processes and reported if a run exceeds its timeout', async () => {
    const pids = join(agent.folder, 'pids');
    const path = program(
      'hung.py',
      `
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
open("${pids}", "a").write(str(os.getpid()) + "\\n")
time.sleep(1000)
`,
    );
    const tags = `sources: { p: { exec: ["${path}"], every: 200ms, timeout: 500ms } }
tags: { T-1: { asset: 881, values: { n: { unit: 1, from: p } } } }\n`;
    agent.write(sandbox.url, { tags });
    await agent.start();
    await agent.until(() => agent.logged('exec.failed').length > 0, 'the hung run is reported');
    expect(agent.logged('exec.failed')[0]).toMatchObject({ source: 'p', error: 'still running after 500 ms' });
    expect(wholeLines(pids).slice(0, 2).map(Number).filter(isAlive)).toEqual([]);
    await agent.until(async () => (await report()).polls_late > 0, 'missed runs are counted');
    expect(await report()).toMatchObject({ connected: false, problem: 'still running after 500 ms' });
    await agent.until(() => wholeLines(pids).length >= 4, 'the next run starts');
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(wholeLines(pids).map(Number).filter(isAlive)).toEqual([]);
  });

  it('is restarted if it prints nothing before its timeout, and reports garbage as invalid', async () => {
    const path = program('quiet.py', 'import time\nprint("garbage", flush=True)\ntime.sleep(1000)\n');
    const tags = `sources: { p: { exec: ["${path}"], timeout: 1s } }
tags: { T-1: { asset: 881, values: { n: { unit: 1, from: p } } } }\n`;
    agent.write(sandbox.url, { tags });
    await agent.start();
    await agent.until(() => agent.logged('exec.ended').length > 0, 'the silence is reported');
    expect(agent.logged('exec.ended')[0]).toMatchObject({ source: 'p', error: 'no output for 1 s' });
    await agent.until(() => agent.logged('exec.refused').length > 1, 'the program runs again');
    expect(agent.logged('exec.refused_over')).toEqual([]);
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('runs the Python and shell examples from docs/guide/sources.md', async () => {
    const balance = createServer((socket) =>
      socket.on('data', (request) => socket.write(String(request) === 'W?\n' ? '12500\n' : 'ERR\n')),
    );
    await new Promise<void>((resolve) => balance.listen(0, '127.0.0.1', resolve));
    const { port } = balance.address() as { port: number };
    const blockOf = (language: string) =>
      new RegExp(`^## Programs$[^]*?^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'ms').exec(PAGE)![1]!;
    const example = blockOf('yaml')
      .replace('/opt/site/read-balance.py', program('read-balance.py', blockOf('python')))
      .replace('10.0.0.9:4001', `127.0.0.1:${port}`)
      .replace('/opt/site/read-load.sh', join(agent.folder, 'read-load.sh'))
      .replace('asset: 900', 'asset: 882');
    writeFileSync(join(agent.folder, 'read-load.sh'), blockOf('sh'));
    agent.write(sandbox.url, { tags: example });
    try {
      await agent.start();
      const tested = await runVerb(['sources', 'test', '--json', '--config', agent.config]);
      const values = JSON.parse(tested.stdout) as Record<string, unknown>[];
      expect(values.map(({ tag, key, problem }) => [tag, key, problem])).toEqual([
        ['WT-1', 'weight', null],
        ['GW-01', 'load', null],
        ['GW-01', 'tasks', null],
      ]);
      expect(values[0]).toMatchObject({ raw: 12500, value: 12.5 });
      await agent.until(() => numbers(881, 'weight').length > 0, 'the weight is delivered');
      await agent.until(() => numbers(882, 'tasks').length > 0, 'the number of tasks is delivered');
      expect(numbers(881, 'weight')[0]).toBe(12.5);
      expect(await agent.end('SIGTERM')).toBe(0);
    } finally {
      balance.close();
    }
  });
});
