import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AgentProcess } from '../harness/agent-process.ts';
import { OpcuaServer } from '../harness/opcua-server.ts';
import { Platform } from '../harness/platform.ts';
import { runVerb } from '../harness/verb.ts';

const START_MS = 1_700_000_000_000;
const OVEN = 'urn:test:oven;1%';
/** Node ID with the escaped namespace URI. */
const OVEN_NODE = 'nsu=urn:test:oven%3B1%25;s=Flow';
const PRESS = 'urn:test:press';

const server = new OpcuaServer();
let platform: Platform;
let agent: AgentProcess;

interface Report {
  name: string;
  connected: boolean;
  problem: string | null;
  rejected: { count: number } | null;
  warnings: { event: string; problem: string }[];
}

const stored = (key: string) => platform.stored(881, key);
const latest = (key: string) => stored(key).at(-1)?.value;
const node = (name: string) => `node: "ns=1;s=Line1.${name}"`;
const report = async () => ((await agent.status()).sources as Report[]).find(({ name }) => name === 'cell')!;

/** `history`: longest gap that is filled from the history of the server. */
function configure(history: string): void {
  agent.write(platform.url, {
    tags: `sources:
  cell:
    { opcua: "${server.url}", security: Basic256Sha256, user_cert: user.pem, user_key: user-key.pem, every: 50ms, history: ${history} }
  panel: { opcua: "${server.url}", username: reader, password_file: opcua-password }
tags:
  T:
    asset: 881
    values:
      flow: { from: cell, ${node('Flow')}, scale: 2 }
      times: { from: cell, ${node('Flow')}, trigger: timestamp }
      level: { from: cell, ${node('Level')}, deadband: 0.5, writable: { min: 0, max: 10 } }
      running: { from: cell, ${node('Running')} }
      total: { from: cell, ${node('Total')} }
      zone: { from: cell, ${node('Zones')}, index: 2 }
      speed: { from: cell, ${node('Motor')}, member: Speed }
      label: { from: cell, ${node('Name')}, map: { P-1: 7 } }
      count: { from: cell, ${node('Count')}, queue: 5000 }
      limited: { from: cell, ${node('Flow')}, no_value: 9.5, range: [0, 12] }
      unnamed: { from: cell, ${node('Name')}, no_value: P-1, map: { P-1: 7 } }
      slow: { from: cell, ${node('Slow')}, queue: 6000 }
      nowhere: { from: cell, ${node('Nowhere')} }
      nowhere2: { from: cell, ${node('Nowhere2')} }
      nowhere3: { from: cell, ${node('Nowhere3')}, member: Speed }
      oven: { from: cell, node: "${OVEN_NODE}" }
      panel: { from: panel, ${node('Total')} }
      third: { from: cell, node: "ns=3;s=Flow" }
`,
    // Long enough for a kill between a premature acknowledgement and its commit.
    env: { COMMIT_INTERVAL: '500ms', POST_INTERVAL: '100ms', WRITES: 'on' },
  });
}

/** Process IDs of the OPC UA readers, which are children of the agent. */
function readers(): number[] {
  const children = readFileSync(`/proc/${agent.pid}/task/${agent.pid}/children`, 'utf8').trim().split(' ').map(Number);
  return children.filter((pid) => commandOf(pid).includes('opcua/main.'));
}

/** Returns the command line of a process; empty if it has ended. */
function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}

/** Values of the counter from now on. */
function record(): () => { value: number; timestampMs: number }[] {
  const from = server.emitted().length;
  return () =>
    server
      .emitted()
      .slice(from)
      .map(({ value, timeMs }) => ({ value, timestampMs: timeMs }));
}

const hasAll = (sent: readonly { value: number; timestampMs: number }[]) =>
  platform.compare(881, 'count', sent).missing.length === 0;

/** Waits until the server has emitted further values and the platform has them. */
async function untilMore(emitted: ReturnType<typeof record>): Promise<void> {
  const from = emitted().length;
  const isDelivered = () => emitted().length >= from + 3 && hasAll(emitted().slice(from, from + 3));
  await agent.until(isDelivered, 'further values arrive');
}

/** Every emitted value arrives with its time, and nothing else. */
async function expectAll(emitted: ReturnType<typeof record>): Promise<void> {
  server.send({ count: 0 });
  await agent.until(() => hasAll(emitted()), 'every emitted value arrives');
  const all = server.emitted();
  const valueAt = new Map(all.map(({ value, timeMs }) => [timeMs, value]));
  // The initial value of the node has the time at which the server started.
  const wrong = stored('count').filter(({ timestampMs, value }) => value !== 0 && valueAt.get(timestampMs) !== value);
  expect(wrong).toEqual([]);
}

beforeAll(async () => {
  platform = await Platform.start();
  agent = new AgentProcess(platform.url);
  await server.start(OVEN, PRESS);
  server.send({ set: { Flow: 12.5, [`${OVEN} Flow`]: 11, [`${PRESS} Flow`]: 22 }, time: START_MS, maxOperations: 5 });
  const [certificate, key] = ['user.pem', 'user-key.pem'].map((name) => join(agent.config, name)) as [string, string];
  const request = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-subj', '/CN=reader', '-days', '3650'];
  execFileSync('openssl', [...request, '-keyout', key, '-out', certificate], { stdio: 'ignore' });
  writeFileSync(join(agent.config, 'opcua-password'), 'swordfish\n', { mode: 0o600 });
  configure('0');
  await agent.start();
  const rejectedBecause = async (problem: RegExp) => problem.test((await report()).problem ?? '');
  await agent.until(
    () => rejectedBecause(/certificate is not trusted .*valid until 2020-12-31/),
    'the agent rejects it',
  );
  const [, fingerprint] = /SHA-1 ([0-9a-f]{40})/.exec((await report()).problem ?? '')!;
  const trusted = await runVerb(agent, 'sources', 'trust', 'cell', '--fingerprint', fingerprint!);
  expect(trusted.stdout).toMatch(/Basic256Sha256 SignAndEncrypt: .*UserName/);
  await agent.until(() => rejectedBecause(/rejected the user/), 'the server rejects the user');
  server.send({ trust: certificate });
  await agent.until(() => stored('flow').length > 0, 'the first value arrives');
});
afterAll(async () => {
  await agent?.dispose();
  await server.dispose();
  await platform?.stop();
});

describe('OPC UA source', () => {
  it('trusts an expired certificate, and uses the configured address instead of an unknown host name', async () => {
    expect(await report()).toMatchObject({ connected: true, certificate_expires: '2020-12-31T00:00:00.000Z' });
  });

  it('delivers values with their timestamps and status codes, and reports missing nodes', async () => {
    for (const [at, value, status] of [
      [1, 12.5, 'Good'],
      [2, 7.5, 'UncertainSensorNotAccurate'],
      [3, 8.5, 'BadSensorFailure'],
      [4, 9.5, 'Good'],
    ] as const) {
      const timestampMs = START_MS + at * 1_000;
      server.send({ set: { Flow: value }, status, time: timestampMs });
      await agent.until(() => stored('times').some((one) => one.timestampMs === timestampMs), `value ${at} arrives`);
    }
    await agent.until(() => latest('flow') === 19, 'the value arrives under its other name');
    expect(stored('flow').map(({ value, timestampMs, status }) => [value, timestampMs - START_MS, status])).toEqual([
      [25, 0, 'good'],
      [15, 2_000, 'uncertain'],
      [17, 3_000, 'bad'],
      [19, 4_000, 'good'],
    ]);
    const others = ['label', 'speed', 'panel'];
    await agent.until(() => others.every((key) => latest(key) !== undefined), 'the other values arrive');
    expect(['running', 'total', 'panel', 'zone', 'speed', 'label', 'oven', 'third'].map(latest)).toEqual([
      1,
      2 ** 32 + 5,
      2 ** 32 + 5,
      3.5,
      10,
      7,
      11,
      11,
    ]);
    const { connected, problem } = await report();
    const unknown = 'the server does not have this node (BadNodeIdUnknown)';
    expect([connected, problem?.split('; ')]).toEqual([
      true,
      ['nowhere', 'nowhere2', 'nowhere3'].map((key) => `T ${key}: ${unknown}`),
    ]);
    expect(agent.logged('opcua.refused')).toHaveLength(1);
    expect(stored('nowhere')).toEqual([]);
  });

  it('rejects and counts values that mean "no value" or are out of range', async () => {
    await agent.until(() => stored('limited').length >= 2, 'the other values arrive');
    expect(stored('limited').map(({ value }) => value)).toEqual([7.5, 8.5]);
    const errorsOf = (event: string) => agent.logged(event).map(({ value, error }) => `${value}: ${error}`);
    expect(errorsOf('source.out_of_range')).toEqual(['T limited: 12.5 is outside range [0, 12]']);
    expect(errorsOf('source.no_value')).toContain('T unnamed: P-1 means "no value" (no_value)');
    expect(stored('unnamed')).toEqual([]);
    expect((await report()).rejected?.count).toBe(3);
  });

  it('obeys the operation limits of the server, and reports slower sampling and smaller queues', async () => {
    expect(server.excess()).toEqual([]);
    expect((await report()).warnings).toMatchObject([
      {
        event: 'opcua.revised',
        problem: 'T slow: sampled every 500 ms instead of 50 ms, 5000 of 6000 values queued',
      },
    ]);
    expect(agent.logged('opcua.revised')).toHaveLength(1);
  });

  it('replaces the timestamps of a server whose clock is not set', async () => {
    const beforeMs = Date.now();
    server.send({ set: { Slow: 5 }, time: 5_000 });
    await agent.until(() => latest('slow') === 5, 'the value arrives');
    expect(stored('slow').at(-1)!.timestampMs).toBeGreaterThanOrEqual(beforeMs);
    expect(agent.logged('source.time_replaced')).toMatchObject([{ error: expect.stringContaining('1970-01-01') }]);
  });

  it('lists, tests and writes values', async () => {
    const [scanned, tested, written, wrong] = await Promise.all([
      runVerb(agent, 'sources', 'scan', 'cell', 'Line1/Pump', '--yes'),
      runVerb(agent, 'sources', 'test', 'panel', '--json'),
      runVerb(agent, 'write', 'T', 'level', '7.25', '--yes'),
      runVerb(agent, 'write', 'T', 'level', '10.5', '--yes'),
    ]);
    const lines = scanned.stdout.replaceAll(/nsu=urn:[^;]+/g, '…');
    expect(lines).toMatch(/state: \{ from: cell, node: "…;s=Line1\.State" \} +# Line1\/Pump\/State = 2\n/);
    expect(lines).not.toContain('Line1.Name');
    expect(JSON.parse(tested.stdout)).toMatchObject([
      { key: 'panel', raw: 2 ** 32 + 5, address: 'ns=1;s=Line1.Total', quality: 'good', problem: null },
    ]);
    if (process.getuid!() === 0) {
      expect(written.stdout).toContain('requested 7.25, read back 7.25)');
      expect(wrong.stderr).toContain('10.5 is not within 0 to 10');
    } else {
      expect(written.stderr).toContain('only root can write values');
      server.send({ set: { Level: 7.25 } });
      await agent.until(() => latest('level') === 7.25, 'the level arrives');
    }
    // The server applies the dead band.
    server.send({ set: { Level: 7.5 } });
    server.send({ set: { Flow: 1 }, time: START_MS + 5_000 });
    await agent.until(() => latest('flow') === 2, 'a later value arrives');
    server.send({ set: { Level: 9 } });
    await agent.until(() => latest('level') === 9, 'a level outside the dead band arrives');
    expect(stored('level').map(({ value }) => value)).toEqual([3, 7.25, 9]);
  });

  it('acknowledges no value before it is on disk, and delivers each value with its time across kill -9', async () => {
    server.send({ count: 1_000_000 });
    const emitted = record();
    await untilMore(emitted);
    const before = server.acknowledged().length;
    await agent.until(() => server.acknowledged().length > before + 3, 'values are acknowledged');
    server.send({ expire: true });
    await agent.until(async () => !(await report()).connected, 'the session ends');
    await agent.end('SIGKILL');
    await agent.start();
    await untilMore(emitted);
    await expectAll(emitted);
    // The subscription continued, so no value came from elsewhere.
    expect([...agent.logged('opcua.lost'), ...agent.logged('opcua.gap')]).toEqual([]);
  });

  it('discards and reports a message that is too large, and continues with a new subscription', async () => {
    const before = readers();
    server.send({ flood: 200_000, set: { Flow: 2 } });
    await agent.until(() => agent.logged('opcua.oversized').length > 0, 'the message is reported');
    server.send({ set: { Flow: 77 } });
    await agent.until(() => latest('flow') === 154, 'a later value arrives');
    expect(agent.logged('opcua.oversized')).toHaveLength(1);
    expect(readers()).toEqual(before);
  });

  it('delivers the values that only the history contains after a kill -9 of agent and server', async () => {
    server.send({ count: 1_000_000 });
    configure('1d');
    const reloads = agent.logged('config.reloaded').length;
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('config.reloaded').length > reloads, 'the reload is accepted');
    await agent.until(async () => (await report()).connected, 'the server is connected again');
    const emitted = record();
    await untilMore(emitted);
    await agent.end('SIGKILL');
    await server.kill();
    await server.start(OVEN, PRESS);
    server.send({ set: { [`${OVEN} Flow`]: 11, [`${PRESS} Flow`]: 22 }, count: 1_000_000 });
    // Values that the server emits meanwhile are only in its history.
    await agent.start();
    await agent.until(() => agent.logged('opcua.gap_filled').length > 0, 'the history is read');
    await expectAll(emitted);
  });

  it('reports a stopped server, and delivers each value, also from the history, after the server restarts', async () => {
    server.send({ count: 1_000_000 });
    const emitted = record();
    await untilMore(emitted);
    await server.kill();
    await agent.until(() => agent.logged('opcua.away').length > 0, 'the loss is reported');
    await agent.until(async () => !(await report()).connected, 'the state reports the loss');
    await server.start(PRESS, OVEN);
    server.send({ set: { [`${OVEN} Flow`]: 12, [`${PRESS} Flow`]: 23 }, holdHistory: true, count: 1_000_000 });
    await agent.until(async () => (await report()).connected, 'the server is connected again');
    const filled = agent.logged('opcua.gap_filled').length;
    await untilMore(record());
    expect(agent.logged('opcua.gap_filled')).toHaveLength(filled);
    server.send({ holdHistory: false });
    await expectAll(emitted);
    await agent.until(() => latest('oven') === 12, 'the node is read in its new namespace');
    const { connected, problem } = await report();
    expect([connected, problem]).toEqual([true, expect.stringContaining(`3 was ${OVEN} and is now ${PRESS}`)]);
    expect(stored('third').filter(({ value }) => value !== 11)).toEqual([]);
    expect(agent.logged('opcua.namespaces_changed').filter(({ source }) => source === 'cell')).toHaveLength(1);
  });
});
