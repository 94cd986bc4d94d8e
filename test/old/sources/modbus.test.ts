import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import type { TestedReport } from '../../../src/sources/source-test.ts';
import type { SourceReport } from '../../../src/sources/status.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { Peer } from '../../e2e/harness/modbus-peer.ts';
import { ManualClock } from '../../unit/doubles/manual-clock.ts';
import { runVerb } from '../commands/verb-run.ts';

const UNITS = [1, 2, 3];
/** Device that takes 700 ms for each response. */
const SLOW = 4;
const SILENT = 9;
const KILLS = 2;
const ASSET_OF = new Map([...UNITS, SLOW, SILENT].map((unit, at) => [unit, 881 + at]));

let sandbox: Sandbox;
let agent: AgentProcess;
let peer: Peer;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  const port = await freePort();
  peer = await Peer.tcp(port);
  await peer.configure({ connections: 1 });
  await peer.configure({ unit: SLOW, delay: 0.7 });
  await peer.configure({ unit: SILENT, hang: true });
  const source = (unit: number, every: string) =>
    `  u${unit}: { modbus: "tcp://127.0.0.1:${port}", unit: ${unit}, every: ${every}, timeout: ${unit === SLOW ? '2s' : '200ms'} }\n`;
  const tag = (unit: number) =>
    `  T-${unit}: { asset: ${ASSET_OF.get(unit)}, values: { counter: { unit: 1, from: u${unit}, register: holding 10, type: uint32 } } }\n`;
  const units = [...ASSET_OF.keys()];
  agent = new AgentProcess(sandbox.url, {
    tags: `sources:\n${units.map((unit) => source(unit, unit === SLOW ? '1s' : '50ms')).join('')}tags:\n${units.map(tag).join('')}`,
    env: { COMMIT_INTERVAL: '500ms' },
  });
});
afterEach(async () => {
  await agent.dispose();
  await peer.end();
  await sandbox.stop();
});

/** Values of a counter on the platform. */
function delivered(unit: number): number[] {
  return sandbox.values.list(ASSET_OF.get(unit)!, 'counter').map(({ value }) => value);
}

describe('Modbus source for five devices behind a single-connection gateway', () => {
  it('delivers each value once, even if the agent is killed during a poll', async () => {
    const chance = new ManualClock(0, 3);
    let counted = 0;
    for (let round = 0; round < KILLS; round++) {
      await agent.start();
      const before = delivered(1).length;
      await agent.until(() => delivered(1).length > before + 5, 'values are delivered after the start');
      await new Promise((resolve) => setTimeout(resolve, chance.random() * 500));
      counted += await agent.metric('tagferry_values_ingested_total');
      await agent.end('SIGKILL');
    }
    await agent.start();
    await agent.until(() => delivered(SLOW).length > 2, 'values of the slow device are delivered');
    expect(await agent.end('SIGTERM')).toBe(0);
    await agent.start();
    await agent.until(
      async () => (await agent.metric('tagferry_buffer_oldest_age_seconds')) < 5,
      'the backlog is delivered',
    );
    await agent.until(() => [...UNITS, SLOW].flatMap(delivered).length >= counted, 'every counted value is delivered');
    for (const unit of [...UNITS, SLOW]) {
      const stored = delivered(unit);
      const returned = new Set(peer.counted(unit));
      // Missing numbers were not read: at most one consecutive run before each agent exit.
      const sorted = stored.toSorted((a, b) => a - b);
      expect(sorted.filter((n, at) => at > 0 && n > sorted[at - 1]! + 1).length).toBeLessThanOrEqual(KILLS + 1);
      expect({
        duplicated: stored.length - new Set(stored).size,
        unexpected: stored.filter((n) => !returned.has(n)),
      }).toEqual({
        duplicated: 0,
        unexpected: [],
      });
    }
    expect([Math.max(...peer.connections), delivered(SILENT)]).toEqual([1, []]);
  });

  it('reports each device state, and can be tested with or without the agent', async () => {
    await agent.start();
    await agent.until(
      () => [...UNITS, SLOW].every((unit) => delivered(unit).length > 1),
      'values of all responding devices are delivered',
    );
    let sources: SourceReport[] = [];
    // Polled every second with a response time of 700 ms: at half the polls, every second one would be late.
    const isInTime = async () => {
      const ls = await runVerb(['sources', 'ls', '--json', '--config', agent.config]);
      sources = JSON.parse(ls.stdout) as SourceReport[];
      return sources[3]!.stored > sources[3]!.polls_late + 1;
    };
    await agent.until(isInTime, 'the slow device misses fewer polls');
    expect(sources.map(({ name, connected, values }) => [name, connected, values])).toEqual([
      ['u1', true, 1],
      ['u2', true, 1],
      ['u3', true, 1],
      [`u${SLOW}`, true, 1],
      [`u${SILENT}`, false, 1],
    ]);
    const hung = sources[4]!;
    expect(hung.problem).toBe('no response within 200 ms');
    expect((await agent.status()).sources).toMatchObject([{ name: 'u1' }, {}, {}, {}, { connected: false }]);
    expect(await agent.metric(`tagferry_source_connected{source="u${SILENT}"`)).toBe(0);
    expect(await agent.metric('tagferry_source_connected')).toBe(4);
    const table = await runVerb(['sources', 'ls', '--config', agent.config]);
    expect(table.stdout).toMatch(/^u9 +modbus +not connected/m);

    const tested = await runVerb(['sources', 'test', 'u1', 'u9', '--json', '--config', agent.config]);
    const [good, bad] = JSON.parse(tested.stdout) as TestedReport[];
    expect(tested.status).toBe(1);
    expect(good).toMatchObject({ tag: 'T-1', key: 'counter', address: 'unit 1 holding 10', quality: 'good' });
    expect(peer.counted(1)).toContain(good!.raw);
    expect(bad).toMatchObject({
      source: 'u9',
      raw: null,
      problem: expect.stringContaining('no response within 200 ms'),
    });
    expect(Math.max(...peer.connections)).toBe(1);
    expect((await runVerb(['sources', 'test', 'nobody', '--config', agent.config])).status).toBe(2);

    const scanned = await runVerb(['sources', 'scan', 'u1', '--yes', '--config', agent.config]);
    expect([scanned.status, scanned.stderr]).toEqual([2, expect.stringContaining('cannot be scanned')]);

    await agent.end('SIGTERM');
    const alone = await runVerb(['sources', 'test', 'u2', '--config', agent.config]);
    expect([alone.status, alone.stderr]).toEqual([0, '']);
    expect(alone.stdout).toMatch(/^T-2 +counter +\d+ +\d+ .* good +u2 unit 2 holding 10$/m);
  });
});
