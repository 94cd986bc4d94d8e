import { constants } from 'node:os';
import { expect, it } from 'vitest';
import { ManualClock } from '../unit/doubles/manual-clock.ts';
import { summed } from './oracle.ts';
import { World } from './world.ts';

// `scripts/prove mixed --seed 348614`: broker values were waiting for the disk, and shutdown was waiting for the
// values.
it('agent whose store rejects writes stops on request, and unacknowledged values are redelivered', async () => {
  const chance = new ManualClock(0, 1);
  const world = await World.open({ chance: () => chance.random() });
  const { agent } = world;
  try {
    world.launch();
    await world.ready();
    world.produce(300);
    await world.freshMs();
    world.orders(`refuse_writes ${constants.errno.ENOSPC}`);
    await agent.until(() => /source\.store_refused.*"broker"/.test(agent.output), 'broker values are not accepted');
    expect(await agent.end('SIGTERM')).toBe(0);
    world.orders('');
    world.launch();
    await world.ready();
    await world.drain();
    await agent.end('SIGTERM');
    expect(summed(world.oracle.judge(world.sandbox).values())).toMatchObject({ missing: 0, invented: 0, different: 0 });
  } finally {
    await world.close();
  }
});
