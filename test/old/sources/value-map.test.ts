import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import type { TestedReport } from '../../../src/sources/source-test.ts';
import type { SourceReport } from '../../../src/sources/status.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { StrictBroker } from '../../unit/broker/strict-broker.ts';
import { runVerb } from '../commands/verb-run.ts';

let sandbox: Sandbox;
let broker: StrictBroker;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  broker = new StrictBroker();
  agent = new AgentProcess(sandbox.url);
});
afterEach(async () => {
  await agent.dispose();
  await broker.stop();
  await sandbox.stop();
});

const numbers = (key: string) => sandbox.values.list(881, key).map(({ value }) => value);
const delivered = (key: string, wanted: number[]) =>
  agent.until(() => JSON.stringify(numbers(key)) === JSON.stringify(wanted), `${key} is delivered`);

describe('text values', () => {
  it('from brokers, files, programs and pushes are delivered as the numbers in map', async () => {
    const port = await broker.start();
    const folder = join(agent.folder, 'in');
    mkdirSync(folder);
    const map = 'map: { RUN: 1, OFF: 0 }';
    agent.write(sandbox.url, {
      tags: `sources:
  plant: { mqtt: "mqtt://127.0.0.1:${port}" }
  drop: { csv: ${folder}, settle: 50ms, time_column: time }
  printed: { exec: [sh, -c, 'echo T-1 printed=\\"RUN\\",phase=10 1790000000000000000; sleep 1000'], format: lines }
tags:
  T-1:
    asset: 881
    values:
      message: { from: plant, topic: site/state, at: /state, ${map}, scale: 10 }
      file: { from: drop, column: State, ${map} }
      printed: { from: printed, ${map}, offset: 5 }
      phase: { from: printed, map: { 10: 1, 20: 2 } }
      pushed: { ${map} }
`,
    });
    writeFileSync(
      join(folder, 'a.csv'),
      'time,State\n2026-11-21T00:00:00Z,RUN\n2026-11-21T00:01:00Z,STOP\n2026-11-21T00:02:00Z,OFF\n',
    );
    await agent.start();
    await agent.until(() => broker.filters.length === 1, 'the agent has subscribed');
    for (const state of ['RUN', 'STOP', 'OFF']) broker.publish('site/state', `{"state":"${state}"}`);
    const value = (text: unknown) => [{ tag: 'T-1', key: 'pushed', value: text }];
    expect((await agent.push(value('RUN'))).status).toBe(204);
    const rejected = await agent.push(value('STOP'));
    expect(rejected.status).toBe(422);
    expect(rejected.text).toContain('\\"STOP\\" is not in map (known: \\"RUN\\", \\"OFF\\")');
    await delivered('message', [10, 0]);
    await delivered('file', [1, 0]);
    await delivered('printed', [6]);
    await delivered('phase', [1]);
    await delivered('pushed', [1]);
    expect(agent.logged('source.not_a_number')).toMatchObject([
      { source: 'plant', value: 'T-1 message', error: '"STOP" is not in map (known: "RUN", "OFF")' },
    ]);
    const plant = ((await agent.status()).sources as SourceReport[]).find(({ name }) => name === 'plant');
    expect(plant).toMatchObject({ errors: 1, problem: null });
    const testing = runVerb(['sources', 'test', 'plant', 'drop', '--json', '--wait', '20s', '--config', agent.config]);
    const publishing = setInterval(() => broker.publish('site/state', '{"state":"RUN"}'), 200);
    const tested = JSON.parse((await testing).stdout) as TestedReport[];
    clearInterval(publishing);
    expect(tested.map(({ key, raw, value }) => [key, raw, value])).toEqual([
      ['message', 'RUN', 10],
      ['file', 'OFF', 0],
    ]);
    expect(await agent.end('SIGTERM')).toBe(0);
  });
});
