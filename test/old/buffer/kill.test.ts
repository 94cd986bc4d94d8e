import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { VALUE_TAGS, ValuePlant } from '../../e2e/harness/value-plant.ts';
import { ManualClock } from '../../unit/doubles/manual-clock.ts';

let sandbox: Sandbox;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  // Short lanes, so that logs, segments and both lanes are active at the kill.
  agent = new AgentProcess(sandbox.url, {
    tags: `tags:\n${VALUE_TAGS}`,
    env: { POST_INTERVAL: '100ms', POST_MAX_VALUES: '40' },
  });
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

describe('killed agent', () => {
  it.each([1, 2])(
    'neither loses nor invents values after kill -9 during ingestion, outage and drain, seed %i',
    async (seed) => {
      const chance = new ManualClock(0, seed);
      await agent.start();
      const plant = new ValuePlant(agent);
      for (let blow = 0; blow < 8; blow++) {
        if (blow % 3 === 1) await sandbox.goOffline('refuse');
        if (blow % 3 === 2) await sandbox.goOnline();
        await new Promise((resolve) => setTimeout(resolve, 100 + chance.random() * 900));
        expect(await agent.end('SIGKILL')).toBe('SIGKILL');
        await agent.start();
      }
      await sandbox.goOnline();
      await plant.stop();
      await agent.until(
        async () => (await agent.metric('tagferry_buffer_values')) === 0,
        'the buffer is empty',
        90_000,
      );
      const { acknowledged, ...wrong } = plant.count(sandbox.values);
      expect(wrong).toEqual({ missing: 0, invented: 0, different: 0 });
      expect(acknowledged).toBeGreaterThan(100);
    },
  );
});
