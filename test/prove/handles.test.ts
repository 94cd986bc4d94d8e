import { afterEach, beforeEach, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { ProvenGateway } from './proven-gateway.ts';
import { pause } from './ways/way.ts';

let sandbox: Sandbox;
let agent: ProvenGateway;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new ProvenGateway(sandbox.url, { tags: 'tags: { T: { asset: 881, values: { a: { unit: 12 } } } }\n' });
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

// `scripts/prove mixed --seed 1`: page data was read from a file every second, and the timer threw.
it('agent that ran out of file descriptors resumes when descriptors are available again', async () => {
  await agent.start();
  agent.limitHandles(agent.handles());
  // Lets periodic work run.
  await pause(3_500);
  agent.limitHandles(1_024);
  const value = { tag: 'T', key: 'a', value: 1 };
  await agent.until(
    async () => (await agent.push([value]).catch(() => undefined))?.status === 204,
    'values are accepted',
  );
  await agent.until(() => sandbox.values.counts(881).stored > 0, 'values arrive at the platform');
  expect(await agent.end('SIGTERM')).toBe(0);
});
