import { totalmem, uptime } from 'node:os';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AgentProcess } from '../harness/agent-process.ts';
import { Platform } from '../harness/platform.ts';

const READINGS = {
  load: 'load1',
  cpu: 'cpu_share',
  total: 'memory_total',
  free: 'memory_available',
  disk: '"disk_free:/"',
  received: 'network_rx',
  uptime: 'uptime',
  own: 'agent_memory',
};
/** Lowest and highest value of each shape. */
const SHAPES = { sine: [0, 100], ramp: [-5, 5], walk: [18, 24], noise: [0, 1], step: [0, 3] } as const;

let platform: Platform;
let agent: AgentProcess;

beforeAll(async () => {
  platform = await Platform.start();
  const readings = Object.entries(READINGS).map(([key, reading]) => `${key}: { from: self, reading: ${reading} }`);
  const shapes = Object.entries(SHAPES).map(
    ([key, [low, high]]) => `${key}: { from: play, shape: ${key}, low: ${low}, high: ${high} }`,
  );
  agent = new AgentProcess(platform.url, {
    tags: `sources:
  self: { host: true, every: 100ms }
  play: { simulate: true, every: 50ms, period: 1s }
tags:
  H: { asset: 881, values: { ${readings.join(', ')} } }
  S:
    asset: 882
    values: { ${shapes.join(', ')}, still: { from: play, shape: sine, deadband: 1000 }, changes: { from: play, shape: step, low: 0, high: 1, on_change: true } }
`,
    // Long enough for a kill between a premature count and its commit.
    env: { COMMIT_INTERVAL: '300ms', POST_INTERVAL: '100ms' },
  });
  await agent.start();
});
afterAll(async () => {
  await agent?.dispose();
  await platform?.stop();
});

describe('host source', () => {
  it('delivers plausible readings of this machine', async () => {
    const of = (key: string) => platform.stored(881, key).map(({ value }) => value);
    await agent.until(() => Object.keys(READINGS).every((key) => of(key).length > 2), 'every reading arrives');
    expect(of('total').at(-1)).toBe(totalmem());
    expect(of('free').at(-1)).toBeLessThan(totalmem());
    expect(Math.max(...of('uptime'))).toBeLessThanOrEqual(uptime() + 1);
    for (const key of ['load', 'cpu', 'disk', 'received']) expect(Math.min(...of(key))).toBeGreaterThanOrEqual(0);
    expect(Math.min(...of('own'), ...of('free'))).toBeGreaterThan(0);
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
    const changes = of('changes');
    expect(changes.filter((value, at) => at > 0 && value === changes[at - 1])).toEqual([]);
  });

  it('delivers each counted value across kill -9', async () => {
    const SOURCES = {
      self: [881, Object.keys(READINGS)],
      play: [882, [...Object.keys(SHAPES), 'still', 'changes']],
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
