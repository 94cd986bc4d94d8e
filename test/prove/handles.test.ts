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

// `scripts/prove mixed --seed 1`: what the page shows was read from a file each second, and the timer threw.
it('an agent that may open no file any more goes on when it may again', async () => {
  await agent.start();
  agent.limitHandles(agent.handles());
  // For what it does each second.
  await pause(3_500);
  agent.limitHandles(1_024);
  const value = { tag: 'T', key: 'a', value: 1 };
  await agent.until(async () => (await agent.push([value]).catch(() => undefined))?.status === 204, 'values are taken');
  await agent.until(() => sandbox.values.counts(881).stored > 0, 'they arrive');
  expect(await agent.end('SIGTERM')).toBe(0);
});
