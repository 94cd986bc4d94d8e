/** An operator deletes or moves values that the platform rejects. The values are then neither listed nor held. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { runVerb } from '../commands/verb-run.ts';

const WRONG = 880_881;
const tagsOf = (asset: number) => `tags:\n  T: { asset: ${asset}, values: { a: { unit: 1 } } }\n`;

let sandbox: Sandbox;
let agent: AgentProcess;
beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url, { tags: tagsOf(881) });
  await agent.start();
  await push(881, 'b', [1]);
  await agent.until(() => sandbox.values.counts(881).stored === 1, 'the platform accepts values');
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

async function push(asset: number, key: string, values: number[], unit = 1): Promise<void> {
  const { status } = await agent.push(values.map((value) => ({ asset, key, unit, value })));
  expect(status).toBe(204);
}

const verb = (...args: string[]) => runVerb(['buffer', ...args, '--config', agent.config]);

async function holds() {
  const { holds: list } = (await agent.status()) as { holds: { id: number }[] };
  return list.map(({ id }) => id);
}

async function waitingSeries(): Promise<number> {
  const { uplink } = (await agent.status()) as { uplink: { waiting_series: unknown[] } };
  return uplink.waiting_series.length;
}

describe('values removed from an asset', () => {
  it.each([
    ['retarget', ['retarget', '--from-asset', `${WRONG}`, '--to-asset', '881', '--yes', '--json']],
    ['purge', ['purge', '--asset', `${WRONG}`, '--yes', '--json']],
  ])('by %s leave no hold on the asset', async (_, args) => {
    await push(WRONG, 'a', [1, 2, 3]);
    await agent.until(async () => (await holds()).includes(WRONG), 'the asset is held');
    expect((await verb(...args)).status).toBe(0);
    await agent.until(async () => (await holds()).length === 0, 'no hold is left');
    expect(agent.logged('access.unused')).toMatchObject([{ asset: WRONG }]);
    await agent.end('SIGTERM');
    await agent.start();
    expect(await holds()).toEqual([]);
    // A later value is checked again.
    await push(WRONG, 'a', [4]);
    await agent.until(async () => (await holds()).includes(WRONG), 'the asset is held');
  });

  it('by purge do not release the hold on a tagged asset', async () => {
    agent.write(sandbox.url, { tags: tagsOf(WRONG) });
    agent.signal('SIGHUP');
    await agent.until(() => agent.logged('config.reloaded').length > 0, 'the configuration is reloaded');
    await push(WRONG, 'a', [1]);
    await agent.until(async () => (await holds()).includes(WRONG), 'the asset is held');
    expect((await verb('purge', '--asset', `${WRONG}`, '--yes')).status).toBe(0);
    await push(881, 'b', [2]);
    await agent.until(() => sandbox.values.counts(881).stored === 2, 'another asset is posted');
    expect(await holds()).toEqual([WRONG]);
  });

  it('by purge are not listed as a pending series', async () => {
    await push(
      881,
      'refused',
      Array.from({ length: 20 }, (_, i) => i),
      99_999,
    );
    // Values of other assets are accepted in the meantime, so this is not an outage.
    await agent.until(async () => {
      await push(882, 'b', [1]);
      return (await waitingSeries()) === 1;
    }, 'the series is paused');
    expect((await verb('purge', '--asset', '881', '--key', 'refused', '--yes')).status).toBe(0);
    await agent.until(async () => (await waitingSeries()) === 0, 'no series is paused');
  });
});
