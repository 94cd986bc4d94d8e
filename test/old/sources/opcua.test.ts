import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import type { SourceReport } from '../../../src/sources/status.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { OpcuaServer } from '../../e2e/harness/opcua-server.ts';
import { compileDiskLayer } from '../../host/faults/disk-fault.ts';
import { runVerb } from '../commands/verb-run.ts';

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
/** Number of values that the server emits while a slow machine restarts the agent. */
const COUNT = value('count', 'Count', ', queue: 5000');

/** Returns the values emitted from now on. */
function recordCounter(): { emitted: () => { value: number; timeMs: number }[] } {
  const from = server.emitted().length;
  return { emitted: () => server.emitted().slice(from) };
}

/** Starts the agent with a trusted server's counter. Returns the emitted values once the agent reads them. */
async function readCounter(more = ''): Promise<ReturnType<typeof recordCounter>> {
  trust();
  configure(`security: Basic256Sha256${more}`, [COUNT]);
  await agent.start();
  await agent.until(() => stored('count').length > 0, 'the first value is delivered');
  return recordCounter();
}

const hasAll = (expected: { value: number }[]) => {
  const values = new Set(stored('count').map(({ value }) => value));
  return expected.every(({ value }) => values.has(value));
};

/**
 * Compares emitted and received values by time. The first value of a subscription may be older than the subscription.
 */
function compare(expected: { value: number; timeMs: number }[]) {
  const emittedAt = new Map(server.emitted().map(({ value, timeMs }) => [timeMs, value]));
  const all = stored('count');
  const times = new Set(all.map(({ timestampMs }) => timestampMs));
  const expectedTimes = new Set(expected.map(({ timeMs }) => timeMs));
  return {
    missing: expected.filter(({ timeMs }) => !times.has(timeMs)),
    unexpected: all.filter(({ timestampMs, value }) => value !== 0 && emittedAt.get(timestampMs) !== value),
    duplicated: all.filter(({ times: posts, timestampMs }) => posts > 1 && expectedTimes.has(timestampMs)),
  };
}
/** Waits until the next emitted values are delivered. */
async function untilMore(emitted: ReturnType<typeof recordCounter>['emitted'], count = 3): Promise<void> {
  const from = emitted().length;
  const isDelivered = () => emitted().length >= from + count && hasAll(emitted().slice(from, from + count));
  await agent.until(isDelivered, 'later values are delivered');
}

/** Stops the counter and the agent, and checks that every emitted value was delivered once. */
async function expectAllOnce(emitted: ReturnType<typeof recordCounter>['emitted']): Promise<void> {
  server.send({ count: 0 });
  await agent.until(() => hasAll(emitted()), 'every value is delivered');
  expect(compare(emitted())).toEqual(NO_DIFFERENCE);
  expect(await agent.end('SIGTERM')).toBe(0);
}

/** Like `expectAllOnce`, after the next values. */
async function untilMoreOnce(emitted: ReturnType<typeof recordCounter>['emitted']): Promise<void> {
  server.send({ count: 1_000_000 });
  await untilMore(emitted);
  await expectAllOnce(emitted);
}

/** Environment and control of a disk layer that injects write errors. */
function faultyDisk() {
  const file = join(agent.folder, 'orders');
  const order = (text: string) => writeFileSync(file, `${text}\n`);
  order('');
  return { order, env: { LD_PRELOAD: compileDiskLayer(), DISK_LAYER_PATH: agent.state, DISK_LAYER_ORDERS: file } };
}
const NO_DIFFERENCE = { missing: [], unexpected: [], duplicated: [] };

describe('OPC UA source', { timeout: 300_000 }, () => {
  it('delivers values with their timestamps and status codes, and reports missing nodes', async () => {
    const START = Date.UTC(2026, 0, 2, 3, 4, 5, 678);
    server.send({ set: { Flow: 12.5, Level: 3 }, time: START });
    configure('security: None', [
      value('flow', 'Flow', ', scale: 2'),
      value('level', 'Level', ', deadband: 0.5'),
      value('running', 'Running'),
      value('total', 'Total'),
      value('name', 'Name'),
      value('nowhere', 'Nowhere'),
    ]);
    await agent.start();
    await agent.until(
      () => stored('flow').length === 1 && stored('total').length === 1,
      'the first value is delivered',
    );
    server.send({ set: { Flow: 7.5 }, status: 'UncertainSensorNotAccurate', time: START + 1_000 });
    await agent.until(() => stored('flow').length === 2, 'the uncertain value is delivered');
    server.send({ set: { Flow: 8.5 }, status: 'BadSensorFailure', time: START + 2_000 });
    await agent.until(() => stored('flow').length === 3, 'the bad value is delivered');
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
      problem: 'rejected by the server: T-1 nowhere: the server does not have this node (BadNodeIdUnknown)',
    });
    expect(agent.logged('source.not_a_number')[0]).toMatchObject({ source: 'cell', value: 'T-1 name' });

    // The server applies the dead band, and never emits changes within it.
    server.send({ set: { Level: 10 } });
    await agent.until(() => stored('level').at(-1)?.value === 10, 'the level is delivered');
    server.send({ set: { Level: 10.4 } });
    server.send({ set: { Flow: 1 }, time: START + 3_000 });
    await agent.until(() => stored('flow').length === 4, 'the next value is delivered');
    server.send({ set: { Level: 10.6 } });
    await agent.until(() => stored('level').at(-1)?.value === 10.6, 'a level outside the dead band is delivered');
    expect(stored('level').map(({ value }) => value)).toEqual([3, 10, 10.6]);

    const tested = await runVerb(['sources', 'test', '--json', '--config', agent.config]);
    const values = JSON.parse(tested.stdout) as Record<string, unknown>[];
    expect(values.map(({ key, raw, value, address, problem }) => [key, raw, value, address, problem])).toEqual([
      ['flow', 1, 2, 'ns=1;s=Line1.Flow', null],
      ['level', 10.6, 10.6, 'ns=1;s=Line1.Level', null],
      ['running', true, 1, 'ns=1;s=Line1.Running', null],
      ['total', 2 ** 32 + 5, 2 ** 32 + 5, 'ns=1;s=Line1.Total', null],
      ['name', 'P-1', null, 'ns=1;s=Line1.Name', '"P-1" is not a number'],
      ['nowhere', null, null, 'ns=1;s=Line1.Nowhere', 'the server does not have this node (BadNodeIdUnknown)'],
    ]);
    expect(values[0]).toMatchObject({ timestamp: new Date(START + 3_000).toISOString(), quality: 'good' });
    const scanned = await runVerb(['sources', 'scan', 'cell', 'Line1', '--yes', '--config', agent.config]);
    expect(scanned.stdout).toMatch(/flow: \{ from: cell, node: "nsu=urn:[^;]+;s=Line1\.Flow" \} +# Line1\/Flow = 1\n/);
    expect(scanned.stdout).toMatch(
      /running: \{ from: cell, node: "nsu=urn:[^;]+;s=Line1\.Running" \} +# Line1\/Pump\/Running = 1\n/,
    );
    expect(scanned.stdout).not.toContain('Line1.Name');
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it.each([
    ['restarted', 'Basic256Sha256'],
    ['reloaded with another value', 'Basic256Sha256'],
    ['killed', 'Aes256Sha256RsaPss'],
  ])('delivers each value once even if the agent is %s', async (what, security) => {
    trust();
    configure(`security: ${security}`, [COUNT]);
    await agent.start();
    await agent.until(() => stored('count').length > 0, 'the first value is delivered');
    const { emitted } = recordCounter();
    server.send({ count: 1_000_000 });
    await untilMore(emitted);
    if (what === 'restarted') {
      expect(await agent.end('SIGTERM')).toBe(0);
      await agent.start();
    } else if (what === 'killed') {
      // The platform deduplicates posts repeated after a kill, so no post is pending here.
      server.send({ count: 0 });
      await agent.until(
        async () => hasAll(emitted()) && (await agent.metric('tagferry_buffer_values')) === 0,
        'the backlog is delivered',
      );
      await sandbox.goOffline('refuse');
      server.send({ count: 1_000_000 });
      const { stored: before } = await report();
      await agent.until(async () => (await report()).stored > before + 2, 'more values are on disk');
      await agent.end('SIGKILL');
      await sandbox.goOnline();
      await agent.start();
    } else {
      configure(`security: ${security}`, [COUNT, value('flow', 'Flow')]);
      agent.signal('SIGHUP');
      await agent.until(() => stored('flow').length > 0, 'the new value is delivered');
    }
    await untilMore(emitted);
    await expectAllOnce(emitted);
    expect([...agent.logged('opcua.overflow'), ...agent.logged('opcua.lost')]).toEqual([]);
  });

  it('reports an unresponsive server, and delivers each value once after the server recovers', async () => {
    const { emitted } = await readCounter();
    server.send({ count: 1_000_000 });
    await agent.until(() => emitted().length >= 3 && hasAll(emitted().slice(0, 3)), 'values are delivered');
    server.signal('SIGSTOP');
    await agent.until(async () => !(await report()).connected, 'the server is disconnected', 90_000);
    expect((await report()).problem).not.toBe(null);
    server.signal('SIGCONT');
    await agent.until(async () => (await report()).connected === true, 'the server is connected again', 90_000);
    await untilMore(emitted);
    await expectAllOnce(emitted);
  });

  it('reads nodes by their namespace URI after the server has renumbered its namespaces', async () => {
    await server.kill();
    await server.start('urn:test:oven', 'urn:test:press');
    server.send({ set: { 'urn:test:oven Flow': 11, 'urn:test:press Flow': 22 } });
    configure('security: None', [
      'oven: { unit: 1, from: cell, node: "nsu=urn:test:oven;s=Flow" }',
      'press: { unit: 1, from: cell, node: "nsu=urn:test:press;s=Flow" }',
      'missing: { unit: 1, from: cell, node: "nsu=urn:test:crane;s=Flow" }',
    ]);
    await agent.start();
    const readings = () => ['oven', 'press'].map((key) => stored(key).map(({ value }) => value));
    await agent.until(() => readings().every((values) => values.length > 0), 'the first values are delivered');
    await server.kill();
    await server.start('urn:test:press', 'urn:test:oven');
    server.send({ set: { 'urn:test:oven Flow': 12, 'urn:test:press Flow': 23 } });
    await agent.until(() => readings().every((values) => values.at(-1)! % 11 === 1), 'the next values are delivered');
    expect(readings().map((values) => values.filter((value) => value > 0))).toEqual([
      [11, 12],
      [22, 23],
    ]);
    expect((await report()).problem).toBe(
      'rejected by the server: T-1 missing: the server does not have the namespace urn:test:crane',
    );
    expect(agent.logged('opcua.namespaces_changed')).toHaveLength(1);
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('logs 2,000 rejected nodes in two entries', async () => {
    const missing = Array.from({ length: 2_000 }, (_, at) => `m${at}: { from: cell, node: "ns=7;s=M${at}" }`);
    configure('security: None', [COUNT, ...missing]);
    await agent.start();
    const objects = () => agent.logged('opcua.refused').map((entry) => entry.objects ?? 1);
    await agent.until(() => objects().length > 1, 'the rejected nodes are logged');
    expect(objects()).toEqual([1, 1_999]);
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('rejects a server that changes its certificate until an operator trusts it', async () => {
    configure('security: Aes256Sha256RsaPss, username: reader, password_file: opcua-password', [COUNT]);
    writeFileSync(join(agent.config, 'opcua-password'), 'swordfish\n', { mode: 0o600 });
    trust();
    await agent.start();
    await agent.until(() => stored('count').length > 0, 'the first value is delivered');
    const { emitted } = recordCounter();
    server.send({ count: 5 });
    await agent.until(() => emitted().length === 5 && hasAll(emitted()), 'values are delivered');

    await server.kill();
    server.forgetCertificate();
    await server.start();
    await agent.until(async () => /not trusted/.test((await report()).problem ?? ''), 'the connection is rejected');
    const later = recordCounter();
    server.send({ count: 5 });
    await agent.until(() => later.emitted().length === 5, 'the server is counting');
    const { connected, problem, hint } = await report();
    expect([connected, problem, hint]).toEqual([
      false,
      expect.stringMatching(/^server certificate is not trusted \(SHA-1 [0-9a-f]{40}\)$/),
      expect.stringContaining('tagferry sources trust'),
    ]);
    expect(hasAll(later.emitted())).toBe(false);
    const [, fingerprint] = /SHA-1 ([0-9a-f]+)/.exec(problem ?? '')!;
    const verb = ['sources', 'trust', 'cell', '--config', agent.config];
    const wrong = await runVerb([...verb, '--fingerprint', '00'.repeat(20)]);
    expect([wrong.status, wrong.stderr]).toEqual([1, expect.stringContaining('different fingerprint')]);
    const right = await runVerb([...verb, '--fingerprint', fingerprint!]);
    expect(right.stdout).toContain('Certificate stored as trusted:');
    expect(right.stdout).toMatch(/Aes256Sha256RsaPss SignAndEncrypt: .*UserName/);
    await agent.until(async () => (await report()).connected === true, 'the server is connected again');
    server.send({ count: 5 });
    await agent.until(
      () => later.emitted().length === 10 && hasAll(later.emitted().slice(5)),
      'later values are delivered',
    );
    expect(compare(later.emitted().slice(4))).toEqual(NO_DIFFERENCE);
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('reads one array element, and reports value, status or timestamp changes as configured', async () => {
    const START = Date.UTC(2026, 0, 2);
    server.send({ set: { Flow: 1 }, time: START, zones: [1.5, 2.5, 3.5] });
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
    await agent.until(() => keys.every((key) => stored(key).length === 1), 'the first value is delivered');
    // The same value at another time, another value, another status: each is sampled before the next.
    const steps = [{ Flow: 1 }, { Flow: 2 }, { Flow: 2 }];
    for (const [at, set] of steps.entries()) {
      server.send({ set, time: START + 1_000 * (at + 1), ...(at === 2 ? { status: 'Uncertain' } : {}) });
      await agent.until(() => stored('times').length === at + 2, `value ${at + 1} is delivered`);
    }
    await agent.until(
      () => stored('statuses').length === 2 && stored('values').length === 3,
      'the other values are delivered',
    );
    const seconds = (key: string) => stored(key).map(({ timestampMs }) => (timestampMs - START) / 1_000);
    expect(keys.map(seconds)).toEqual([
      [0, 2, 3],
      [0, 1, 2, 3],
      [0, 3],
    ]);
    await agent.until(() => stored('zone').length === 1, 'the element is delivered');
    server.send({ zones: [9, 9, 4.5] });
    await agent.until(() => stored('zone').length === 2, 'the changed element is delivered');
    expect(stored('zone').map(({ value }) => value)).toEqual([3.5, 4.5]);
    expect([...stored('beyond'), ...stored('whole')]).toEqual([]);
    expect(await report()).toMatchObject({
      problem: 'T-1 whole: the value is an array of 3 elements',
      hint: 'Set index: to a number from 0 to 2.',
    });
    const tested = await runVerb(['sources', 'test', '--json', '--config', agent.config]);
    const found = JSON.parse(tested.stdout) as Record<string, unknown>[];
    expect(found.slice(0, 3).map(({ raw, address, problem, hint }) => [raw, address, problem, hint])).toEqual([
      [4.5, 'ns=1;s=Line1.Zones [2]', null, null],
      [null, 'ns=1;s=Line1.Zones [3]', 'the array does not have this element (BadIndexRangeNoData)', null],
      [null, 'ns=1;s=Line1.Zones', 'the value is an array of 3 elements', 'Set index: to a number from 0 to 2.'],
    ]);
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('reads and lists enumerations and structure members', async () => {
    configure('security: None', [
      value('state', 'State'),
      value('speed', 'Motor', ', member: Speed'),
      value('on', 'Motor', ', member: On'),
      value('motor_state', 'Motor', ', member: State'),
      value('steps', 'Motor', ', member: Axes.1.Steps'),
      value('name', 'Motor', ', member: Name'),
      value('none', 'Motor', ', member: None'),
      value('label', 'Name', ', map: { P-1: 7 }'),
      value('all', 'Motor'),
    ]);
    await agent.start();
    const values = (...keys: string[]) => keys.map((key) => stored(key).map((one) => one.value));
    await agent.until(
      () => values('state', 'speed', 'steps').every(({ length }) => length > 0),
      'values are delivered',
    );
    server.send({ motor: 1500 });
    await agent.until(() => stored('speed').length === 2, 'the changed member is delivered');
    expect(values('state', 'label', 'speed', 'on', 'motor_state', 'steps', 'name', 'all')).toEqual([
      [2],
      [7],
      [10, 1500],
      expect.arrayContaining([1]),
      expect.arrayContaining([1]),
      expect.arrayContaining([2 ** 32 + 8]),
      [],
      [],
    ]);
    const tested = await runVerb(['sources', 'test', '--json', '--config', agent.config]);
    const found = JSON.parse(tested.stdout) as Record<string, unknown>[];
    const members = 'Set member: Speed, On, State, Axes.0.Position, Axes.0.Steps, Axes.1.Position or another member.';
    expect(found.slice(4).map(({ raw, address, problem, hint }) => [raw, address, problem, hint])).toEqual([
      [2 ** 32 + 8, 'ns=1;s=Line1.Motor Axes.1.Steps', null, null],
      ['M-1', 'ns=1;s=Line1.Motor Name', '"M-1" is not a number', null],
      [null, 'ns=1;s=Line1.Motor None', 'the structure does not have a number or text at None', members],
      ['P-1', 'ns=1;s=Line1.Name', null, null],
      [null, 'ns=1;s=Line1.Motor', 'the value is a structure', members],
    ]);
    const scanned = await runVerb(['sources', 'scan', 'cell', 'Line1', '--yes', '--config', agent.config]);
    for (const line of [
      'zones_1: { from: cell, node: "…;s=Line1.Zones", index: 1 }',
      'state: { from: cell, node: "…;s=Line1.State" }',
      'motor_axes_1_steps: { from: cell, node: "…;s=Line1.Motor", member: Axes.1.Steps }',
    ]) {
      expect(scanned.stdout.replaceAll(/nsu=urn:[^;]+/g, '…')).toContain(line);
    }
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('reads with a user certificate as soon as the server trusts it', async () => {
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
    await agent.until(
      async () => /BadIdentityTokenRejected/.test((await report()).problem ?? ''),
      'the connection is rejected',
    );
    expect((await report()).connected).toBe(false);
    server.send({ trust: file('reader.pem') });
    await agent.until(async () => (await report()).connected === true, 'the server is connected');
    const { emitted } = recordCounter();
    server.send({ count: 3 });
    await agent.until(() => emitted().length === 3 && hasAll(emitted()), 'values are delivered');
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('delivers each value once if the server ends the session', async () => {
    const { emitted } = await readCounter();
    server.send({ count: 1_000_000 });
    for (let times = 1; times <= 2; times++) {
      await untilMore(emitted);
      server.send({ expire: true });
      await agent.until(() => agent.logged('opcua.away_over').length === times, 'the session is restored');
    }
    await expectAllOnce(emitted);
  });

  /** Emits numbers while the agent is stopped with this signal. Returns them and those after the restart. */
  async function countWhileStopped(signal: 'SIGTERM' | 'SIGKILL', numbers: number) {
    const { emitted } = await readCounter();
    server.send({ count: 3 });
    await agent.until(() => emitted().length === 3 && hasAll(emitted()), 'values are delivered');
    await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 0, 'the buffer is empty');
    await agent.end(signal);
    // The platform deduplicates posts repeated after a kill.
    const later = recordCounter();
    server.send({ count: numbers });
    await vi.waitFor(() => expect(later.emitted().length).toBe(numbers), 45_000);
    return later;
  }

  it.each(['SIGTERM', 'SIGKILL'] as const)(
    'fills the gap from the history if the subscription is lost while the agent is stopped by %s',
    async (signal) => {
      server.send({ transfer: false });
      try {
        const { emitted } = await countWhileStopped(signal, 20);
        // More values than one page of the history contains.
        server.send({ past: 50 });
        await agent.start();
        await agent.until(() => agent.logged('opcua.gap_filled').length === 1, 'the gap is filled');
        expect(agent.logged('opcua.gap_filled')[0]).toMatchObject({ source: 'cell', values: 69, gaps: 1 });
        await untilMoreOnce(emitted);
      } finally {
        server.send({ transfer: true });
      }
      expect([...agent.logged('opcua.gap'), ...agent.logged('opcua.lost')]).toEqual([]);
    },
  );

  it('fills the gap from the history once, even if the agent is killed meanwhile', async () => {
    server.send({ transfer: false });
    try {
      const { emitted } = await countWhileStopped('SIGKILL', 50);
      server.send({ past: 4_000 });
      await sandbox.goOffline('refuse');
      await agent.start();
      await agent.until(async () => (await report()).stored > 500, 'a part of the gap is on disk');
      await agent.end('SIGKILL');
      await agent.start();
      await sandbox.goOnline();
      await untilMoreOnce(emitted);
    } finally {
      server.send({ transfer: true });
    }
  });

  it.each([
    ['1d', 3_600, 0],
    ['10m', 600, 1],
  ])('fills a gap of an hour up to history: %s', async (history, filled, reported) => {
    await server.kill();
    server.forgetHistory();
    await server.start();
    server.send({ behind: 3_601_000, transfer: false, count: 1 });
    await vi.waitFor(() => expect(server.emitted().length).toBe(1), 45_000);
    try {
      const { emitted } = await readCounter(`, history: ${history}`);
      server.send({ count: 3 });
      await agent.until(() => emitted().length === 3 && hasAll(emitted()), 'values are delivered');
      await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 0, 'the buffer is empty');
      await agent.end('SIGTERM');
      const later = recordCounter();
      server.send({ behind: 0, count: 1 });
      await vi.waitFor(() => expect(later.emitted().length).toBe(1), 45_000);
      server.send({ past: 3_600, step: 1_000 });
      await agent.start();
      await agent.until(() => agent.logged('opcua.gap_filled').length === 1, 'the gap is filled');
      const { values } = agent.logged('opcua.gap_filled')[0] as { values: number };
      expect(Math.abs(values - filled)).toBeLessThanOrEqual(1);
      expect(agent.logged('opcua.gap')).toHaveLength(reported);
      const { duplicated, missing } = compare(later.emitted());
      expect(duplicated).toEqual([]);
      if (reported === 0) await agent.until(() => hasAll(later.emitted()), `${missing.length} values are delivered`);
    } finally {
      server.send({ behind: 0, transfer: true });
    }
  });

  it('delivers live values while the history does not respond', async () => {
    server.send({ transfer: false });
    try {
      const { emitted } = await countWhileStopped('SIGTERM', 10);
      server.send({ holdHistory: true });
      await agent.start();
      await agent.until(async () => (await report()).connected === true, 'the server is connected');
      server.send({ count: 1_000_000 });
      await untilMore(emitted);
      expect(agent.logged('opcua.gap_filled')).toEqual([]);
      server.send({ holdHistory: false });
      await agent.until(() => agent.logged('opcua.gap_filled').length === 1, 'the gap is filled');
      await expectAllOnce(emitted);
    } finally {
      server.send({ count: 0, holdHistory: false, transfer: true });
    }
  });

  it('fills the gap from the history after the server has restarted', async () => {
    const { emitted } = await countWhileStopped('SIGTERM', 10);
    await server.kill();
    await server.start();
    await agent.start();
    await untilMoreOnce(emitted);
    expect(agent.logged('opcua.gap_filled')).toHaveLength(1);
  });

  it('fills the gap from the history after a queue overflow', async () => {
    trust();
    configure('security: Basic256Sha256', [value('count', 'Count', ', queue: 3')]);
    await agent.start();
    await agent.until(() => stored('count').length > 0, 'the first value is delivered');
    const { emitted } = recordCounter();
    server.send({ count: 3 });
    await agent.until(() => emitted().length === 3 && hasAll(emitted()), 'values are delivered');
    await agent.end('SIGKILL');
    const later = recordCounter();
    server.send({ count: 30 });
    await vi.waitFor(() => expect(later.emitted().length).toBe(30), 45_000);
    await agent.start();
    await untilMoreOnce(later.emitted);
    expect(agent.logged('opcua.overflow')).toHaveLength(1);
    expect(agent.logged('opcua.gap_filled')).toHaveLength(1);
  });

  it.each([true, false])('handles messages discarded by the server (history: %s)', async (hasHistory) => {
    server.send({ history: hasHistory });
    try {
      const { disk, emitted } = await countUntilStoreRejects();
      const later = recordCounter();
      await agent.until(() => later.emitted().length >= 20, 'the server counts on');
      server.send({ discard: true });
      await agent.end('SIGKILL');
      disk.order('');
      await agent.start(disk.env);
      if (hasHistory) await untilMoreOnce(later.emitted);
      else await untilMore(emitted);
      expect(agent.logged('opcua.lost').length).toBe(hasHistory ? 0 : 1);
      expect(compare(later.emitted()).duplicated).toEqual([]);
    } finally {
      server.send({ count: 0, history: true });
    }
  });

  it('resumes with the current values if the server cannot transfer a subscription and has no history', async () => {
    server.send({ history: false });
    const { emitted } = await readCounter();
    const count = async (numbers: number) => {
      const from = emitted().length;
      server.send({ count: numbers });
      await vi.waitFor(() => expect(emitted().length).toBe(from + numbers), 45_000);
    };
    await count(3);
    await agent.until(() => hasAll(emitted()), 'values are delivered');
    server.send({ transfer: false });
    try {
      expect(await agent.end('SIGTERM')).toBe(0);
      await count(3);
      await agent.start();
      await agent.until(() => hasAll(emitted().slice(-1)), 'the current value is delivered');
      await count(3);
      await agent.until(() => hasAll(emitted().slice(-3)), 'later values are delivered');
      // As stated in docs/guide/sources.md: all changes during the gap are lost, except for the latest.
      expect(compare(emitted())).toEqual({ ...NO_DIFFERENCE, missing: emitted().slice(3, 5) });
    } finally {
      server.send({ transfer: true, history: true });
    }
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  it('commits received values at shutdown if the server cannot resend them', async () => {
    // An anonymous user, so that the server ends the subscription with its session; the commit interval is long.
    configure('security: None', [COUNT], { COMMIT_INTERVAL: '60s' });
    await agent.start();
    await agent.until(async () => (await report()).connected === true, 'the server is connected');
    const { emitted } = recordCounter();
    server.send({ count: 5 });
    const accepted = async () => (await report()).waiting_for_commit + (await report()).stored;
    await agent.until(async () => emitted().length === 5 && (await accepted()) >= 5, 'the values are accepted');
    expect(await agent.end('SIGTERM')).toBe(0);
    configure('security: None', [COUNT]);
    await agent.start();
    await agent.until(() => hasAll(emitted()), 'every value is delivered');
    expect(compare(emitted())).toMatchObject({ missing: [], unexpected: [] });
    expect(await agent.end('SIGTERM')).toBe(0);
  });

  /** Starts an agent whose store accepts a few values and then rejects the next ones. */
  async function countUntilStoreRejects() {
    trust();
    configure('security: Basic256Sha256', [COUNT]);
    const disk = faultyDisk();
    await agent.start(disk.env);
    await agent.until(() => stored('count').length > 0, 'the first value is delivered');
    const { emitted } = recordCounter();
    server.send({ count: 1_000_000 });
    await agent.until(() => emitted().length >= 3 && hasAll(emitted().slice(0, 3)), 'values are delivered');
    disk.order(`refuse_writes ${constants.errno.ENOSPC}`);
    await agent.until(() => agent.logged('source.store_refused').length > 0, 'the store rejects values');
    return { disk, emitted };
  }

  it('delivers each value once if a rejected commit is accepted at shutdown', async () => {
    const { disk, emitted } = await countUntilStoreRejects();
    disk.order('');
    // Rejected values are retried after five seconds; until then, the store would accept newer values.
    const from = emitted().length;
    await agent.until(() => emitted().length >= from + 20, 'later values are delivered');
    expect(await agent.end('SIGTERM')).toBe(0);
    await agent.start();
    await expectAllOnce(emitted);
  });

  it('delivers unstored values if the connection fails before the agent is killed', async () => {
    const { disk, emitted } = await countUntilStoreRejects();
    server.send({ expire: true });
    await agent.until(() => agent.logged('opcua.away_over').length > 0, 'the server is connected again');
    const from = emitted().length;
    await agent.until(() => emitted().length >= from + 10, 'the server continues counting');
    await agent.end('SIGKILL');
    disk.order('');
    await agent.start(disk.env);
    server.send({ count: 0 });
    await agent.until(() => hasAll(emitted()), 'every value is delivered');
    expect(compare(emitted())).toMatchObject({ missing: [], unexpected: [] });
    expect(await agent.end('SIGTERM')).toBe(0);
  });
});
