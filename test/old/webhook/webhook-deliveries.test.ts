import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import type { DeliveryListing } from '../../../src/webhook/deliveries.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { runVerb } from '../commands/verb-run.ts';
import { contentOf } from './event-plant.ts';

let sandbox: Sandbox;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  const port = await freePort();
  const env = { WEBHOOK_LISTEN: `127.0.0.1:${port}`, WEBHOOK_URL: `http://127.0.0.1:${port}/hook` };
  agent = new AgentProcess(sandbox.url, { env });
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

const verb = (...args: string[]) => runVerb(['webhook', ...args, '--config', agent.config]);
const listing = async (...args: string[]): Promise<DeliveryListing> =>
  JSON.parse((await verb('deliveries', '--json', ...args)).stdout);

describe('tagferry webhook', () => {
  it('lists deliveries, and exits with 1 if the platform rejects a resend', async () => {
    await agent.start();
    await agent.registered();
    sandbox.announcer.announce({
      type: 'threshold_reached',
      audience: () => true,
      content: () => contentOf(1, false),
    });
    await agent.until(async () => (await listing('--status', 'delivered')).total === 1, 'it is delivered');
    const [delivery] = (await listing('--event-type', 'threshold_reached', '--since', '1h')).deliveries;
    expect(delivery).toMatchObject({ status: 'delivered', attempts: 1, days_left: null });
    expect((await listing('--status', 'failed')).total).toBe(0);
    const id = String(delivery!.id);
    const posts = () =>
      sandbox.requests.list().filter(({ method, path }) => method === 'POST' && path.endsWith('/events'));
    expect(await verb('resend', id)).toMatchObject({ status: 0 });
    expect(posts()).toHaveLength(1);
    const rejected = await verb('resend', id, '99999', '--json');
    expect(rejected.status).toBe(1);
    expect(JSON.parse(rejected.stdout)).toMatchObject({ accepted: [Number(id)], rejected: [{ id: 99999 }] });
    expect(await verb('resend')).toMatchObject({ status: 2 });
  });
});
