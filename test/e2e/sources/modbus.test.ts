// Requires: pymodbus.server, socat
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AgentProcess } from '../harness/agent-process.ts';
import { Peer, SerialPair } from '../harness/modbus-peer.ts';
import { Platform } from '../harness/platform.ts';
import { runVerb } from '../harness/verb.ts';

/** Key, members and expected value of each value of the register map. */
const MAP = [
  ['mark', 'holding 40000, type: uint32', 0x53756e53],
  ['modicon', '40151', 150],
  ['watts', 'holding 40004, type: float32', 1234.5],
  ['swapped', 'holding 40006, type: float32, byte_order: CDAB', 1234.5],
  ['energy', 'holding 40008, type: uint64, scale: 0.001, offset: 1', 9_876_544.21],
  ['bit', 'holding 40003, bit: 1', 1],
  ['clear', 'holding 40003, bit: 2', 0],
  ['range', 'holding 40003, bit: 4-7', 4],
  ['bytes', 'holding 40003, byte_order: BADC', 66 * 256],
  ['input', '300151', 150],
  ['bcd', 'holding 300, type: bcd16', 1234],
  ['long', 'holding 301, type: bcd32', 123_456],
  ['text', 'holding 310, type: string, length: 8', 123.5],
  ['state', 'holding 314, type: string, length: 4, map: { RUN: 7 }', 7],
  ['scaled', 'holding 320, scale_register: holding 321', 234.6],
] as const;
const COUNTERS = ['tcp', 'rtu'] as const;

let platform: Platform;
let agent: AgentProcess;
let folder: string;
let pair: SerialPair;
let peers: Record<(typeof COUNTERS)[number], Peer>;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-modbus-'));
  pair = new SerialPair(folder);
  await pair.plug();
  platform = await Platform.start();
  peers = { tcp: await Peer.tcp(), rtu: await Peer.rtu(pair.theirs) };
  const { port } = peers.tcp;
  const values = MAP.map(([key, register]) => `      ${key}: { from: map, register: ${register} }\n`).join('');
  agent = new AgentProcess(platform.url, {
    tags: `sources:
  tcp: { modbus: "tcp://127.0.0.1:${port}", unit: 1, every: 50ms, timeout: 500ms }
  rtu: { modbus: "rtu:${pair.ours}", unit: 1, every: 50ms }
  other: { modbus: "rtu:${pair.ours}", unit: 2, every: 50ms }
  map: { modbus: "tcp://127.0.0.1:${port}", unit: 2, every: 100ms, timeout: 500ms }
  inverter: { modbus: "tcp://127.0.0.1:${port}", unit: 2, every: 100ms, no_value: sunspec }
tags:
  C:
    asset: 881
    values:
      tcp: { from: tcp, register: holding 10, type: uint32 }
      rtu: { from: rtu, register: holding 10, type: uint32 }
      other: { from: other, register: holding 150 }
  M:
    asset: 882
    values:
${values}      beyond: { from: map, register: holding 40050 }
      wrong: { from: map, register: holding 201 }
  I:
    asset: 883
    values:
      power: { from: inverter, register: holding 320, type: int16, scale_register: holding 321, range: [0, 500] }
      none: { from: inverter, register: holding 322, type: int16, scale: 0.1 }
      alarm: { from: inverter, register: holding 321, bit: 0 }
      hot: { from: inverter, register: holding 320, scale: 0.1, range: [-40, 125] }
`,
    // Long enough for a kill between a premature count and its commit.
    env: { COMMIT_INTERVAL: '300ms', POST_INTERVAL: '100ms' },
  });
  await agent.start();
});
afterAll(async () => {
  await agent?.dispose();
  await Promise.all(Object.values(peers ?? {}).map((peer) => peer.end()));
  await pair?.unplug();
  await platform?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const delivered = (key: string) => platform.stored(881, key).map(({ value }) => value);
const ingested = (source: string) => agent.metric(`tagferry_values_ingested_total{source="${source}"`);

async function reportOf(name: string) {
  const sources = (await agent.status()).sources as {
    name: string;
    problem: string | null;
    rejected: { count: number } | null;
  }[];
  return sources.find((source) => source.name === name);
}

async function problemOf(name: string): Promise<string> {
  return (await reportOf(name))?.problem ?? '';
}

async function untilMore(...keys: readonly string[]): Promise<void> {
  const before = keys.map((key) => delivered(key).length);
  await agent.until(() => keys.every((key, at) => delivered(key).length > before[at]! + 2), 'values are delivered');
}

describe('Modbus source', () => {
  it('reads all types, byte orders and bits, and scales them', async () => {
    const latest = (key: string) => platform.stored(882, key).at(-1)?.value;
    await agent.until(() => MAP.every(([key]) => latest(key) !== undefined), 'every value of the map arrives');
    const found = Object.fromEntries(MAP.map(([key]) => [key, latest(key)]));
    expect(found).toEqual(Object.fromEntries(MAP.map(([key, , value]) => [key, expect.closeTo(value, 6)])));
  });

  it('reports registers that the device rejects, and reads the others', async () => {
    await agent.until(async () => (await problemOf('map')).includes('wrong'), 'the state names a rejected register');
    await agent.until(() => agent.logged('modbus.unreadable').length > 0, 'the rejection is logged');
    const before = platform.stored(882, 'input').length;
    await agent.until(() => platform.stored(882, 'input').length > before + 2, 'the other registers are read');
    expect([...platform.stored(882, 'wrong'), ...platform.stored(882, 'beyond')]).toEqual([]);
  });

  it('rejects and reports codes for "no value" and out-of-range values', async () => {
    const before = platform.stored(883, 'power').length;
    await agent.until(() => platform.stored(883, 'power').length > before + 2, 'the other values are read');
    expect(new Set(platform.stored(883, 'power').map(({ value }) => value))).toEqual(new Set([234.6]));
    expect(['none', 'alarm', 'hot'].flatMap((key) => platform.stored(883, key))).toEqual([]);
    const { stdout } = await runVerb(agent, 'sources', 'test', '--json', 'inverter');
    expect(JSON.parse(stdout)).toMatchObject([
      { key: 'power', raw: 2346, value: 234.6, problem: null },
      { key: 'none', value: null, problem: expect.stringContaining('-32768 means "no value"') },
      { key: 'alarm', value: null, problem: expect.stringContaining('65535, which means "no value"') },
      { key: 'hot', value: null, problem: expect.stringContaining('234.6 is outside range [-40, 125]') },
    ]);
    expect((await runVerb(agent, 'sources', 'ls')).stdout).toMatch(
      /^inverter: \d+ rejected, latest: I \w+: .*(range|value)/m,
    );
    for (const event of ['source.no_value', 'source.out_of_range']) {
      await agent.until(() => agent.logged(event).length > 0, `${event} is logged`);
      // Repetitions are combined, so there are fewer lines than readings.
      expect(agent.logged(event).length).toBeLessThan((await reportOf('inverter'))!.rejected!.count / 3);
    }
  });

  it('is tested over the line of the running source, which continues to read', async () => {
    const { status, stdout } = await runVerb(agent, 'sources', 'test', '--json', 'map');
    const tested = JSON.parse(stdout) as { key: string; value: number | null; problem: string | null }[];
    expect(status).toBe(1);
    const problems = tested.filter(({ problem }) => problem !== null);
    expect(problems.map(({ key }) => key).sort()).toEqual(['beyond', 'wrong']);
    for (const [key, , value] of MAP) {
      expect(tested.find((one) => one.key === key)?.value).toBeCloseTo(value, 6);
    }
    const before = platform.stored(882, 'input').length;
    await agent.until(() => platform.stored(882, 'input').length > before + 2, 'the running source continues to read');
    expect(Math.max(...peers.tcp.connections)).toBe(1);
    const scanned = await runVerb(agent, 'sources', 'scan', 'map', '--yes');
    expect(scanned).toMatchObject({ status: 2, stderr: expect.stringContaining('cannot be scanned') });
  });

  it('delivers each counted reading of a host and a serial line exactly once across kill -9', async () => {
    /** Number of counted readings of each run, and the last number that the device returned until its end. */
    const runs = COUNTERS.map(() => [{ counted: 0, upTo: 0 }]);
    for (let kill = 0; kill < 2; kill++) {
      await untilMore(...COUNTERS);
      const counted = await Promise.all(COUNTERS.map(ingested));
      await agent.end('SIGKILL');
      for (const [at, key] of COUNTERS.entries()) {
        // The peer confirms after it has reported its earlier responses.
        await peers[key].configure({ connections: 0 });
        runs[at]!.push({ counted: counted[at]!, upTo: peers[key].counted(1).at(-1)! });
      }
      await agent.start();
    }
    await untilMore(...COUNTERS);
    const isWhole = (key: string, list: readonly { counted: number; upTo: number }[]) => {
      const found = delivered(key);
      return list.every(
        ({ counted, upTo }, at) => found.filter((n) => n > (list[at - 1]?.upTo ?? 0) && n <= upTo).length >= counted,
      );
    };
    await agent.until(() => COUNTERS.every((key, at) => isWhole(key, runs[at]!)), 'every counted value is delivered');
    for (const key of COUNTERS) {
      const returned = new Set(peers[key].counted(1));
      const found = delivered(key);
      expect(found.filter((n) => !returned.has(n))).toEqual([]);
      expect(found.length).toBe(new Set(found).size);
    }
  });

  it('reports a device that does not respond, a closed host and an unplugged line, and resumes reading', async () => {
    await peers.tcp.configure({ unit: 1, hang: true });
    await agent.until(() => agent.logged('modbus.silent').length > 0, 'the silent device is reported');
    // The other device of this host is still read.
    const before = platform.stored(882, 'input').length;
    await agent.until(() => platform.stored(882, 'input').length > before, 'the other device is read');
    const isConnected = () => agent.metric('tagferry_source_connected{source="tcp"');
    await agent.until(async () => (await isConnected()) === 0, 'the metric shows the lost connection');
    expect((await runVerb(agent, 'sources', 'ls')).stdout).toMatch(/^tcp +modbus +not connected/m);
    await peers.tcp.configure({ unit: 1, hang: false });
    await agent.until(() => agent.logged('modbus.silent_over').length > 0, 'the device responds');

    await peers.tcp.end();
    await pair.unplug();
    await peers.rtu.end();
    await agent.until(() => agent.logged('modbus.disconnected').length > 1, 'both failures are reported');
    for (const name of COUNTERS) {
      await agent.until(async () => (await problemOf(name)) !== '', `the state names the problem of ${name}`);
    }
    await pair.plug();
    peers = { tcp: await Peer.tcp(peers.tcp.port), rtu: await Peer.rtu(pair.theirs) };
    await untilMore(...COUNTERS, 'other');
    expect(new Set(delivered('other'))).toEqual(new Set([150]));
    await agent.until(() => agent.logged('modbus.disconnected_over').length > 1, 'both recoveries are reported');

    await agent.end('SIGTERM');
    const alone = await runVerb(agent, 'sources', 'test', 'other');
    expect(alone).toMatchObject({ status: 0, stderr: '' });
    expect(alone.stdout).toMatch(/^C +other +150 +150 .* good +other unit 2 holding 150$/m);
  });
});
