import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import type { SourceReport } from '../../src/sources/source-report.ts';
import { runVerb } from '../commands/verb-run.ts';
import { wholeLines } from '../whole-lines.ts';
import { AgentProcess } from './agent-process.ts';

const PAGE = readFileSync(join(import.meta.dirname, '../../docs/sources.md'), 'utf8');

let sandbox: Sandbox;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url);
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

/** Puts a Python program into the folder, and gives its path. */
function program(name: string, text: string): string {
  const path = join(agent.folder, name);
  writeFileSync(path, `#!/usr/bin/env python3\n${text}`);
  chmodSync(path, 0o755);
  return path;
}

const numbers = (asset = 881, key = 'n') => sandbox.values.list(asset, key).map(({ value }) => value);

async function report(): Promise<SourceReport> {
  return ((await agent.status()).sources as SourceReport[])[0]!;
}

function isAlive(pid: number): boolean {
  try {
    // A zombie waits for whoever adopted it and runs no more.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

/** Counts on from where it was; says each number before it notes that it has said it. */
const COUNTER = `
import json, os, sys, time
os.environ.get("CLIENT_SECRET") and sys.exit("it sees the secret")
ledger = open(sys.argv[1], "a+"); ledger.seek(0)
n = len(ledger.read().split())
open(sys.argv[1] + ".pid", "w").write(str(os.getpid()))
while True:
    print(json.dumps({"tag": "T-1", "key": "n", "value": n}), flush=True)
    ledger.write(str(n) + "\\n"); ledger.flush()
    n += 1
    time.sleep(0.002)
`;

describe('a program as a source', () => {
  it('loses, invents and doubles nothing when it is killed, and when the agent is restarted', async () => {
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
      await more('it counts');
      process.kill(Number(readFileSync(`${ledger}.pid`, 'utf8')), 'SIGKILL');
      await agent.until(() => agent.logged('exec.ended').length === kill, 'its end is seen');
      expect(agent.logged('exec.ended').at(-1)).toMatchObject({ source: 'p', error: 'it was ended by SIGKILL' });
    }
    await more('it counts again');
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(isAlive(Number(readFileSync(`${ledger}.pid`, 'utf8')))).toBe(false);
    await agent.start();
    await more('it counts after the restart');
    process.kill(Number(readFileSync(`${ledger}.pid`, 'utf8')), 'SIGSTOP');
    const said = wholeLines(ledger).map(Number);
    await agent.until(() => said.every((n) => numbers().includes(n)), 'all that was said has arrived', 20_000);
    // A number that was said, and not noted before the kill, is said once more by the next life.
    const stored = numbers();
    expect(stored.length - new Set(stored).size).toBeLessThanOrEqual(4);
    expect(stored.filter((n) => n > said.length)).toEqual([]);
    expect((await report()).stored).toBeGreaterThan(0);
  });

  it('waits at its pipe when it floods and the disk is slower, and all of it arrives', async () => {
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
    await agent.until(async () => (await report()).stored === 2 * COUNT, 'all of it is on disk');
    expect(agent.memoryMb()).toBeLessThan(300);
    expect((await report()).errors).toBe(1);
    await sandbox.goOnline();
    await agent.until(() => numbers(881, 'free').length + numbers().length === 2 * COUNT, 'all of it has arrived');
    expect(numbers().reduce((sum, n) => sum + n, 0)).toBe((COUNT * (COUNT - 1)) / 4 + COUNT);
    expect(numbers(881, 'free').reduce((sum, n) => sum + n, 0)).toBe((COUNT * (COUNT - 1)) / 2);
    const said = agent.logged('exec.said');
    expect(said.length).toBeGreaterThan(0);
    expect(said.length).toBeLessThanOrEqual(40);
  });

  it('is ended with all it started, whatever it does about SIGTERM, and says why it ended', async () => {
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
    const of = (command: string) =>
      `sources: { p: { exec: ["${command}"] } }\ntags: { T-1: { asset: 881, values: { n: { unit: 1, from: p } } } }\n`;
    agent.write(sandbox.url, { tags: of(path) });
    await agent.start();
    await agent.until(() => wholeLines(pids).length === 2, 'it runs, and its child');
    agent.write(sandbox.url, { tags: of(failing) });
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('exec.ended').length > 0, 'the other one runs in its place, and ends');
    expect(wholeLines(pids).map(Number).filter(isAlive)).toEqual([]);
    expect(agent.logged('exec.said')[0]).toMatchObject({ source: 'p', line: 'the probe is unplugged' });
    expect(agent.logged('exec.refused')[0]).toMatchObject({ source: 'p', refused: 1 });
    expect(await report()).toMatchObject({ connected: false, problem: 'it ended with exit 1' });
    agent.write(sandbox.url, { tags: of(join(agent.folder, 'nothing')) });
    const { stdout } = await runVerb(['check', '--config', agent.config]);
    expect(stdout).toContain('is not there');
    agent.signal('SIGHUP');
    await agent.until(async () => /there is no .*nothing/.test((await report()).problem ?? ''), 'the state says why');
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('is what docs/sources.md has as examples, in Python and in shell', async () => {
    const balance = createServer((socket) =>
      socket.on('data', (asked) => socket.write(String(asked) === 'W?\n' ? '12500\n' : 'ERR\n')),
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
      // Before a daemon runs the verb starts the programs itself.
      const tested = await runVerb(['sources', 'test', '--json', '--config', agent.config]);
      const values = JSON.parse(tested.stdout) as Record<string, unknown>[];
      expect(values.map(({ tag, key, problem }) => [tag, key, problem])).toEqual([
        ['WT-1', 'weight', null],
        ['GW-01', 'load', null],
        ['GW-01', 'tasks', null],
      ]);
      expect(values[0]).toMatchObject({ raw: 12500, value: 12.5 });
      await agent.start();
      await agent.until(() => numbers(881, 'weight').length > 0, 'the balance has spoken');
      await agent.until(() => numbers(882, 'tasks').length > 0, 'the machine has spoken');
      expect(numbers(881, 'weight')[0]).toBe(12.5);
      expect(await agent.end('SIGTERM')).toBe(0);
    } finally {
      balance.close();
    }
  });
});
