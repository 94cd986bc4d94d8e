import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { ManualClock } from '../../unit/doubles/manual-clock.ts';
import { EventPlant, NOTHING_WRONG } from './event-plant.ts';

// The agent starts many times in this test, and a killed command is retried after a pause.
vi.setConfig({ testTimeout: 300_000 });

let sandbox: Sandbox;
let plant: EventPlant;
const RESET = { path: '/v1/client_applications/*', method: 'POST' };

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  plant = await EventPlant.at(sandbox);
  await plant.begin();
});
afterEach(async () => {
  await plant.endStream();
  await plant.agent.dispose();
  await sandbox.stop();
});

const secret = () => sandbox.webhooks()[0]!.secret;

/**
 * Whenever the agent is killed, the next start accepts deliveries with the platform secret, and no event is missing.
 */
async function expectMended(): Promise<void> {
  await plant.agent.start();
  await plant.agent.until(
    () => plant.record().secret === secret() && !plant.record().resetting,
    'both sides have the same secret',
  );
  await plant.endStream();
  const before = sandbox.deliveries().length;
  plant.send(5);
  await plant.agent.until(
    () =>
      sandbox
        .deliveries()
        .slice(before)
        .every(({ status, attempts }) => status === 'delivered' && attempts === 1),
    'new deliveries are accepted at their first attempt',
  );
  await plant.settle();
  expect(await plant.count()).toEqual(NOTHING_WRONG);
  expect(plant.agent.output).not.toContain(secret());
}

describe('kill -9 during a secret rotation', () => {
  it('before the request leaves the old secret valid until a second reset', async () => {
    plant.stream();
    const old = secret();
    sandbox.faults.add({ ...RESET, latencyMs: 60_000, drop: 'before', times: 1 });
    void plant.ask('webhook/rotate-secret').catch(() => {});
    await plant.agent.until(() => plant.record().resetting === true, 'the intended rotation is on disk');
    expect(secret()).toBe(old);
    await plant.kill();
    // The request may not have been sent, so the next one must not receive its response.
    sandbox.faults.clear();
    await expectMended();
    expect(secret()).not.toBe(old);
  });

  it('between request and response leaves an unknown secret, which is reset again', async () => {
    plant.stream();
    const old = secret();
    sandbox.faults.add({ ...RESET, drop: 'after', times: 1 });
    // The agent repeats the request immediately, and that request waits until the kill.
    sandbox.faults.add({ ...RESET, latencyMs: 60_000, drop: 'before', nth: 2 });
    void plant.ask('webhook/rotate-secret').catch(() => {});
    await plant.agent.until(() => secret() !== old, 'the platform has changed the secret');
    const lost = secret();
    await plant.kill();
    sandbox.faults.clear();
    expect(plant.record()).toMatchObject({ secret: old, resetting: true });
    await expectMended();
    expect(secret()).not.toBe(lost);
  });

  it('after the response leaves the new secret on disk, and the old secret is still accepted', async () => {
    plant.stream();
    const old = secret();
    void plant.ask('webhook/rotate-secret').catch(() => {});
    await plant.agent.until(() => plant.record().secret !== old, 'the new secret is on disk');
    await plant.kill();
    const fresh = secret();
    expect(plant.record()).toMatchObject({ secret: fresh, previous: old });
    await expectMended();
    expect(secret()).toBe(fresh);
  });

  it('at random moments loses no events', async () => {
    const chance = new ManualClock(0, 5);
    plant.stream();
    for (let blow = 0; blow < 5; blow++) {
      void plant.ask('webhook/rotate-secret').catch(() => {});
      await new Promise((resolve) => setTimeout(resolve, chance.random() * 25));
      await plant.kill();
      if (blow < 4) await plant.agent.start();
    }
    await expectMended();
  });
});
