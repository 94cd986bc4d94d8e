import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import type { TestedReport } from '../../../src/sources/source-test.ts';
import type { SourceReport } from '../../../src/sources/status.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { StrictBroker } from '../../unit/broker/strict-broker.ts';
import { runVerb } from '../commands/verb-run.ts';

/** Diagnosis of values that never arrive although their source is connected. */
let sandbox: Sandbox;
let broker: StrictBroker;
let agent: AgentProcess;
let publishing: NodeJS.Timeout;

beforeEach(async () => {
  sandbox = new Sandbox({});
  await sandbox.start();
  broker = new StrictBroker();
});
afterEach(async () => {
  clearInterval(publishing);
  await agent.dispose();
  await broker.stop();
  await sandbox.stop();
});

const verb = (...args: string[]) => runVerb([...args, '--config', agent.config]);
const sources = async () => (await agent.status()).sources as SourceReport[];
const missing = async (name: string) => (await sources()).find((one) => one.name === name)?.missing;

async function startWith(source: string, values: string): Promise<void> {
  agent = new AgentProcess(sandbox.url);
  const tags = `sources: { plant: ${source.replace('FOLDER', agent.folder)} }\ntags: { FT-101: { asset: 881, values: { ${values} } } }\n`;
  agent.write(sandbox.url, { tags });
}

describe('missing values', () => {
  it('are reported with a reason by `sources test`, `status`, `sources ls` and `doctor`', async () => {
    const port = await broker.start();
    const of = (topic: string) => `{ unit: 1, from: plant, topic: ${topic} }`;
    await startWith(
      `{ mqtt: "mqtt://127.0.0.1:${port}", version: 5 }`,
      `flow: ${of('site/flow')}, pressure: ${of('site/presure')}, state: ${of('site/state')}`,
    );
    await agent.start();
    await agent.until(() => broker.filters.length === 3, 'the subscriptions are active');
    publishing = setInterval(() => {
      broker.publish('site/flow', '1');
      broker.publish('site/state', 'ON');
    }, 100);
    const tested = JSON.parse((await verb('sources', 'test', '--wait', '2s', '--json')).stdout) as TestedReport[];
    const problems = Object.fromEntries(tested.map(({ key, problem }) => [key, problem]));
    expect(problems).toEqual({
      flow: null,
      pressure: 'no message within 2 s',
      state: expect.stringMatching(
        /^\d+ readings without a value, latest problem: the payload, "ON", is not a number; for texts, set map in tags.yaml$/,
      ),
    });
    await agent.until(async () => (await missing('plant')) !== null, 'values are missing');
    expect(await missing('plant')).toMatchObject({
      values: 2,
      overdue: false,
      first: [
        { name: 'FT-101 pressure', problem: null },
        { name: 'FT-101 state', problem: expect.stringContaining('"ON", is not a number') },
      ],
    });
    for (const words of [['status'], ['sources', 'ls'], ['doctor']]) {
      const { stdout } = await verb(...words);
      expect(stdout.replaceAll(/\s+/g, ' '), words.join(' ')).toMatch(
        /plant: no value yet for FT-101 pressure, FT-101 state \(\d+ readings without a value, latest problem: the payload, "ON", is not a number; for texts, set map in tags.yaml\), for/,
      );
    }
  });

  it('include values from a program whose output lines are all rejected', async () => {
    await startWith('{ exec: [/bin/sh, FOLDER/print] }', 'flow: { unit: 1, from: plant }');
    writeFileSync(
      join(agent.folder, 'print'),
      'while :; do echo \'{"tag":"FT-101","key":"flw","value":1}\'; sleep 0.1; done\n',
    );
    await agent.start();
    await agent.until(async () => (await sources())[0]?.rejected != null, 'the problem is reported');
    expect((await sources())[0]!.rejected!.problem).toMatch(/^key: .*"flw"/);
    expect((await verb('sources', 'test', '--wait', '1s')).stdout).toContain('flw');
  });

  it('include values from a folder whose files are all rejected', async () => {
    await startWith(
      '{ csv: FOLDER, settle: 50ms, time_column: time, pattern: "*.csv" }',
      'flow: { unit: 1, from: plant, column: n }',
    );
    for (const name of ['a', 'b']) writeFileSync(join(agent.folder, `${name}.csv`), 'when,what\n1,2\n');
    await agent.start();
    await agent.until(async () => (await sources())[0]?.rejected != null, 'the problem is reported');
    await agent.until(async () => (await sources())[0]!.rejected!.count === 2, 'both files are rejected');
    expect((await sources())[0]!.rejected!.problem).toMatch(/^[ab]\.csv: /);
  });
});
