/** Entry point of the store thread. Connects its parts. */
import { parentPort } from 'node:worker_threads';
import { systemClock } from '../base/clock.ts';
import type { StoreFacts } from '../buffer/store-facts.ts';
import { StoreHost } from '../store/store-host.ts';
import { eventStore } from './event-store.ts';
import { collectGarbage, giveBackMemory } from './memory.ts';

if (parentPort) {
  // If not all series fit, garbage from reading them would add to the memory required for posting.
  const opened = ({ notLoaded }: StoreFacts) => {
    if (notLoaded > 0) collectGarbage();
  };
  new StoreHost(parentPort, eventStore, opened).serve();
  // Opening the stores produces garbage.
  giveBackMemory(systemClock);
}
