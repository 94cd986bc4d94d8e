import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AgentProcess } from '../harness/agent-process.ts';
import { OpcuaServer } from '../harness/opcua-server.ts';
import { Platform } from '../harness/platform.ts';

const START_MS = 1_700_000_000_000;

const server = new OpcuaServer();
let platform: Platform;
let agent: AgentProcess;

interface Report {
  connected: boolean;
  problem: string | null;
}

const stored = (key: string) => platform.stored(881, key);
const node = (name: string) => `node: "ns=1;s=Line1.${name}"`;
const report = async () => ((await agent.status()).sources as Report[])[0]!;

/** `history`: longest gap that is filled from the history of the server. */
function configure(history: string): void {
  agent.write(platform.url, {
    tags: `sources:
  cell: { opcua: "${server.url}", security: Basic256Sha256, every: 20ms, history: ${history} }
tags:
  T:
    asset: 881
    values:
      flow: { from: cell, ${node('Flow')}, scale: 2 }
      running: { from: cell, ${node('Running')} }
      total: { from: cell, ${node('Total')} }
      zone: { from: cell, ${node('Zones')}, index: 2 }
      speed: { from: cell, ${node('Motor')}, member: Speed }
      label: { from: cell, ${node('Name')}, map: { P-1: 7 } }
      count: { from: cell, ${node('Count')}, queue: 5000 }
      nowhere: { from: cell, ${node('Nowhere')} }
`,
    // Long enough for a kill between a premature acknowledgement and its commit.
    env: { COMMIT_INTERVAL: '500ms', POST_INTERVAL: '100ms' },
  });
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
  await server.start();
  server.send({ set: { Flow: 12.5 }, time: START_MS });
  mkdirSync(join(agent.config, 'opcua-trust'));
  writeFileSync(join(agent.config, 'opcua-trust/server.der'), server.certificate);
  configure('0');
  await agent.start();
  await agent.until(() => stored('flow').length > 0, 'the first value arrives');
});
afterAll(async () => {
  await agent?.dispose();
  await server.dispose();
  await platform?.stop();
});

describe('OPC UA source', () => {
  it('delivers values with their timestamps and status codes, and reports missing nodes', async () => {
    for (const [at, value, status] of [
      [1, 7.5, 'UncertainSensorNotAccurate'],
      [2, 8.5, 'BadSensorFailure'],
      [3, 9.5, 'Good'],
    ] as const) {
      const timestampMs = START_MS + at * 1_000;
      server.send({ set: { Flow: value }, status, time: timestampMs });
      await agent.until(() => stored('flow').some((one) => one.timestampMs === timestampMs), `value ${at} arrives`);
    }
    expect(stored('flow').map(({ value, timestampMs, status }) => [value, timestampMs - START_MS, status])).toEqual([
      [25, 0, 'good'],
      [15, 1_000, 'uncertain'],
      [17, 2_000, 'bad'],
      [19, 3_000, 'good'],
    ]);
    const latest = (key: string) => stored(key).at(-1)?.value;
    await agent.until(() => latest('label') !== undefined && latest('speed') !== undefined, 'the other values arrive');
    expect(['running', 'total', 'zone', 'speed', 'label'].map(latest)).toEqual([1, 2 ** 32 + 5, 3.5, 10, 7]);
    await agent.until(() => agent.logged('opcua.refused').length > 0, 'the missing node is logged');
    const { connected, problem } = await report();
    expect([connected, problem]).toEqual([true, expect.stringContaining('nowhere')]);
    expect(stored('nowhere')).toEqual([]);
  });

  it('acknowledges no value before it is on disk, and delivers each value with its time across kill -9', async () => {
    server.send({ count: 1_000_000 });
    const emitted = record();
    await untilMore(emitted);
    const before = server.acknowledged().length;
    await agent.until(() => server.acknowledged().length > before + 3, 'values are acknowledged');
    await agent.end('SIGKILL');
    await agent.start();
    await untilMore(emitted);
    await expectAll(emitted);
    // The subscription continued, so no value came from elsewhere.
    expect([...agent.logged('opcua.lost'), ...agent.logged('opcua.gap')]).toEqual([]);
  });

  it('reports a stopped server, and delivers each value, also from the history, after the server restarts', async () => {
    configure('1d');
    const reloads = agent.logged('config.reloaded').length;
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('config.reloaded').length > reloads, 'the reload is accepted');
    server.send({ count: 1_000_000 });
    const emitted = record();
    await untilMore(emitted);
    await server.kill();
    await agent.until(() => agent.logged('opcua.away').length > 0, 'the loss is reported');
    await agent.until(async () => !(await report()).connected, 'the state reports the loss');
    await server.start();
    server.send({ count: 1_000_000 });
    await untilMore(emitted);
    await expectAll(emitted);
    expect((await report()).connected).toBe(true);
  });
});
