import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { ManualClock } from '../../unit/doubles/manual-clock.ts';
import { EventPlant, NOTHING_WRONG } from './event-plant.ts';

// The agent starts many times in this test, and a killed command is retried after a pause.
vi.setConfig({ testTimeout: 300_000 });

let sandbox: Sandbox;
let plant: EventPlant;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
});
afterEach(async () => {
  await plant.endStream();
  await plant.agent.dispose();
  await sandbox.stop();
});

const listings = () =>
  sandbox.requests.list().filter(({ method, path }) => method === 'GET' && path.endsWith('/events'));

describe('killed agent', () => {
  it('neither loses nor repeats an event after kill -9 during the catch-up', async () => {
    plant = await EventPlant.at(sandbox);
    await plant.begin();
    await plant.kill();
    // Three pages of a hundred events that are not delivered by push, because the listener is closed during each
    // attempt.
    plant.send(260);
    sandbox.faults.add({ path: '/v1/client_applications/*', method: 'GET', latencyMs: 250 });
    for (const pages of [1, 2, 3]) {
      const before = listings().length;
      plant.agent.launch();
      await plant.agent.until(() => listings().length >= before + pages, `page ${pages} was read`);
      await plant.kill();
    }
    const inbox = await plant.inbox();
    expect(inbox.length).toBeGreaterThan(1);
    sandbox.faults.clear();
    await plant.agent.start();
    await plant.settle();
    expect(await plant.count()).toEqual(NOTHING_WRONG);
  });

  it('loses no event and repeats no completed reaction after kill -9 while reactions are running', async () => {
    const chance = new ManualClock(0, 11);
    plant = await EventPlant.at(sandbox);
    await plant.begin();
    plant.stream();
    for (let blow = 0; blow < 6; blow++) {
      await new Promise((resolve) => setTimeout(resolve, 100 + chance.random() * 700));
      await plant.kill();
      await plant.agent.start();
    }
    await plant.endStream();
    await plant.settle();
    expect(plant.finished.size).toBeGreaterThan(20);
    expect(await plant.count()).toEqual(NOTHING_WRONG);
    // Only a reaction that was running at the kill may run a second time.
    const most = Math.max(...[...plant.meant].map((number) => plant.ran().filter((one) => one === number).length));
    expect(most).toBeLessThanOrEqual(7);
  });
});

describe('gateway without a listener', () => {
  it('receives all events from the deliveries list if WEBHOOK_POLL is short', async () => {
    plant = await EventPlant.at(sandbox, { WEBHOOK_LISTEN: '', WEBHOOK_POLL: '1s' });
    await plant.agent.start();
    await plant.agent.registered();
    plant.send(40);
    await plant.agent.until(() => new Set(plant.ran()).size === plant.meant.size, 'every reaction has run');
    await plant.over();
    expect(await plant.count()).toEqual(NOTHING_WRONG);
    expect(plant.ran().sort()).toEqual([...plant.meant].sort());
  });
});
