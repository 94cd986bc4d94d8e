import { constants } from 'node:os';
import { expect, it } from 'vitest';
import { ManualClock } from '../doubles/manual-clock.ts';
import { summed } from './oracle.ts';
import { World } from './world.ts';

// `scripts/prove mixed --seed 348614`: what came by a broker waited for the disk, and the way down for what waited.
it('an agent whose store refuses ends when it is asked to, and what it had not acknowledged comes again', async () => {
  const chance = new ManualClock(0, 1);
  const world = await World.open({ chance: () => chance.random() });
  const { agent } = world;
  try {
    world.launch();
    await world.ready();
    world.produce(300);
    await world.freshMs();
    world.orders(`refuse_writes ${constants.errno.ENOSPC}`);
    await agent.until(() => /source\.store_refused.*"broker"/.test(agent.output), 'values of the broker wait');
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
