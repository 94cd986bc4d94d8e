// Requires: root, python3
import { mkdirSync } from 'node:fs';
import { totalmem, uptime } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { HOST_READING_NAMES } from '../../../src/contract/host-readings.ts';
import { AgentProcess } from '../harness/agent-process.ts';
import { HungShare } from '../harness/hung-share.ts';
import { Platform } from '../harness/platform.ts';
import { runVerb } from '../harness/verb.ts';

/** Readings that every machine provides. */
const READINGS = HOST_READING_NAMES.filter((name) => name !== 'temperature');
const SHARES = Array.from({ length: 6 }, (_, at) => `share${at}`);
/** Folder that does not exist. `stat` prints its escaped name with more than 1,000 characters. */
const GONE = `/no/${'温度'.repeat(40)}/${'温度'.repeat(9)}`;
/** Lowest and highest value of each shape. */
const SHAPES = { sine: [0, 100], ramp: [-5, 5], walk: [18, 24], noise: [0, 1], step: [0, 3] } as const;

let platform: Platform;
let agent: AgentProcess;
let share: HungShare | undefined;

beforeAll(async () => {
  platform = await Platform.start();
  agent = new AgentProcess(platform.url);
  for (const name of SHARES) mkdirSync(join(agent.folder, name));
  share = await HungShare.mount(SHARES.map((name) => join(agent.folder, name)));
  const readings = [
    ...READINGS.map((name) => `${name}: { from: self, reading: ${name} }`),
    ...SHARES.map((name) => `${name}: { from: self, reading: "disk_free:${join(agent.folder, name)}" }`),
    `gone: { from: self, reading: "disk_free:${GONE}" }`,
  ];
  const shapes = Object.entries(SHAPES).map(
    ([key, [low, high]]) => `${key}: { from: play, shape: ${key}, low: ${low}, high: ${high} }`,
  );
  agent.write(platform.url, {
    tags: `sources:
  self: { host: true, every: 100ms }
  play: { simulate: true, every: 50ms, period: 1s }
tags:
  H: { asset: 881, values: { ${readings.join(', ')} } }
  S:
    asset: 882
    values: { ${shapes.join(', ')}, still: { from: play, shape: sine, deadband: 1000 }, plausible: { from: play, shape: sine, low: -10, high: 10, range: [0, 5] }, changes: { from: play, shape: step, low: 0, high: 1, on_change: true } }
`,
    // Long enough for a kill between a premature count and its commit.
    env: { COMMIT_INTERVAL: '300ms', POST_INTERVAL: '100ms' },
  });
  await agent.start();
});
afterAll(async () => {
  await share?.unmount();
  await agent?.dispose();
  await platform?.stop();
});

describe('host source', () => {
  const of = (key: string) => platform.stored(881, key).map(({ value }) => value);

  it('delivers plausible readings of this machine', async () => {
    await agent.until(() => READINGS.every((name) => of(name).length > 2), 'every reading arrives');
    expect(of('memory_total').at(-1)).toBe(totalmem());
    expect(of('memory_available').at(-1)).toBeLessThan(totalmem());
    expect(Math.max(...of('uptime'))).toBeLessThanOrEqual(uptime() + 1);
    for (const name of READINGS) expect(Math.min(...of(name))).toBeGreaterThanOrEqual(0);
    for (const name of READINGS.filter((each) => each.endsWith('_share'))) {
      expect(Math.max(...of(name))).toBeLessThanOrEqual(1);
    }
    expect(Math.min(...of('agent_memory'), ...of('disk_free'))).toBeGreaterThan(0);
  });

  it('reports six shares that do not respond, delivers all other readings, and stops', async () => {
    const { stdout } = await runVerb(agent, 'sources', 'test', '--json', 'self');
    const tested = JSON.parse(stdout) as { key: string; problem: string | null }[];
    const problemOf = (name: string) => tested.find(({ key }) => key === name)?.problem;
    for (const name of SHARES) expect(problemOf(name)).toMatch(/no response within|does not respond/);
    expect(problemOf('gone')).toContain(`cannot read the file system of ${GONE}: No such file or directory`);
    const before = READINGS.map((name) => of(name).length);
    const isRead = () => READINGS.every((name, at) => of(name).length > before[at]! + 2);
    await agent.until(isRead, 'the other readings arrive');
    expect(SHARES.flatMap(of)).toEqual([]);
    expect(await agent.end('SIGTERM')).toBe(0);
    await agent.start();
  });
});

describe('simulated source', () => {
  it('delivers every shape within its bounds, and only values outside of a dead band', async () => {
    const of = (key: string) => platform.stored(882, key).map(({ value }) => value);
    const isVaried = (key: string) => of(key).length > 30 && new Set(of(key)).size > 1;
    await agent.until(() => Object.keys(SHAPES).every(isVaried), 'values of each shape arrive');
    await agent.until(() => of('changes').length > 1, 'a change arrives');
    for (const [key, [low, high]] of Object.entries(SHAPES)) {
      expect(Math.min(...of(key))).toBeGreaterThanOrEqual(low);
      expect(Math.max(...of(key))).toBeLessThanOrEqual(high);
    }
    expect(of('still')).toHaveLength(1);
    await agent.until(() => of('plausible').length > 0, 'a value within its range arrives');
    expect(of('plausible').filter((value) => value < 0 || value > 5)).toEqual([]);
    const changes = of('changes');
    expect(changes.filter((value, at) => at > 0 && value === changes[at - 1])).toEqual([]);
  });

  it('delivers each counted value across kill -9', async () => {
    const SOURCES = {
      self: [881, READINGS],
      play: [882, [...Object.keys(SHAPES), 'still', 'changes', 'plausible']],
    } as const;
    const times = (source: keyof typeof SOURCES) => {
      const [asset, keys] = SOURCES[source];
      return keys.flatMap((key) => platform.stored(asset, key).map(({ timestampMs }) => timestampMs));
    };
    const names = ['self', 'play'] as const;
    const runs: { counted: number[]; fromMs: number; untilMs: number }[] = [];
    let fromMs = 0;
    for (let kill = 0; kill < 2; kill++) {
      const before = names.map((name) => times(name).length);
      await agent.until(() => names.every((name, at) => times(name).length > before[at]! + 20), 'values arrive');
      const counted = await Promise.all(
        names.map((name) => agent.metric(`tagferry_values_ingested_total{source="${name}"`)),
      );
      await agent.end('SIGKILL');
      const untilMs = Date.now();
      runs.push({ counted, fromMs, untilMs });
      fromMs = untilMs;
      await agent.start();
    }
    const isWhole = ({ counted, fromMs, untilMs }: (typeof runs)[number]) =>
      names.every(
        (name, at) => times(name).filter((timeMs) => timeMs > fromMs && timeMs <= untilMs).length >= counted[at]!,
      );
    await agent.until(() => runs.every(isWhole), 'every counted value arrives');
  });
});
