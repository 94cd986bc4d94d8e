import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { deliverEvent } from '../../e2e/harness/delivering.ts';
import { GatewayProcess } from '../../host/gateway-process.ts';

let sandbox: Sandbox;
let gateway: GatewayProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  gateway = new GatewayProcess(sandbox.url);
});
afterEach(async () => {
  await sandbox.stop();
});

/** Each command uses less memory than the agent, and all together use more than the unit allows. */
const GREEDY = 'const taken = Buffer.alloc(36 << 20, 1); setTimeout(() => taken.length, 600_000)';

describe('reaction commands that exhaust the memory limit of the service', () => {
  it('are killed by the kernel instead of the agent', async () => {
    const listen = `127.0.0.1:${await freePort()}`;
    gateway.write(sandbox.url, {
      tags: 'tags:\n  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }\n',
      reactions: `reactions:
  - { name: greedy, on: threshold_reached, do: [{ run: [${process.execPath}, -e, '${GREEDY}'], timeout: 10s }] }
`,
      env: { WEBHOOK_LISTEN: listen, WEBHOOK_URL: `http://${listen}/hook` },
    });
    await gateway.start();
    await gateway.registered();
    const { pid } = gateway;
    for (let value = 0; value < 4; value++) {
      await deliverEvent(sandbox, { key: 'flow', value, instrumentation: 5_000 + value });
    }
    await gateway.until(
      () => gateway.logged('reaction.command').some(({ signal }) => signal === 'SIGKILL'),
      'the command is killed',
    );
    expect(gateway.pid).toBe(pid);
    expect(await gateway.status()).toMatchObject({ state: 'online' });
    expect(gateway.bounds.kills).toBeGreaterThan(0);
    await gateway.end('SIGTERM');
    await expect(gateway.dispose()).rejects.toThrow('memory limit');
  });
});
