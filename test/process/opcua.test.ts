import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import type { SourceReport } from '../../src/sources/source-report.ts';
import { runVerb } from '../commands/verb-run.ts';
import { compileDiskLayer } from '../faults/disk-fault.ts';
import { OpcuaServer } from '../sources/opcua/opcua-server.ts';
import { AgentProcess } from './agent-process.ts';

const server = new OpcuaServer();
let sandbox: Sandbox;
let agent: AgentProcess;

beforeAll(() => server.start(), 120_000);
afterAll(() => server.dispose());
beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url);
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

async function report(): Promise<SourceReport> {
  return ((await agent.status()).sources as SourceReport[])[0]!;
}

const stored = (key: string) => sandbox.values.list(881, key);

function configure(source: string, values: readonly string[], time: Record<string, string> = {}): void {
  const members = values.map((value) => `      ${value}\n`).join('');
  const tags = `sources: { cell: { opcua: "${server.url}", every: 20ms, ${source} } }\ntags:\n  T-1:\n    asset: 881\n    values:\n${members}`;
  agent.write(sandbox.url, { tags, env: time });
}

function trust(): void {
  const folder = join(agent.config, 'opcua-trust');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  writeFileSync(join(folder, 'server.der'), server.certificate);
}

const value = (key: string, node: string, more = '') =>
  `${key}: { unit: 1, from: cell, node: "ns=1;s=Line1.${node}"${more} }`;
/** As much as the server says while a slow machine starts the agent anew. */
const COUNT = value('count', 'Count', ', queue: 5000');

/** From here on. */
function counting(): { said: () => { value: number; timeMs: number }[] } {
  const from = server.said().length;
  return { said: () => server.said().slice(from) };
}

/** Starts the agent with the counter of a server that it trusts; what it says once the agent reads it. */
async function readCounter(): Promise<ReturnType<typeof counting>> {
  trust();
  configure('security: Basic256Sha256', [COUNT]);
  await agent.start();
  await agent.until(() => stored('count').length > 0, 'what is there at first');
  return counting();
}

const hasAll = (said: { value: number }[]) => {
  const values = new Set(stored('count').map(({ value }) => value));
  return said.every(({ value }) => values.has(value));
};

/** What was said against what came, by time; the first value of a subscription was said before it. */
function compare(said: { value: number; timeMs: number }[]) {
  const told = new Map(server.said().map(({ value, timeMs }) => [timeMs, value]));
  const all = stored('count');
  const times = new Set(all.map(({ timestampMs }) => timestampMs));
  return {
    missing: said.filter(({ timeMs }) => !times.has(timeMs)),
    invented: all.filter(({ timestampMs, value }) => value !== 0 && told.get(timestampMs) !== value),
    doubled: all.filter((one) => one.times > 1),
  };
}
const NOTHING_WRONG = { missing: [], invented: [], doubled: [] };

describe('a server of OPC UA as a source', { timeout: 300_000 }, () => {
  it('gives values with its times and status codes, what it does not have stands in the state, and verbs read over the session', async () => {
    const START = Date.UTC(2026, 0, 2, 3, 4, 5, 678);
    server.tell({ set: { Flow: 12.5, Level: 3 }, time: START });
    configure('security: None', [
      value('flow', 'Flow', ', scale: 2'),
      value('level', 'Level', ', deadband: 0.5'),
      value('running', 'Running'),
      value('total', 'Total'),
      value('name', 'Name'),
      value('nowhere', 'Nowhere'),
    ]);
    await agent.start();
    await agent.until(() => stored('flow').length === 1 && stored('total').length === 1, 'what is there at first');
    server.tell({ set: { Flow: 7.5 }, status: 'UncertainSensorNotAccurate', time: START + 1_000 });
    await agent.until(() => stored('flow').length === 2, 'an uncertain value');
    server.tell({ set: { Flow: 8.5 }, status: 'BadSensorFailure', time: START + 2_000 });
    await agent.until(() => stored('flow').length === 3, 'a bad value');
    expect(stored('flow').map(({ value, timestampMs, status }) => [value, timestampMs, status])).toEqual([
      [25, START, 'good'],
      [15, START + 1_000, 'uncertain'],
      [17, START + 2_000, 'bad'],
    ]);
    expect(stored('running')[0]).toMatchObject({ value: 1, status: 'good' });
    expect(stored('total')[0]).toMatchObject({ value: 2 ** 32 + 5 });
    expect(stored('name')).toEqual([]);
    expect(await report()).toMatchObject({
      connected: true,
      silent: false,
      problem: 'the server does not give T-1 nowhere (BadNodeIdUnknown)',
    });
    expect(agent.logged('opcua.unreadable')[0]).toMatchObject({ source: 'cell', value: 'T-1 name' });

    // The dead band is the server's: what lies within it is never said.
    server.tell({ set: { Level: 10 } });
    await agent.until(() => stored('level').at(-1)?.value === 10, 'a level');
    server.tell({ set: { Level: 10.4 } });
    server.tell({ set: { Flow: 1 }, time: START + 3_000 });
    await agent.until(() => stored('flow').length === 4, 'what came behind it');
    server.tell({ set: { Level: 10.6 } });
    await agent.until(() => stored('level').at(-1)?.value === 10.6, 'a level beyond it');
    expect(stored('level').map(({ value }) => value)).toEqual([3, 10, 10.6]);

    const tested = await runVerb(['sources', 'test', '--json', '--config', agent.config]);
    const values = JSON.parse(tested.stdout) as Record<string, unknown>[];
    expect(values.map(({ key, raw, value, address, problem }) => [key, raw, value, address, problem])).toEqual([
      ['flow', 1, 2, 'ns=1;s=Line1.Flow', null],
      ['level', 10.6, 10.6, 'ns=1;s=Line1.Level', null],
      ['running', 1, 1, 'ns=1;s=Line1.Running', null],
      ['total', 2 ** 32 + 5, 2 ** 32 + 5, 'ns=1;s=Line1.Total', null],
      ['name', null, null, 'ns=1;s=Line1.Name', 'it is no number'],
      ['nowhere', null, null, 'ns=1;s=Line1.Nowhere', 'BadNodeIdUnknown'],
    ]);
    expect(values[0]).toMatchObject({ timestamp: new Date(START + 3_000).toISOString(), quality: 'good' });
    const scanned = await runVerb(['sources', 'scan', 'cell', 'Line1', '--yes', '--config', agent.config]);
    expect(scanned.stdout).toMatch(/flow: \{ from: cell, node: "ns=1;s=Line1\.Flow" \} +# Line1\/Flow = 1\n/);
    expect(scanned.stdout).toMatch(
      /running: \{ from: cell, node: "ns=1;s=Line1\.Running" \} +# Line1\/Pump\/Running = 1\n/,
    );
    expect(scanned.stdout).not.toContain('Line1.Name');
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it.each([
    ['restarted', 'Basic256Sha256'],
    ['reloaded with another value', 'Basic256Sha256'],
    ['killed', 'Aes256Sha256RsaPss'],
  ])('loses, invents and doubles nothing while the agent is %s', async (what, security) => {
    trust();
    configure(`security: ${security}`, [COUNT]);
    await agent.start();
    await agent.until(() => stored('count').length > 0, 'what is there at first');
    const { said } = counting();
    server.tell({ count: 1_000_000 });
    const more = async () => {
      const from = said().length;
      await agent.until(() => said().length >= from + 3 && hasAll(said().slice(from, from + 3)), 'it counts');
    };
    await more();
    if (what === 'restarted') {
      expect(await agent.end('SIGTERM')).toBe(0);
      await agent.start();
    } else if (what === 'killed') {
      // What is posted a second time after a kill is the platform's to sort out: so no post is under way.
      server.tell({ count: 0 });
      await agent.until(
        async () => hasAll(said()) && (await agent.metric('tagferry_buffer_values')) === 0,
        'all is settled',
      );
      await sandbox.goOffline('refuse');
      server.tell({ count: 1_000_000 });
      const { stored: before } = await report();
      await agent.until(async () => (await report()).stored > before + 2, 'more is on disk');
      await agent.end('SIGKILL');
      await sandbox.goOnline();
      await agent.start();
    } else {
      configure(`security: ${security}`, [COUNT, value('flow', 'Flow')]);
      agent.signal('SIGHUP');
      await agent.until(() => stored('flow').length > 0, 'the new value is there');
    }
    await more();
    server.tell({ count: 0 });
    await agent.until(() => hasAll(said()), 'all that was said has arrived');
    expect(compare(said())).toEqual(NOTHING_WRONG);
    expect(agent.logged('opcua.overflow')).toEqual([]);
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('says of a server that hangs that it does not answer, and misses nothing once it goes on', async () => {
    const { said } = await readCounter();
    server.tell({ count: 1_000_000 });
    await agent.until(() => said().length >= 3 && hasAll(said().slice(0, 3)), 'it counts');
    server.signal('SIGSTOP');
    await agent.until(async () => !(await report()).connected, 'it is missed', 90_000);
    expect((await report()).problem).not.toBe(null);
    server.signal('SIGCONT');
    await agent.until(async () => (await report()).connected === true, 'it is back', 90_000);
    const from = said().length;
    await agent.until(() => said().length >= from + 3 && hasAll(said().slice(from, from + 3)), 'it counts on');
    server.tell({ count: 0 });
    await agent.until(() => hasAll(said()), 'all that was said has arrived');
    expect(compare(said())).toEqual(NOTHING_WRONG);
    expect(await agent.end('SIGTERM')).toBe(0);
  }, 300_000);

  it('refuses a server that shows another certificate in mid-stream until somebody trusts it', async () => {
    configure('security: Aes256Sha256RsaPss, username: reader, password_file: opcua-password', [COUNT]);
    writeFileSync(join(agent.config, 'opcua-password'), 'swordfish\n', { mode: 0o600 });
    trust();
    await agent.start();
    await agent.until(() => stored('count').length > 0, 'what is there at first');
    const { said } = counting();
    server.tell({ count: 5 });
    await agent.until(() => said().length === 5 && hasAll(said()), 'it counts');

    await server.kill();
    server.forgetCertificate();
    await server.start();
    await agent.until(async () => /not trusted/.test((await report()).problem ?? ''), 'it is refused');
    const later = counting();
    server.tell({ count: 5 });
    await agent.until(() => later.said().length === 5, 'the server counts');
    const { connected, problem, hint } = await report();
    expect([connected, problem, hint]).toEqual([
      false,
      expect.stringMatching(/^the certificate of the server is not trusted \(SHA-1 [0-9a-f]{40}\)$/),
      expect.stringContaining('tagferry sources trust'),
    ]);
    expect(hasAll(later.said())).toBe(false);
    const [, fingerprint] = /SHA-1 ([0-9a-f]+)/.exec(problem ?? '')!;
    const verb = ['sources', 'trust', 'cell', '--config', agent.config];
    const wrong = await runVerb([...verb, '--fingerprint', '00'.repeat(20)]);
    expect([wrong.status, wrong.stderr]).toEqual([1, expect.stringContaining('another fingerprint')]);
    const right = await runVerb([...verb, '--fingerprint', fingerprint!]);
    expect(right.stdout).toContain('It is trusted:');
    expect(right.stdout).toMatch(/Aes256Sha256RsaPss SignAndEncrypt: .*UserName/);
    await agent.until(async () => (await report()).connected === true, 'it is read again');
    server.tell({ count: 5 });
    await agent.until(() => later.said().length === 10 && hasAll(later.said().slice(5)), 'it counts again');
    expect(compare(later.said().slice(4))).toEqual(NOTHING_WRONG);
    expect(await agent.end('SIGTERM')).toBe(0);
  });
  it('gives one element of an array, and tells of what it was asked to: of values, of statuses, or of each new time', async () => {
    const START = Date.UTC(2026, 0, 2);
    server.tell({ set: { Flow: 1 }, time: START, zones: [1.5, 2.5, 3.5] });
    configure('security: None', [
      value('zone', 'Zones', ', index: 2'),
      value('beyond', 'Zones', ', index: 3'),
      value('whole', 'Zones'),
      value('values', 'Flow'),
      value('times', 'Flow', ', trigger: timestamp'),
      value('statuses', 'Flow', ', trigger: status'),
    ]);
    await agent.start();
    const keys = ['values', 'times', 'statuses'];
    await agent.until(() => keys.every((key) => stored(key).length === 1), 'what is there at first');
    // The same value at another time, another value, another status: each has been sampled before the next.
    const steps = [{ Flow: 1 }, { Flow: 2 }, { Flow: 2 }];
    for (const [at, set] of steps.entries()) {
      server.tell({ set, time: START + 1_000 * (at + 1), ...(at === 2 ? { status: 'Uncertain' } : {}) });
      await agent.until(() => stored('times').length === at + 2, `time ${at + 1}`);
    }
    await agent.until(() => stored('statuses').length === 2 && stored('values').length === 3, 'the others');
    const seconds = (key: string) => stored(key).map(({ timestampMs }) => (timestampMs - START) / 1_000);
    expect(keys.map(seconds)).toEqual([
      [0, 2, 3],
      [0, 1, 2, 3],
      [0, 3],
    ]);
    await agent.until(() => stored('zone').length === 1, 'the element');
    server.tell({ zones: [9, 9, 4.5] });
    await agent.until(() => stored('zone').length === 2, 'it has changed');
    expect(stored('zone').map(({ value }) => value)).toEqual([3.5, 4.5]);
    expect([...stored('beyond'), ...stored('whole')]).toEqual([]);
    const tested = await runVerb(['sources', 'test', '--json', '--config', agent.config]);
    const found = JSON.parse(tested.stdout) as Record<string, unknown>[];
    expect(found.slice(0, 3).map(({ raw, address, problem }) => [raw, address, problem])).toEqual([
      [4.5, 'ns=1;s=Line1.Zones [2]', null],
      [null, 'ns=1;s=Line1.Zones [3]', 'BadIndexRangeNoData'],
      [null, 'ns=1;s=Line1.Zones', 'it is no number'],
    ]);
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('lets a user in by a certificate: refused while the server does not know it, read as soon as it does', async () => {
    trust();
    const file = (name: string) => join(agent.config, name);
    const pair = [
      '-keyout',
      file('reader-key.pem'),
      '-out',
      file('reader.pem'),
      '-subj',
      '/CN=reader',
      '-days',
      '3650',
    ];
    execFileSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', ...pair], { stdio: 'ignore' });
    configure('security: Basic256Sha256, user_cert: reader.pem, user_key: reader-key.pem', [COUNT]);
    await agent.start();
    await agent.until(async () => /BadIdentityTokenRejected/.test((await report()).problem ?? ''), 'it is refused');
    expect((await report()).connected).toBe(false);
    server.tell({ trust: file('reader.pem') });
    await agent.until(async () => (await report()).connected === true, 'it is let in');
    const { said } = counting();
    server.tell({ count: 3 });
    await agent.until(() => said().length === 3 && hasAll(said()), 'it is read');
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('loses and doubles nothing where the server ends the session by itself', async () => {
    const { said } = await readCounter();
    server.tell({ count: 1_000_000 });
    for (let times = 1; times <= 2; times++) {
      const from = said().length;
      await agent.until(() => said().length >= from + 3 && hasAll(said().slice(from, from + 3)), 'it counts');
      server.tell({ expire: true });
      await agent.until(() => agent.logged('opcua.away_over').length === times, 'it was away, and is there again');
    }
    server.tell({ count: 0 });
    await agent.until(() => hasAll(said()), 'all that was said has arrived');
    expect(compare(said())).toEqual(NOTHING_WRONG);
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('begins anew with what is there, and makes nothing up, where the server does not know how to hand a subscription over', async () => {
    const { said } = await readCounter();
    const count = async (numbers: number) => {
      const from = said().length;
      server.tell({ count: numbers });
      await vi.waitFor(() => expect(said().length).toBe(from + numbers), 45_000);
    };
    await count(3);
    await agent.until(() => hasAll(said()), 'it counts');
    server.tell({ transfer: false });
    try {
      expect(await agent.end('SIGTERM')).toBe(0);
      await count(3);
      await agent.start();
      await agent.until(() => hasAll(said().slice(-1)), 'what is there has come');
      await count(3);
      await agent.until(() => hasAll(said().slice(-3)), 'it counts on');
      // What is stated in docs/sources.md: what changed while nobody was there, but for the last.
      expect(compare(said())).toEqual({ ...NOTHING_WRONG, missing: said().slice(3, 5) });
    } finally {
      server.tell({ transfer: true });
    }
    expect(await agent.end('SIGTERM')).toBe(0);
  });
  it('has on disk at a stop what it took, where nobody would bring it again', async () => {
    // Of nobody in particular, so that the server ends the subscription with its session; and no commit comes by itself for a while.
    configure('security: None', [COUNT], { COMMIT_INTERVAL: '60s' });
    await agent.start();
    await agent.until(async () => (await report()).connected === true, 'it is connected');
    const { said } = counting();
    server.tell({ count: 5 });
    const taken = async () => (await report()).waiting_for_commit + (await report()).stored;
    await agent.until(async () => said().length === 5 && (await taken()) >= 5, 'it was taken');
    expect(await agent.end('SIGTERM')).toBe(0);
    configure('security: None', [COUNT]);
    await agent.start();
    await agent.until(() => hasAll(said()), 'all that was said has arrived');
    expect(compare(said())).toMatchObject({ missing: [], invented: [] });
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('loses and doubles nothing that its store refused, though a stop comes when the store takes what follows', async () => {
    trust();
    configure('security: Basic256Sha256', [COUNT]);
    const orders = (text: string) => writeFileSync(join(agent.folder, 'orders'), `${text}\n`);
    orders('');
    await agent.start({
      LD_PRELOAD: compileDiskLayer(),
      DISK_LAYER_PATH: agent.state,
      DISK_LAYER_ORDERS: join(agent.folder, 'orders'),
    });
    await agent.until(() => stored('count').length > 0, 'what is there at first');
    const { said } = counting();
    server.tell({ count: 1_000_000 });
    await agent.until(() => said().length >= 3 && hasAll(said().slice(0, 3)), 'it counts');
    orders(`refuse_writes ${constants.errno.ENOSPC}`);
    await agent.until(() => agent.logged('source.store_refused').length > 0, 'the store refuses');
    orders('');
    // What was refused is offered again after five seconds; in between the store would take what follows.
    const from = said().length;
    await agent.until(() => said().length >= from + 20, 'it counts on');
    expect(await agent.end('SIGTERM')).toBe(0);
    await agent.start();
    server.tell({ count: 0 });
    await agent.until(() => hasAll(said()), 'all that was said has arrived');
    expect(compare(said())).toEqual(NOTHING_WRONG);
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('loses nothing that was read and not stored when the connection and then the agent end', async () => {
    trust();
    configure('security: Basic256Sha256', [COUNT]);
    const orders = (text: string) => writeFileSync(join(agent.folder, 'orders'), `${text}\n`);
    orders('');
    const disk = {
      LD_PRELOAD: compileDiskLayer(),
      DISK_LAYER_PATH: agent.state,
      DISK_LAYER_ORDERS: join(agent.folder, 'orders'),
    };
    await agent.start(disk);
    await agent.until(() => stored('count').length > 0, 'the first value is delivered');
    const { said } = counting();
    server.tell({ count: 1_000_000 });
    await agent.until(() => said().length >= 3 && hasAll(said().slice(0, 3)), 'values are delivered');
    orders(`refuse_writes ${constants.errno.ENOSPC}`);
    await agent.until(() => agent.logged('source.store_refused').length > 0, 'the store refuses');
    server.tell({ expire: true });
    await agent.until(() => agent.logged('opcua.away_over').length > 0, 'the server is connected again');
    const from = said().length;
    await agent.until(() => said().length >= from + 10, 'the server counts on');
    await agent.end('SIGKILL');
    orders('');
    await agent.start(disk);
    server.tell({ count: 0 });
    await agent.until(() => hasAll(said()), 'every value is delivered');
    expect(compare(said())).toMatchObject({ missing: [], invented: [] });
    expect(await agent.end('SIGTERM')).toBe(0);
  });
});
