/** Rules on local values while the platform is unreachable, and across kill -9. */
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readStoppedInbox } from '../../../src/control/stopped-inbox.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { ManualClock } from '../../unit/doubles/manual-clock.ts';
import { wholeLines } from '../../whole-lines.ts';
import { runVerb } from '../commands/verb-run.ts';

let sandbox: Sandbox;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url);
  configure('{ tag: FT-101, key: flow, above: 80, clear_below: 75 }');
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

/** A rule whose actions append a line per run. */
function configure(condition: string): void {
  const line = (word: string) => `[{ run: [/bin/sh, -c, 'echo ${word} "$TAGFERRY_VALUE" >> ${ran()}'] }]`;
  agent.write(sandbox.url, {
    tags: 'tags: { FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12 }, level: {} } } }\n',
    reactions: `reactions:\n  - name: high-flow\n    on: value\n    if: ${condition}\n    do: ${line('raised')}\n    on_clear: ${line('cleared')}\n`,
  });
}

const ran = () => join(agent.folder, 'ran');
const runs = () => wholeLines(ran());

async function push(...values: number[]): Promise<void> {
  for (const value of values) {
    expect((await agent.push([{ tag: 'FT-101', key: 'flow', value }])).status).toBe(204);
  }
}

const events = async () => {
  const { stdout } = await runVerb(['events', 'ls', '--json', '--config', agent.config]);
  return JSON.parse(stdout) as { event_type: string; state: string }[];
};

const valueIn = (payload: string) =>
  (JSON.parse(payload) as { content: { data: { value: number } } }).content.data.value;

describe('rule on a local value', () => {
  it('runs its actions once per crossing while the platform is unreachable', async () => {
    await agent.start();
    await sandbox.goOffline('refuse');
    await push(79, 81, 90, 76, 74, 82);
    await agent.until(() => runs().length === 3, 'three reactions have run');
    expect(runs()).toEqual(['raised 81', 'cleared 74', 'raised 82']);
    await agent.until(async () => (await events()).every(({ state }) => state === 'done'), 'the events are completed');
    expect(await events()).toMatchObject([
      { event_type: 'value_raised', state: 'done' },
      { event_type: 'value_cleared', state: 'done' },
      { event_type: 'value_raised', state: 'done' },
    ]);
    expect(agent.logged('rule.raised')).toHaveLength(2);
  });

  it('keeps its state across kill -9', async () => {
    await agent.start();
    await push(81);
    await agent.until(() => runs().length === 1, 'the reaction has run');
    await agent.end('SIGKILL');
    await agent.start();
    await push(85, 77, 70);
    await agent.until(() => runs().length > 1, 'the reaction has run');
    expect(runs()).toEqual(['raised 81', 'cleared 70']);
  });

  it('runs its actions even if kill -9 immediately follows the acknowledgement', async () => {
    await agent.start();
    await push(81);
    await agent.end('SIGKILL');
    await agent.start();
    await agent.until(() => runs().length > 0, 'the reaction has run');
    expect(runs()[0]).toBe('raised 81');
  });

  it('creates exactly one event per crossing even if the agent is killed repeatedly', {
    timeout: 120_000,
  }, async () => {
    const clock = new ManualClock(0, 7);
    await agent.start();
    await sandbox.goOffline('refuse');
    const expected: string[] = [];
    let isRaised = false;
    for (let push = 0; push < 300; push++) {
      if (push % 60 === 30) void agent.end('SIGKILL').then(() => agent.start());
      const value = Math.round(clock.random() * 200 - 40);
      // Repeated until it is acknowledged, as a careful program would do.
      await agent.until(
        async () => (await agent.push([{ tag: 'FT-101', key: 'flow', value }]).catch(() => undefined))?.status === 204,
        'the value is accepted',
      );
      if (isRaised ? value >= 75 : value <= 80) continue;
      isRaised = !isRaised;
      expected.push(`${isRaised ? 'value_raised' : 'value_cleared'} ${value}`);
    }
    await agent.end('SIGTERM');
    const created = await readStoppedInbox(agent.state, async (inbox) => {
      const listed = (await inbox.list({ limit: 1_000 })).toReversed();
      return Promise.all(
        listed.map(async ({ id, eventType }) => `${eventType} ${valueIn((await inbox.show(id))!.payload)}`),
      );
    });
    expect(expected.length).toBeGreaterThan(50);
    expect(created).toEqual(expected);
  });

  it('can be listed with its state, and tested without running its actions', async () => {
    await agent.start();
    await push(81);
    await agent.until(() => runs().length === 1, 'the reaction has run');
    const verb = async (...args: string[]) => (await runVerb(['reactions', ...args, '--config', agent.config])).stdout;
    expect(await verb('ls')).toMatch(/high-flow +FT-101 flow +raised +81 +1 /);
    const test = async (value: number) =>
      JSON.parse(await verb('test', 'high-flow', '--value', String(value), '--json'));
    expect(await test(70)).toMatchObject({
      state: 'raised',
      transition: 'cleared',
      actions: [expect.stringContaining('echo cleared')],
    });
    expect(await test(90)).toMatchObject({ state: 'raised', transition: 'none', actions: [] });
    expect(await verb('test', 'high-flow', '--value', '70')).toContain(
      'would set it to cleared and run: run /bin/sh -c echo cleared',
    );
    const unknown = await runVerb(['reactions', 'test', 'high-flew', '--value', '1', '--config', agent.config]);
    expect(unknown).toMatchObject({ status: 2, stderr: expect.stringContaining('high-flow') });
    expect(runs()).toEqual(['raised 81']);
  });

  it('applies a changed condition after a reload', async () => {
    await agent.start();
    await push(60);
    configure('{ tag: FT-101, key: flow, above: 50 }');
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('config.reloaded').length > 0, 'the configuration is reloaded');
    await push(61);
    await agent.until(() => runs().length > 0, 'the reaction has run');
    expect(runs()).toEqual(['raised 61']);
  });
});
