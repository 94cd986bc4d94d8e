import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { TAMPERING_NAMES } from '../../../src/sandbox/webhooks/tampering.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';

const TAGS = 'tags:\n  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }\n';

let sandbox: Sandbox;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

describe('webhook listener', () => {
  it('rejects every delivery without a valid signature and accepts all others', async () => {
    const port = await freePort();
    const webhook = { WEBHOOK_LISTEN: `127.0.0.1:${port}`, WEBHOOK_URL: `http://127.0.0.1:${port}/webhook` };
    agent = new AgentProcess(sandbox.url, { tags: TAGS, env: webhook });
    await agent.start();
    await agent.registered();
    for (const kind of TAMPERING_NAMES) {
      const previous = sandbox.webhookFaults.outcomes().length;
      sandbox.webhookFaults.add({ kind, times: 1, delayMs: 100 });
      sandbox.cause('asset_disappeared');
      await agent.until(() => sandbox.webhookFaults.outcomes().length > previous, `${kind} was sent`);
    }
    expect(sandbox.webhookFaults.outcomes().filter(({ isRight }) => !isRight)).toEqual([]);
    expect(sandbox.webhookFaults.outcomes().map(({ kind }) => kind)).toEqual(TAMPERING_NAMES);
  }, 120_000);
});
