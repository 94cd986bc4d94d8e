import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { runVerb } from '../commands/verb-run.ts';

const TAGS = 'tags:\n  FT-101: { asset: 881, values: { flow: { unit: 12 } } }\n';

interface Told {
  state: string;
  uplink: {
    away: { code: string; message: string; next_try_in_seconds: number; next_try_at: string } | null;
    resting: { code: string; for_seconds: number; until: string } | null;
  };
}

let sandbox: Sandbox;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url, { tags: TAGS });
  await agent.start();
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

const status = async () => (await agent.status()) as unknown as Told;
const push = (value: number) =>
  agent.push([{ tag: 'FT-101', key: 'flow', value, timestamp: 1_700_000_000_000 + value * 1000 }]);
const isStored = (count: number) => () => sandbox.values.counts(881, 'flow').stored === count;
const answering = (fault: { status: number; retryAfter?: string }) =>
  sandbox.faults.add({ method: 'POST', path: '/v1/assets/*', ...fault });

/** Operator actions at the gateway: the verb, or the signal that the service manager's `reload` sends. */
const PEOPLE: [string, () => Promise<void>][] = [
  [
    'session renew',
    async () => expect(await runVerb(['session', 'renew', '--config', agent.config])).toMatchObject({ status: 0 }),
  ],
  ['SIGHUP', async () => agent.signal('SIGHUP')],
];

describe.each(PEOPLE)('%s', (_name, act) => {
  it('ends a pause caused by an excessive Retry-After header', async () => {
    const fault = answering({ status: 429, retryAfter: '999999999' });
    await push(1);
    await agent.until(async () => (await status()).uplink.resting !== null, 'the agent has paused its posts');
    const { state, uplink } = await status();
    expect(state).toBe('resting');
    expect(uplink.resting!.code).toBe('429');
    expect(uplink.resting!.for_seconds).toBeLessThanOrEqual(301);
    expect(Date.parse(uplink.resting!.until) - Date.now()).toBeGreaterThan(200_000);
    const screen = await runVerb(['status', '--config', agent.config]);
    expect(screen.stdout).toContain('rate limited by the platform (429)');
    sandbox.faults.remove(fault);
    await act();
    await agent.until(isStored(1), 'the value is on the platform', 20_000);
    // The platform stores the value slightly before the response arrives.
    await agent.until(async () => (await status()).uplink.resting === null, 'the pause is over');
  });

  it('triggers an immediate retry despite an exhausted quota, and status shows the next retry time', async () => {
    const fault = answering({ status: 402 });
    await push(1);
    await agent.until(async () => (await status()).state === 'quota used up', 'the quota is exhausted');
    const { away } = (await status()).uplink;
    expect(away).toMatchObject({ code: '402' });
    expect(away!.message).toContain('quota used up');
    expect(Date.parse(away!.next_try_at) - Date.now()).toBeGreaterThan(20_000);
    sandbox.faults.remove(fault);
    await act();
    await agent.until(isStored(1), 'the value is on the platform', 20_000);
    await agent.until(async () => (await status()).state === 'online', 'the agent is online');
  });
});

it('SIGHUP retries a held asset immediately', async () => {
  agent.write(sandbox.url, { tags: `${TAGS}  FT-102: { asset: 882, values: { flow: { unit: 12 } } }\n` });
  agent.signal('SIGHUP');
  await agent.until(() => agent.logged('config.reloaded').length === 1, 'the second tag is known');
  const fault = sandbox.faults.add({ method: 'POST', path: '/v1/assets/881/values', status: 403 });
  const values = ['FT-101', 'FT-102'].map((tag) => ({ tag, key: 'flow', value: 1, timestamp: Date.now() }));
  await agent.push(values);
  await agent.until(async () => (await agent.metric('tagferry_assets_held')) === 1, 'the asset is held');
  sandbox.faults.remove(fault);
  agent.signal('SIGHUP');
  // Without the signal, the retry would be two minutes after the rejection.
  await agent.until(isStored(1), 'its value is on the platform', 30_000);
  await agent.until(async () => (await agent.metric('tagferry_assets_held')) === 0, 'it is not held any more');
});
